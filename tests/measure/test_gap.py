"""The measured time in parts: they sum to it, and each known cause is charged where it is at work."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.measure.comparing.gap import PARTS, quantisation, split, total
from calc.measure.comparing.reasons import likely
from calc.measure.records import Ceiling
from calc.operators.operator import Operator
from calc.timing.roofline import Ceilings

SHEET = Ceilings("sheet", {"bf16": 1e15}, 4e12)
UNITS = 132


def measured(matmul=0.8e15, read=3.2e12, launch=2e-6) -> tuple[Ceiling, ...]:
    return tuple(
        Ceiling(name, "bf16", unit, value, value, None, name, "ok")
        for name, unit, value in (("matmul", "flop/s", matmul), ("read", "byte/s", read), ("launch", "s", launch))
    )


def gemm(m: int, n: int, k: int) -> Operator:
    return Operator(
        "o_proj",
        "gemm",
        "",
        1,
        1,
        {"m": m, "n": n, "k": k},
        "bf16",
        flops=2 * m * n * k,
        activation_bytes=2 * (m * k + n * k + m * n),
    )


size = st.integers(1, 20_000)
rate = st.floats(0.05, 1.5)


@given(
    m=size, n=size, k=size, time_s=st.floats(1e-7, 10), compute=rate, memory=rate, units=st.sampled_from([None, 1, 84, 132, 304])
)
def test_the_parts_sum_to_the_measured_time(m, n, k, time_s, compute, memory, units):
    parts = split(gemm(m, n, k), time_s, measured(1e15 * compute, 4e12 * memory), SHEET, launches=2, units=units)
    assert tuple(parts) == PARTS
    scale = max(abs(v) for v in parts.values())
    assert math.isclose(math.fsum(parts.values()), time_s, abs_tol=1e-12 * max(scale, time_s))
    assert parts["tile_s"] >= 0
    assert parts["wave_s"] >= 0
    assert parts["launch_s"] == pytest.approx(4e-6)
    if units is None:
        assert parts["tile_s"] == parts["wave_s"] == 0


@given(m=size, n=size, k=size, units=st.integers(1, 512), copies=st.integers(1, 64))
def test_quantisation_is_a_share(m, n, k, units, copies):
    filled, busy = quantisation("gemm", {"m": m, "n": n, "k": k, "copies": copies}, units)
    assert 0 < filled <= 1
    assert 0 < busy <= 1


@pytest.mark.parametrize(
    ("shape", "filled", "busy"),
    [
        ((128, 128 * UNITS, 4096), 1, 1),  # one full wave of full tiles
        ((128, 128 * (UNITS + 1), 4096), 1, (UNITS + 1) / (2 * UNITS)),  # one tile more: a second turn for it alone
        ((129, 128 * UNITS, 4096), 129 / 256, 1),  # one row over a tile's edge
        ((1, 128 * UNITS, 4096), 1 / 64, 1),
        ((128, 128 * 66, 4096), 1, 1),  # half a wave is split along K into a whole one
        ((128, 128, 256), 1, 1 / UNITS),  # too short to split
    ],
)
def test_tiles_and_waves(shape, filled, busy):
    assert quantisation("gemm", dict(zip("mnk", shape, strict=True)), UNITS) == pytest.approx((filled, busy))


def test_only_products_have_tiles():
    assert quantisation("norm", {"m": 3, "n": 5}, UNITS) == (1, 1)
    assert quantisation("attention", {"b": 1, "q": 7, "kv": 7}, UNITS) == (1, 1)


def test_experts_are_told_from_either_spelling():
    rows = quantisation("experts", {"rows": 520, "active": 4, "n": 4096, "k": 2048}, UNITS)
    assert rows == quantisation("experts", {"m": 130, "active": 4, "n": 4096, "k": 2048}, UNITS)
    assert rows[0] == pytest.approx(130 / 256)


def test_each_cause_is_charged_where_it_rules():
    read = split(gemm(1, 8192, 8192), 1e-3, measured(), SHEET, units=UNITS)  # memory rules: padded rows hide behind the weights
    assert read["bandwidth_s"] == pytest.approx(read["base_s"] * (4 / 3.2 - 1))
    assert read["compute_s"] == read["tile_s"] == 0
    large = split(gemm(4096 + 1, 128 * UNITS, 8192), 1e-2, measured(), SHEET, units=UNITS)
    assert large["bandwidth_s"] == 0
    assert large["compute_s"] == pytest.approx(large["base_s"] * (1 / 0.8 - 1))
    assert large["tile_s"] > 0.02 * large["base_s"]


def test_a_kernel_better_than_its_ceilings_leaves_a_negative_rest():
    assert split(gemm(4096, 4096, 4096), 1e-9, measured(), SHEET, units=UNITS)["unexplained_s"] < 0


def test_without_a_datasheet_the_parts_start_at_the_ceilings():
    parts = split(gemm(1, 8192, 8192), 1e-3, measured(), None)
    assert parts["bandwidth_s"] == parts["compute_s"] == 0
    assert parts["base_s"] == pytest.approx(2 * 8192 * (8192 + 2) / 3.2e12)


@pytest.mark.parametrize("odd", [{"time_s": None}, {"ceilings": ()}, {"dtype": "fp8"}])
def test_what_is_unknown_has_no_parts(odd):
    operator = (
        gemm(1, 8, 8) if "dtype" not in odd else Operator("x", "gemm", "", 1, 1, {}, odd["dtype"], flops=1, activation_bytes=1)
    )
    assert split(operator, odd.get("time_s", 1.0), odd.get("ceilings", measured()), SHEET) is None


def test_a_step_sums_its_calls_and_hides_nothing():
    parts = split(gemm(1, 8192, 8192), 1e-3, measured(), SHEET)
    row = {"measured_s": 1e-3, "count": 32, "gap": parts}
    assert math.fsum(total([row, row]).values()) == pytest.approx(64e-3)
    assert total([row, row | {"gap": None}]) is None
    assert total([row, {"measured_s": None, "count": 1, "gap": None}]) == total([row])
    assert total([]) is None


@pytest.mark.parametrize(("wave_s", "error", "named"), [(2e-4, -0.3, True), (1e-6, -0.3, False), (2e-4, 0.3, False)])
def test_tiles_are_the_likely_reason_where_they_take_much_of_a_slow_call(wave_s, error, named):
    parts = dict.fromkeys(PARTS, 0.0) | {"wave_s": wave_s}
    row = {
        "case_id": "x", "error": error, "class": "gemm", "bound": "compute", "shape": {"m": 256}, "gap": parts, "measured_s": 1e-3,
    }  # fmt: skip
    assert ("tiles" in likely(row, {"x": {"status": "ok"}})) == named
