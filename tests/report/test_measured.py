"""Charts and tables of a report, from a record made by hand: what is drawn, in which colours, and what an odd record does."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from calc.errors import UsageError
from calc.report import differences
from calc.report.measured import bars, charts, html_page, picture, scope, summary
from calc.report.svg import Axis

GAP = {
    "base_s": 6e-4, "bandwidth_s": 1e-4, "compute_s": 0.0, "tile_s": 0.0, "wave_s": 1e-4, "launch_s": 1e-5, "unexplained_s": -1e-5,
}  # fmt: skip


def row(operation="o_proj", phase="decode", **changes):
    found = {
        "phase": phase, "operation": operation, "class": "gemm", "count": 2, "shape": {"m": 1, "n": 4096, "k": 4096}, "dtype": "bf16",
        "case_id": f"gemm:{operation}/{phase}", "kernel": "k", "status": "ok", "verdict": "agrees", "counts": True, "bound": "memory",
        "flops": 2 * 4096.0**2, "bytes": 2 * 4096.0**2, "measured_s": 4e-4, "interval_s": (3.9e-4, 4.1e-4), "rounds": 5,
        "predicted_s": 3.6e-4, "predicted_interval_s": (3.5e-4, 3.7e-4), "error": -0.1, "datasheet_s": 3e-4, "gap": dict(GAP),
        "labels": [], "note": None, "layers": "", "launches": 1,
    }  # fmt: skip
    return found | changes


def record(rows=None, **changes):
    rows = [row(), row("qkv_proj"), row("o_proj", "prefill", flops=1e12)] if rows is None else rows
    steps = [
        {"phase": p, "measured_s": 8e-4, "predicted_s": 7.2e-4, "error": -0.1, "missing": [], "gap": dict(GAP),
         "parts": [{"operation": "o_proj", "measured_s": 8e-4, "predicted_s": 7.2e-4}]}
        for p in ("prefill", "decode")
    ]  # fmt: skip
    ceilings = [
        {"name": n, "dtype": "bf16", "unit": u, "value": v, "status": "ok", "kernel": "k"}
        for n, u, v in (
            ("matmul", "flop/s", 4e14),
            ("read", "byte/s", 2e12),
            ("host_to_device", "byte/s", 5e10),
            ("launch", "s", 2e-6),
        )
    ]
    counts = dict.fromkeys(("agrees", "fast", "slow", "unclear", "extrapolated", "unreliable", "failed"), 0)
    found = {
        "model": {"id": "m", "name": "Model"}, "device": {"name": "Device"}, "environment": {}, "settings": {"dtype": "bf16"},
        "complete": True, "basis": {"kind": "prediction", "words": "from ceilings", "id": None}, "ceilings": ceilings,
        "datasheet": {"peak_flops_per_s": {"bf16": 1e15}, "bandwidth_bytes_per_s": 3e12}, "rows": rows, "further": [], "steps": steps,
        "groups": [], "counts": counts | {"cases": len(rows), "judged": len(rows)}, "worst": None, "not_measured": [], "left_out": [],
        "bandwidth_curve": [], "links": None, "samples": [], "noisy": [], "warnings": [],
    }  # fmt: skip
    return found | changes


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_file_holds_its_own_colours(theme):
    text = picture.svg(record(), theme)
    ElementTree.fromstring(text)
    assert "var(" not in text
    assert "dashed" in text
    assert "solid" in text
    assert text.count('class="hollow') == text.count('class="filled')
    assert "https://" not in text


def test_the_two_grounds_differ():
    assert picture.svg(record(), "light") != picture.svg(record(), "dark")


def test_nothing_to_draw_is_an_error():
    with pytest.raises(UsageError, match="nothing to draw"):
        picture.svg(record([]))


def test_names_beside_marks_do_not_overlap():
    rows = [row(f"operation_{i}", measured_s=4e-4 * (1 + i / 1000)) for i in range(3)]
    chart = charts.roofline(record(rows))
    places = [float(y) for y in re.findall(r'y="([0-9.]+)" class="label" text-anchor="\w+">operation_', chart)]
    assert len(places) == 3
    assert all(abs(a - b) >= 12 for i, a in enumerate(places) for b in places[i + 1 :])


def test_the_causes_end_at_the_measured_time():
    drawn = bars.gaps(record())
    ends = [float(x) + float(w) for x, w in re.findall(r'x="([0-9.]+)" y="[0-9.]+" height="15" width="([0-9.]+)"', drawn)]
    assert len(ends) == 2 * 5  # parts of no time are left out
    assert max(ends) < 860
    table = scope.causes(record())
    assert table.rows[0][0] == "at datasheet rates"
    assert table.rows[-1][1].startswith("-")
    assert bars.gaps(record(steps=[])) is None


def test_without_a_datasheet_the_first_cause_is_named_so():
    assert "at the ceilings measured here" in bars.gaps(record(datasheet=None))


def test_host_copies_are_not_held_against_the_memory():
    rows = {r[0]: r for r in scope.ceilings(record())}
    assert rows["host to device"][3] == "-"
    assert rows["read"][3] == "3.00 TB/s"
    assert rows["matmul"][3] == "1.00 PFLOP/s"


def test_words_for_people():
    assert summary.in_words(record()["steps"][1]).endswith("predicted 720 µs, 10.0 % less.")
    assert "not every operator" in summary.in_words(record()["steps"][1] | {"error": None})
    assert any("3 cases were power limited" in w for w in summary.words(record([row(labels=["power_limited"])] * 3)))


def test_the_page_tells_that_a_run_is_noisy_and_what_is_worst():
    worst = {"case_id": "gemm:<b>/x", "error": 0.5, "reason": "few rows"}
    page = html_page.html(record(noisy=["a neighbour"], worst=worst))
    assert "Noisy as a whole: a neighbour" in page
    assert "gemm:&lt;b&gt;/x" in page
    assert "Likely reason: few rows" in page


def test_an_empty_record_still_makes_a_page():
    page = html_page.html(record([], steps=[], ceilings=[], datasheet=None))
    assert "What was measured, and what not" in page


def test_a_row_without_times_is_told_and_not_drawn():
    bare = row(measured_s=None, predicted_s=None, interval_s=None, error=None, gap=None, status="failed", note="out of memory")
    page = html_page.html(record([bare]))
    assert "o_proj: out of memory" in page
    assert charts.agreement(record([bare])) is None


@pytest.mark.parametrize(
    ("low", "high", "base"), [(1 / 32, 32, 2), (0.9, 1.2, 10), (1 / 1.1, 1.1, 10), (1e-6, 1e3, 10), (3, 70, 10)]
)
def test_an_axis_has_ticks_and_one_is_among_them_where_it_lies(low, high, base):
    ticks = Axis(low, high, 0, 100, "", base=base).ticks()
    assert 2 <= len(ticks) <= 12
    assert all(low <= t <= high * 1.0001 for t in ticks)
    assert any(abs(t - 1) < 1e-9 for t in ticks) == (low <= 1 <= high)


def test_two_runs_as_a_page():
    rows = [
        {"case_id": f"<c{v}>", "operation": "o", "phase": "decode", "first_s": 1e-3, "first_interval_s": (0.9e-3, 1.1e-3), "second_s": 2e-3,
         "second_interval_s": None, "ratio": 2.0, "status": ["ok", "ok"], "verdict": v}
        for v in ("SAME", "FASTER", "SLOWER", "UNCLEAR")
    ]  # fmt: skip
    steps = [{"phase": "decode", "cases": 4, "first_s": 1.0, "second_s": 2.0, "ratio": 2.0, "verdict": "SLOWER"}]
    changed = [{"key": "driver", "first": "1", "second": "2"}]
    counts = dict.fromkeys(("SAME", "FASTER", "SLOWER", "UNCLEAR"), 1)
    found = {"environment": changed, "steps": steps, "rows": rows, "only_first": ["x"], "only_second": [], "counts": counts}
    page = differences.html(found, ("a.json", "<b>.json"))
    assert "&lt;b&gt;.json against a.json" in page
    assert page.index("driver") < page.index("Every case")
    assert "<cSAME>" not in page
    assert differences.chart(found | {"rows": []}) is None
