"""The published deployments whose experts lie on data-parallel ranks: predicted, and far from what all-reduces would cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.speed_model.case import SkipError
from benchmarks.speed_model.cross_validation import predict
from benchmarks.speed_model.spellings import SPEEDS, records
from benchmarks.speed_model.steps import setup, step_case
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import prefill
from calc.timing import roofline
from calc.timing.calibrated import Calibrated
from calc.timing.efficiency import effect_files, effects
from calc.timing.terms import step_sizes

DECODE = "decode-deepseek-inference-h800-sxm-x128-deepseek-v3-r1-fp8-ep128"
PREFILL = "prefill-sglang-h100-sxm-80gb-x32-deepseek-v3-r1-fp8-ep32"


@pytest.fixture(scope="module")
def found():
    return {r["id"]: r for r in records(SPEEDS) if r["id"] in (DECODE, PREFILL)}


@pytest.mark.parametrize(("record", "ranks"), [(DECODE, 128), (PREFILL, 32)])
def test_the_range_holds_what_was_measured(found, record, ranks):
    case, sharding = step_case(found[record]), setup(found[record]).sharding
    assert (sharding.ranks, sharding.expert_ranks, sharding.data_ranks) == (ranks, ranks, ranks)
    prediction = predict(case, effect_files())
    assert case.floor_s < case.measured_s
    assert prediction.low_s < case.measured_s < prediction.high_s
    assert prediction.predicted_s == pytest.approx(case.measured_s, rel=0.5)


def test_all_reduces_would_cost_several_times_as_much(found):
    one, record = setup(found[PREFILL]), found[PREFILL]
    split, work = Sharding(32, expert_parallel=True), prefill(record["batch"], record["input_len"])
    operators = step_operators(one.model, split, one.numbers, work)
    sizes = step_sizes(operators, roofline.datasheet(one.hardware, 32), replace(one.setting, tensor=32), work)
    reduced = Calibrated(effects(one.setting.family), one.setting).expectation(sizes).seconds
    assert reduced > 3 * step_case(record).measured_s


def test_experts_on_some_of_the_devices_are_not_guessed(found):
    with pytest.raises(SkipError, match="experts on 32 ranks, 64 devices"):
        setup(found[PREFILL] | {"gpu_count": 64})
