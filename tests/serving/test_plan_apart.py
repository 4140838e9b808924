"""Prefill and decode apart: what is said to carry a rate does, within the objectives; light loads cost a pair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import UsageError
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.traffic import uniform
from calc.serving.plan.apart import apart
from calc.serving.plan.search import Question, plan
from calc.serving.plan.space import Space
from tests.serving.small_space import BASE, MODEL
from tests.support.profiles import device, loaded

LINKS = {
    "scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 8,
    "scale_out_gb_per_s_per_direction_per_device": 50.0,
}  # fmt: skip
CLUSTER = device(id="cluster", links=LINKS, cloud_price_usd_per_hour={"value": 2.0})
SPACE = Space(base=BASE, tensor=(1, 2), pipeline=(1,), max_gpus=32)


def found(rate: float, objectives: Objectives, hardware=CLUSTER, output: int = 100):
    question = Question(loaded(MODEL), (loaded(hardware),), uniform(2000, output), objectives, Demand(rate, None, 0.2), space=SPACE)
    return apart(plan(question))


@settings(max_examples=12)
@given(rate=st.floats(0.1, 300.0), tpot=st.none() | st.floats(1e-3, 0.05), ttft=st.none() | st.floats(0.02, 1.0))
def test_answers_carry_the_rate_within_the_objectives(rate, tpot, ttft):
    for a in found(rate, Objectives(ttft, tpot)):
        assert a.sustainable_rate * 0.8 >= rate * (1 - 1e-6)
        assert tpot is None or a.tpot_s.expected <= tpot
        assert ttft is None or a.ttft_s.expected <= ttft
        assert a.gpus <= 32
        assert a.usd_per_hour == pytest.approx(2.0 * a.gpus)
        assert a.in_flight <= a.batch_limit
        for value in (a.ttft_s, a.tpot_s, a.e2e_s):
            assert value.floor <= value.low <= value.expected <= value.high
        made, finished = (
            a.prefill_replicas / a.prompt_s,
            a.decode_replicas * a.batch_limit / (99 * a.step_s),
        )  # the first is prefill's
        assert a.sustainable_rate == pytest.approx(min(made, finished))
        assert a.prefill_per_decode / a.prompt_s == pytest.approx(finished / a.decode_replicas)
        assert a.in_flight == pytest.approx(rate / a.decode_replicas * 99 * a.tpot_s.expected, rel=1e-6)


def test_more_requests_never_cost_less():
    bills = [found(rate, Objectives(0.5, 0.02)) for rate in (1.0, 10.0, 50.0, 100.0)]
    costs = [b[0].usd_per_hour if b else float("inf") for b in bills]
    assert costs == sorted(costs)
    assert bills[0][0].gpus == 2  # one of each kind


def test_only_what_can_be_sent_is_apart():
    alone = device(id="alone", cloud_price_usd_per_hour={"value": 1.0})
    assert found(1.0, Objectives(), alone) == []
    users = Question(loaded(MODEL), (loaded(CLUSTER),), uniform(2000, 100), Objectives(), Demand(None, 4), space=SPACE)
    assert apart(plan(users)) == []
    assert found(1.0, Objectives(tpot_s=1e-9)) == []


def test_a_single_token_is_never_decoded_apart():
    with pytest.raises(UsageError, match="prefill makes the only token"):
        found(1.0, Objectives(), output=1)
    few, many = (found(20.0, Objectives(), output=n)[0] for n in (2, 50))
    assert few.prefill_per_decode == pytest.approx(49 * many.prefill_per_decode, rel=0.1)
