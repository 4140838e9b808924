"""The plan against trying everything, and how its answer may move when the question moves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import UsageError
from calc.serving.load.traffic import uniform
from calc.serving.plan.option import Demand, Objectives
from calc.serving.plan.reasons import cheaper_failures, concessions, nearest_misses
from calc.serving.plan.search import Question, plan
from calc.serving.plan.space import Space
from tests.serving.small_space import DEVICES, MODEL, SPACE, ask, brute_force
from tests.support.profiles import device, loaded

LENGTHS = st.sampled_from([(256, 64), (700, 32), (1500, 100)])
NAMES = st.sampled_from([("small",), ("large",), ("small", "large"), ("cheap", "large"), ("small", "large", "cheap")])
TIMES = st.none() | st.floats(2e-4, 5e-2)
DEMANDS = st.one_of(
    st.builds(lambda rate, room: Demand(rate, None, room), st.floats(0.01, 400.0), st.sampled_from([0.0, 0.2, 0.5])),
    st.builds(lambda users: Demand(None, users), st.integers(1, 60)),
)
OBJECTIVES = st.builds(lambda tpot, ttft, e2e: Objectives(ttft and 10 * ttft, tpot, e2e and 200 * e2e), TIMES, TIMES, TIMES)


@settings(max_examples=25)
@given(names=NAMES, length=LENGTHS, objectives=OBJECTIVES, demand=DEMANDS, conservative=st.booleans())
def test_cheapest_is_what_trying_everything_finds(names, length, objectives, demand, conservative):
    found = ask(names, uniform(*length), objectives, demand)
    best = brute_force(names, length, objectives, demand, "expected")
    assert (found.answers[0].usd_per_hour if found.answers else None) == best


@settings(max_examples=12)
@given(
    names=NAMES,
    length=LENGTHS,
    objectives=OBJECTIVES,
    demand=DEMANDS,
    goal=st.sampled_from(["cost", "gpus"]),
    share=st.floats(0.1, 0.99),
)
def test_tightening_an_objective_never_makes_the_answer_cheaper(names, length, objectives, demand, goal, share):
    def figure(limits: Objectives) -> float:
        answers = ask(names, uniform(*length), limits, demand, goal).answers
        if not answers:
            return float("inf")
        return answers[0].usd_per_hour if goal == "cost" else answers[0].gpus

    loose = figure(objectives)
    for name, value in objectives.given().items():
        tight = Objectives(**(objectives.given() | {name: value * share}))
        assert figure(tight) >= loose


@settings(max_examples=12)
@given(
    names=NAMES, added=st.sampled_from(sorted(DEVICES)), length=LENGTHS, objectives=OBJECTIVES, demand=DEMANDS,
    goal=st.sampled_from(["cost", "gpus", "tpot", "ttft", "throughput"]),
)  # fmt: skip
def test_adding_a_device_never_makes_it_worse(names, added, length, objectives, demand, goal):
    def figure(devices: tuple[str, ...]) -> float:
        answers = ask(devices, uniform(*length), objectives, demand, goal).answers
        if not answers:
            return float("inf")
        best = answers[0]
        return {
            "cost": best.usd_per_hour, "gpus": float(best.gpus), "tpot": best.tpot_s.expected, "ttft": best.ttft_s.expected,
            "throughput": -best.sustainable_rate if demand.request_rate else -best.request_rate,
        }[goal]  # fmt: skip

    before = figure(names)
    assert figure(tuple(dict.fromkeys((*names, added)))) <= before + 1e-12 * abs(before)


@settings(max_examples=8)
@given(names=NAMES, length=LENGTHS, objectives=OBJECTIVES, demand=DEMANDS)
def test_answers_meet_what_was_asked(names, length, objectives, demand):
    found = ask(names, uniform(*length), objectives, demand)
    for answer in found.answers:
        assert all(getattr(answer, n).expected <= v for n, v in objectives.given().items())
        assert answer.gpus <= SPACE.max_gpus
        if demand.request_rate:
            assert answer.sustainable_rate * (1 - demand.headroom) >= demand.request_rate * (1 - 1e-6)
        for value in (answer.tpot_s, answer.ttft_s, answer.e2e_s):
            assert value.floor <= value.low <= value.expected <= value.high
    assert list(found.answers) == sorted(found.answers, key=lambda a: (a.usd_per_hour, a.gpus)) or len(names) > 1


@settings(max_examples=8)
@given(names=NAMES, length=LENGTHS, objectives=OBJECTIVES, demand=DEMANDS)
def test_what_is_said_to_fail_fails(names, length, objectives, demand):
    found = ask(names, uniform(*length), objectives, demand)
    for failure in [*cheaper_failures(found), *(nearest_misses(found) if not found.answers else [])]:
        assert failure.option.index(failure.replicas) is None
        assert failure.shortfalls
        assert all(s.excess >= 1 - 1e-9 for s in failure.shortfalls)
        if found.answers:
            assert failure.usd_per_hour < found.answers[0].usd_per_hour


@settings(max_examples=8)
@given(names=NAMES, length=LENGTHS, objectives=OBJECTIVES, demand=DEMANDS)
def test_giving_way_as_said_makes_an_answer(names, length, objectives, demand):
    found = ask(names, uniform(*length), objectives, demand)
    if found.answers:
        return
    for concession in concessions(found):
        given, load = objectives, demand
        if concession.objective in objectives.given():
            given = Objectives(**(objectives.given() | {concession.objective: concession.needed * (1 + 1e-9)}))
        elif concession.objective == "request_rate":
            load = Demand(concession.needed * (1 - 1e-9), None, demand.headroom)
        elif concession.objective == "concurrency":
            load = Demand(None, int(concession.needed))
        else:
            continue
        assert ask(names, uniform(*length), given, load).answers, concession


def test_conservative_never_promises_more():
    objectives, demand = Objectives(tpot_s=4e-3), Demand(50.0)
    usual = ask(("small", "large"), uniform(512, 64), objectives, demand)
    careful = ask(("small", "large"), uniform(512, 64), objectives, demand, conservative=True)
    assert usual.answers
    assert not careful.answers or careful.answers[0].usd_per_hour >= usual.answers[0].usd_per_hour


def test_a_device_without_a_price_is_left_out_of_cost_and_kept_for_gpus():
    unknown = loaded(device(id="unpriced"))
    hardware = (loaded(DEVICES["small"]), unknown)
    found = plan(Question(loaded(MODEL), hardware, uniform(256, 64), space=SPACE))
    assert {a.deployment.hardware.name for a in found.answers} == {"small"}
    assert "price_unknown" in [code for code, _ in found.warnings]
    fewest = plan(Question(loaded(MODEL), hardware, uniform(256, 64), goal="gpus", space=SPACE))
    assert {a.deployment.hardware.name for a in fewest.answers} == {"small", "unpriced"}
    with pytest.raises(UsageError, match="no price is known"):
        plan(Question(loaded(MODEL), (unknown,), uniform(256, 64), space=SPACE))
    priced = plan(Question(loaded(MODEL), (unknown,), uniform(256, 64), prices={"unpriced": 0.5}, space=SPACE))
    assert priced.answers[0].usd_per_hour == 0.5


def test_splits_stay_within_the_fabric_unless_a_network_is_known():
    alone = loaded(
        device(id="alone", links={"scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 2})
    )
    space = Space(base=SPACE.base, max_gpus=8)
    found = plan(Question(loaded(MODEL), (alone,), uniform(256, 64), goal="gpus", space=space))
    assert max(o.ranks for o in found.options) == 2
    assert {o.deployment.sharding.tensor for o in found.options} == {1, 2}


def test_energy_is_an_upper_bound_at_tdp():
    best = ask(("small",), uniform(256, 64), Objectives(), Demand(2.0)).answers[0]
    assert best.joules_per_output_token == pytest.approx(100.0 * best.gpus / (2.0 * 64))


def test_bill_is_split_without_loss():
    best = ask(("small",), uniform(256, 64), Objectives(), Demand(2.0)).answers[0]
    tokens = best.token_cost
    hourly = (tokens.input * 2.0 * 256 + tokens.output * 2.0 * 64) * 3600 / 1e6
    assert hourly == pytest.approx(best.usd_per_hour)
    assert tokens.output_all_in * 2.0 * 64 * 3600 / 1e6 == pytest.approx(best.usd_per_hour)
