"""A plan's row, a sweep's row and a single estimate under the same load are one answer; light loads are a request alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.memory.options import MemoryOptions
from calc.serving.load import batching
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.steady_state import served_load
from calc.serving.load.traffic import uniform
from calc.serving.plan.search import Question, plan
from calc.serving.plan.space import Space
from calc.serving.request import Workload
from calc.serving.sweep.grid import Sweep, WorkAxes
from calc.timing.calibrated import Calibrated
from calc.timing.step_time import Range
from tests.serving.small_space import BASE, DEVICES, MODEL
from tests.support.profiles import deployment, loaded

PARTS = ("floor", "low", "expected", "high")
LENGTHS = st.sampled_from([(256, 64), (700, 32), (1500, 100)])
DEMANDS = st.one_of(
    st.builds(lambda rate: Demand(rate, None, 0.0), st.floats(0.01, 40.0)),
    st.builds(lambda users: Demand(None, users, 0.0), st.integers(1, 10)),
)
ONE = deployment(MODEL, DEVICES["large"], engine="ideal", memory=MemoryOptions(gpu_memory_utilization=0.9))


@settings(max_examples=20)
@given(length=LENGTHS, demand=DEMANDS)
def test_plan_sweep_and_estimate_give_one_answer(length, demand):
    single = calc.estimate_deployment(ONE, Workload(1, *length), None, demand).load
    space = Space(BASE, tensor=(1,), pipeline=(1,), max_gpus=1)
    found = plan(Question(loaded(MODEL), (loaded(DEVICES["large"]),), uniform(*length), Objectives(), demand, space=space))
    axes = WorkAxes(
        (1,), (length[0],), (length[1],), concurrency=(demand.concurrency,), request_rate=(demand.request_rate,),
    )  # fmt: skip
    columns = Sweep(ONE).columns(axes)
    assert bool(columns["carried"][0]) == (single.answer is not None) == bool(found.answers)
    if single.answer is None:
        assert single.shortfalls
        return
    row = found.answers[0]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        for part in PARTS:
            mine = getattr(getattr(single.answer, name), part)
            assert getattr(getattr(row, name), part) == mine
            assert columns[f"load_{name}_{part}"][0] == mine
    assert (row.request_rate, row.output_tokens_per_s) == (single.answer.request_rate, single.answer.output_tokens_per_s)
    assert columns["load_output_tokens_per_s"][0] == row.output_tokens_per_s


@settings(max_examples=10)
@given(length=LENGTHS)
def test_a_rate_near_nothing_is_a_request_alone(length):
    alone = calc.estimate_deployment(ONE, Workload(1, *length)).request
    light = served_load(ONE, Workload(1, *length), Demand(1e-6, None, 0.0)).answer
    for part in PARTS:
        assert getattr(light.tpot_s, part) == pytest.approx(getattr(alone.tpot_s, part), rel=1e-3)
        assert getattr(light.ttft_s, part) == pytest.approx(getattr(alone.ttft_s, part), rel=0.05)


@settings(max_examples=15)
@given(length=LENGTHS | st.just((2048, 1)), share=st.floats(0.01, 0.999))
@example(length=(2048, 1), share=0.995)
def test_all_ends_of_a_range_answer_the_same_rate(length, share):
    """A faster end serves no more requests than come: it waits less. The judged end is the one that objectives are held against."""

    def under(rate):
        return served_load(ONE, Workload(1, *length), Demand(rate, None, 0.0)).answer

    found = under(share * under(1e-3).sustainable_rate)
    at = found.option.index(1)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        times = getattr(found, name)
        assert times.expected == getattr(found.option.load, name)[at]
        assert times.floor < times.low < times.expected < times.high
    faster = [float(found.option.replica.at(part, found.option.load.rate).ttft_s[at]) for part in PARTS[:3]]
    assert faster == sorted(faster)


def test_more_users_never_get_tokens_sooner():
    found = [served_load(ONE, Workload(1, 700, 64), Demand(None, users, 0.0)).answer for users in range(1, 30)]
    for part in PARTS:
        assert (np.diff([getattr(a.tpot_s, part) for a in found]) >= 0).all()


def test_the_slow_end_of_users_is_that_of_all_at_once():
    def slow(demand: Demand) -> float:
        found = served_load(ONE, Workload(1, 700, 64), demand).answer.ttft_s
        return found.high / found.expected

    alone, spread, users = (slow(d) for d in (Demand(None, 1, 0.0), Demand(20.0, None, 0.0), Demand(None, 24, 0.0)))
    assert users > 1.5 * alone  # half of the others' prompts come first
    assert spread < users  # independent users do not come together


@given(
    mean=st.floats(1e-3, 1), effect=st.floats(0.3, 1.5), alone=st.floats(1e-4, 1), floor=st.floats(1e-4, 1), best=st.floats(0.1, 1)
)
def test_an_effect_never_makes_steps_faster_than_they_can_be(mean, effect, alone, floor, best):
    least = batching.least_s(mean, min(floor, mean), best)
    served = batching.served_step_s(mean, effect, min(alone, mean), least)
    assert served >= min(floor, mean)
    assert served >= min(alone, mean)
    assert served <= max(mean, effect * mean)


def test_the_effect_is_applied_once_to_the_stated_load(monkeypatch):
    def tpot(effect: float) -> Range:
        monkeypatch.setattr(Calibrated, "composition", lambda self, name: (effect, 1.0))
        return served_load(ONE, Workload(1, 1024, 256), Demand(None, 8, 0.0)).answer.tpot_s

    plain, twice = tpot(1.0), tpot(2.0)
    for part in PARTS[1:]:
        assert getattr(twice, part) == pytest.approx(2 * getattr(plain, part))
    assert twice.floor == plain.floor


@settings(max_examples=20)
@given(length=LENGTHS, demand=DEMANDS)
def test_no_gap_between_tokens_is_shorter_than_the_mean(length, demand):
    found = served_load(ONE, Workload(1, *length), demand).answer
    if found:
        assert found.longest_step_s >= found.tpot_s.expected


def test_throughput_alone_is_judged_as_published_throughput_is():
    def effect(objectives: Objectives, demand: Demand) -> float:
        space = Space(BASE, tensor=(1,), pipeline=(1,), max_gpus=1)
        question = Question(
            loaded(MODEL), (loaded(DEVICES["large"]),), uniform(256, 64), objectives, demand, "throughput", space=space
        )
        return plan(question).options[0].replica.effect.factor

    model = ONE.efficiency
    assert effect(Objectives(), Demand()) == model.composition("serving.saturated")[0]
    assert effect(Objectives(tpot_s=1.0), Demand()) == model.composition("serving.loaded")[0]
    assert effect(Objectives(), Demand(None, 4)) == model.composition("serving.loaded")[0]


def test_data_parallel_replicas_share_a_load():
    one, two = (calc.deploy("llama-3.1-8b", "h100-sxm5-80gb", calc_options(dp)) for dp in (1, 2))
    work = Workload(1, 512, 64)
    alone = served_load(one, work, Demand(None, 8, 0.0)).answer
    shared = served_load(two, work, Demand(None, 16, 0.0))
    assert shared.replicas == 2
    assert shared.answer.tpot_s.expected == alone.tpot_s.expected
    assert shared.answer.request_rate == pytest.approx(2 * alone.request_rate)


def calc_options(data: int, **rest):
    from calc.serving.deployment import DeploymentOptions

    return DeploymentOptions(data_parallel_size=data, **rest)


@pytest.mark.parametrize(
    "options", [{"request_rate": 0.0}, {"request_rate": -1.0}, {"concurrency": 0}, {"request_rate": 1.0, "concurrency": 1}], ids=str
)
def test_loads_that_make_no_sense_are_refused(options):
    with pytest.raises(UsageError):
        calc.estimate("llama-3.1-8b", "h100-sxm5-80gb", **options)


def test_two_halves_on_two_ranks_are_no_room_for_one():
    from calc.serving.load.memory import option
    from calc.serving.load.objectives import Rules

    wide = calc.deploy("gpt-oss-120b", "h100-sxm5-80gb", calc_options(2, tensor_parallel_size=2, enable_expert_parallel=True))
    for length in (20_000, 70_000, 110_000):
        room = option(wide, None, Rules(uniform(length, 100), Objectives(), Demand(None, 4), 4)).room
        assert room > 0
        assert room % 2 == 0
