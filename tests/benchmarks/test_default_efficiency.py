"""The default factors that ship follow from the records, and only rows that count are counted."""

import pytest

from benchmarks import default_efficiency


def row(share=0.5, kind="decode", bound="memory", gpu_count=1, **more):
    return {"kind": kind, "gpu_count": gpu_count, "roofline": {"bound": bound, "achieved_fraction": share}, **more}


def test_the_shipped_file_agrees_with_the_records() -> None:
    assert default_efficiency.differences(default_efficiency.factors(default_efficiency.records())) == []


def test_rows_that_do_not_count_are_left_out() -> None:
    rows = [
        row(0.5),
        row(0.1, suspect=True),
        row(0.2, gpu_count=2),
        row(0.3, bound="compute"),
        row(0.4, kind="serving"),
        row(None),
        {"kind": "decode", "gpu_count": 1},
    ]
    assert default_efficiency.fractions(rows, "decode", "memory") == [0.5]


def test_factors_are_the_10th_50th_and_90th_percentile() -> None:
    shares = [n / 100 for n in range(101)][1:]
    rows = [row(s) for s in shares] + [row(s, kind="prefill", bound="compute") for s in shares[:50]]
    found = default_efficiency.factors(rows)
    assert found["bandwidth"].n == 100
    assert found["compute"].n == 50
    assert found["bandwidth"].low == pytest.approx(0.109)
    assert found["bandwidth"].expected == pytest.approx(0.505)
    assert found["bandwidth"].high == pytest.approx(0.901)


def test_a_changed_record_is_noticed() -> None:
    rows = default_efficiency.records()
    for one in rows[:60]:
        one["suspect"] = True
    assert default_efficiency.differences(default_efficiency.factors(rows))
