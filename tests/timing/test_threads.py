"""A host spreads small calls over few threads: no call is slower for being larger by more than its bytes, and a full one is not slowed."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import ProfileError
from calc.operators.operator import Operator
from calc.profiles import reader
from calc.profiles.efficiency import EfficiencyProfile, Threads
from calc.timing import roofline
from calc.timing.roofline import Ceilings
from calc.timing.sizes import elements
from calc.timing.step_time import operator_range
from tests.timing.test_extrapolation import efficiency, factor

HOST = Ceilings("host", {"bf16": 4e11}, 2e10)


def norm(rows) -> Operator:
    return Operator("rms_norm", "norm", "", 1, 1, {"m": rows, "n": 4096}, "bf16", activation_bytes=rows * 4096 * 4)


def timed(rows, threads: Threads | None = None, **shares):
    one = msgspec.structs.replace(factor("norm", **shares), threads=threads)
    return operator_range(norm(rows), HOST, efficiency(one)).time_s


@given(grain=st.floats(1, 1e6), enough=st.floats(1, 256), sizes=st.tuples(st.floats(1, 1e9), st.floats(1, 1e9)).map(sorted))
def test_more_elements_never_take_less_time(grain, enough, sizes):
    slow = [roofline.slowdown(grain, enough, e) for e in sizes]
    assert 1 <= slow[1] <= slow[0] <= enough
    assert sizes[0] * slow[0] <= sizes[1] * slow[1] * (1 + 1e-9)


def test_one_thread_below_its_grain_and_none_too_few_at_the_end():
    threads = Threads(grain=4 * 4096, enough=3)
    assert timed(4, threads).expected == pytest.approx(3 * timed(4).expected)
    assert timed(8, threads).expected == pytest.approx(1.5 * timed(8).expected)
    assert timed(12, threads).expected == pytest.approx(timed(12).expected)
    assert timed(12, threads).low == pytest.approx(timed(12).low)


@pytest.mark.parametrize("grain", ["5e-324", "0.5", "1e400", "0"])
@pytest.mark.parametrize(
    ("place", "key"), [("threads: {{grain: {}, enough: 2}}", "threads.grain"), ("correction: [{{rows: {}, factor: 1}}]", "rows")]
)
def test_sizes_in_files_are_those_of_calls(grain, place, key):
    """Quotients of others overflow, and arrays would warn of it in the middle of an answer."""
    share = "{low: 0.5, expected: 0.5, high: 0.5, n: 3}"
    factor = f"{{compute: {share}, bandwidth: {share}, link: {share}, {place.format(grain)}}}"
    text = f"{{id: own, evidence: measured here, origin: runs, factors: [{factor}]}}"
    with pytest.raises(ProfileError, match=re.escape(key)):
        reader.convert(reader.parse_yaml(text.encode(), "own.yaml"), EfficiencyProfile)


def test_arrays_give_what_numbers_give():
    threads, rows = Threads(grain=4 * 4096, enough=3), [1, 4, 6, 8, 100]
    together = timed(np.array(rows, float), threads).expected
    assert together == pytest.approx([timed(r, threads).expected for r in rows])


def test_products_and_attention_have_no_elements():
    assert elements("norm", {"m": 3, "n": 5}) == 15
    assert elements("gemm", {"m": 3, "n": 5, "k": 7}) is None
    assert elements("attention", {"tokens": 3, "sequences": 1}) is None
    with_products = replace(norm(4), op_class="gemm")
    one = msgspec.structs.replace(factor("gemm"), threads=Threads(grain=1e9, enough=3))
    plain = operator_range(with_products, HOST, efficiency(factor("gemm"))).time_s.expected
    assert operator_range(with_products, HOST, efficiency(one)).time_s.expected == plain
