"""The plan against trying everything, and how its answer may move when the question moves."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.report.plan import record as report
from calc.report.plan.page import label, reason
from calc.report.table import plain
from calc.serving.load.answer import answer as answered
from calc.serving.load.objectives import Demand, Objectives, Shortfall
from calc.serving.load.traffic import spread, uniform
from calc.serving.plan.front import front
from calc.serving.plan.reasons import cheaper_failures, concessions, nearest_misses
from calc.serving.plan.search import Question, plan
from calc.serving.plan.space import Space, splits
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
    found = ask(names, uniform(*length), objectives, demand, conservative=conservative)
    best = brute_force(names, length, objectives, demand, conservative)
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
    bills = [a.usd_per_hour for a in found.answers]
    assert bills == sorted(bills)
    able = {o.deployment.hardware.name for o in found.options if (n := o.fewest_replicas) and n <= o.most_replicas}
    assert {a.deployment.hardware.name for a in found.answers} == able  # the best of each device is among them


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


SHORT = st.builds(uniform, st.sampled_from([1, 16, 256, 3000]), st.integers(1, 4) | st.integers(1, 200))
SPREAD = st.builds(lambda p, o: spread({0.5: p, 0.95: 3 * p}, {0.5: o, 0.95: 2 * o}), st.integers(1, 2000), st.integers(1, 60))
GOALS = st.sampled_from(["cost", "gpus", "tpot", "ttft", "throughput"])
LOADS = DEMANDS | st.just(Demand()) | st.builds(Demand, st.floats(100.0, 5000.0))


@settings(max_examples=20)
@given(traffic=SHORT | SPREAD, objectives=OBJECTIVES, demand=LOADS, goal=GOALS, conservative=st.booleans())
def test_every_answer_can_be_written(traffic, objectives, demand, goal, conservative):
    """Outputs of one token and loads near saturation included: no figure of the record is infinite."""
    found = ask(("small", "large"), traffic, objectives, demand, goal, conservative)
    record = report.record(found)
    json.dumps(record, allow_nan=False)
    assert "GPU" in plain(report.page(found), 80)
    given = objectives.given()
    for point in front(found):
        assert point.ttft_s <= given.get("ttft_s", math.inf)
        assert point.ttft_s < math.inf
        at = list(point.option.replica.in_flight).index(point.in_flight)
        assert point.option.load.e2e_s[at] <= given.get("e2e_s", math.inf)


@settings(max_examples=15)
@given(length=LENGTHS, rate=st.floats(0.01, 300.0), goal=GOALS)
def test_figures_are_those_of_the_stated_rate(length, rate, goal):
    for answer in ask(("small", "large"), uniform(*length), Objectives(), Demand(rate), goal).answers:
        replica, at = answer.option.replica, answer.option.index(answer.replicas)
        steps = float(replica.steps[at])
        assert length[1] - 1 < steps <= length[1] + 5  # its decode steps, and those of its prompt
        assert answer.in_flight == pytest.approx(rate / answer.replicas * steps * answer.tpot_s.expected, rel=1e-5)
        assert answer.in_flight in replica.in_flight


@settings(max_examples=10)
@given(length=LENGTHS, rate=st.floats(0.01, 300.0), goal=st.sampled_from(["tpot", "ttft"]))
def test_the_fastest_is_fastest_at_the_stated_rate(length, rate, goal):
    found = ask(("small", "large", "cheap"), uniform(*length), Objectives(), Demand(rate), goal)
    for option in found.options:
        if option.index(option.most_replicas) is None:
            continue
        other = answered(option, option.most_replicas)
        assert getattr(found.answers[0], f"{goal}_s").expected <= getattr(other, f"{goal}_s").expected * (1 + 1e-12)


def test_a_tpot_is_never_below_what_its_longest_gap_allows():
    found = calc.plan("llama-3.1-70b", "h100-sxm5-80gb", concurrency=1, pipeline_parallel_size=6, tensor_parallel_size=1)
    assert found.answers[0].longest_step_s >= found.answers[0].tpot_s.expected


@pytest.mark.parametrize("given", [{"ttft_s": 0.0}, {"tpot_s": -1.0}, {"e2e_s": float("nan")}], ids=str)
def test_objectives_are_above_nothing(given):
    with pytest.raises(UsageError):
        Objectives(**given)


def test_nothing_is_free():
    with pytest.raises(UsageError, match="price of small"):
        Question(loaded(MODEL), (loaded(DEVICES["small"]),), uniform(256, 64), prices={"small": 0.0}, space=SPACE)


def test_limits_that_are_tried_are_told_apart():
    space = replace(SPACE, max_num_batched_tokens=(512, 1024), max_num_seqs=(4, 8))
    found = plan(Question(loaded(MODEL), (loaded(DEVICES["small"]),), uniform(256, 64), space=space, top=4))
    tried = {(a.deployment.memory.max_num_batched_tokens, a.deployment.memory.max_num_seqs) for a in found.answers}
    assert len(tried) == 4
    rows = [json.dumps(report.split_record(a.option, a.replicas)) for a in found.answers]
    assert len(set(rows)) == len({label(a.option) for a in found.answers}) == 4


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


def test_what_misses_by_little_is_told_apart_from_its_limit():
    assert reason(Shortfall("ttft_s", 0.10004, 0.1)) == "TTFT 100.04 ms > 100.00 ms"
    assert reason(Shortfall("ttft_s", 0.2, 0.1, "any load")) == "TTFT at least 200 ms > 100 ms"
    assert reason(Shortfall("request_rate", 19.996, 20.0)).startswith("carries 19.996 of 20 requests/s")
    assert reason(Shortfall("tpot_s", 0.1, 0.1)).endswith("ms")  # as near as numbers come


def test_energy_is_an_upper_bound_at_tdp():
    best = ask(("small",), uniform(256, 64), Objectives(), Demand(2.0)).answers[0]
    assert best.joules_per_output_token == pytest.approx(100.0 * best.gpus / (2.0 * 64))


def test_bill_is_split_without_loss():
    best = ask(("small",), uniform(256, 64), Objectives(), Demand(2.0)).answers[0]
    tokens = best.token_cost
    hourly = (tokens.input * 2.0 * 256 + tokens.output * 2.0 * 64) * 3600 / 1e6
    assert hourly == pytest.approx(best.usd_per_hour)
    assert tokens.output_all_in * 2.0 * 64 * 3600 / 1e6 == pytest.approx(best.usd_per_hour)


def test_groups_of_ranks_stay_on_one_host_and_hosts_hold_as_many():
    links = {"scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 8}
    joined = device(links=links | {"scale_out_gb_per_s_per_direction_per_device": 50.0})
    found = {(s.tensor, s.pipeline) for s in splits(Space(max_gpus=32), MODEL, joined)}
    assert {(4, 1), (4, 2), (2, 6), (8, 2), (4, 4), (3, 4)} <= found
    assert (4, 3) not in found  # with 6 ranks on each of two hosts, one group of 4 would lie on both
    asked = Space(tensor=(4,), pipeline=(3,), max_gpus=32)
    assert [(s.tensor, s.pipeline) for s in splits(asked, MODEL, joined)] == [(4, 3)]
