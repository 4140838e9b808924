"""Data-parallel attention in a plan: found as trying everything finds it, with the figures of an estimate, and where the engine does it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings

import calc
from calc.errors import UsageError
from calc.memory.options import MemoryOptions
from calc.report.plan import record as report
from calc.report.plan.page import label
from calc.report.table import plain
from calc.serving.deployment import DeploymentOptions
from calc.serving.load.answer import answer as answered
from calc.serving.load.memory import room
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.steady_state import served_load
from calc.serving.load.traffic import uniform
from calc.serving.plan.apart import apart
from calc.serving.plan.search import Question, plan
from calc.serving.plan.space import Space, Split, splits
from calc.serving.request import Workload
from tests.serving.small_space import BASE, EXPERTS, MODEL, ask, brute_force, ways
from tests.serving.test_plan import DEMANDS, LENGTHS, OBJECTIVES
from tests.support.profiles import attention, decoder, device, loaded

FABRIC = {"scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 4}
ALONE = device(id="alone", links=FABRIC, cloud_price_usd_per_hour={"value": 1.0})
JOINED = device(
    id="joined", links=FABRIC | {"scale_out_gb_per_s_per_direction_per_device": 50.0}, cloud_price_usd_per_hour={"value": 1.0}
)


def many_experts(count: int):
    return decoder(
        hidden=1024, layers=4, mixers=attention(16, 1, 64), width=1024, vocab=32000, id="many",
        feed_forward={"kind": "experts", "num_experts": count, "num_experts_per_token": 2, "intermediate_size": 256},
    )  # fmt: skip


@settings(max_examples=6)
@given(length=LENGTHS, objectives=OBJECTIVES, demand=DEMANDS)
@example(length=(256, 64), objectives=Objectives(), demand=Demand(200.0))  # other splits cost 4.0
@example(length=(1500, 100), objectives=Objectives(), demand=Demand(120.0))  # no other split carries it
def test_cheapest_is_what_trying_everything_finds(length, objectives, demand):
    names = ("small", "cheap")
    found = ask(names, uniform(*length), objectives, demand, model="toy-experts")
    best = brute_force(names, length, objectives, demand, False, "toy-experts")
    assert (found.answers[0].usd_per_hour if found.answers else None) == best


def test_every_way_is_looked_at_once():
    found = ask(("small",), uniform(256, 64), Objectives(), Demand(None, 1), model="toy-experts")
    looked_at = [o.deployment.sharding for o in found.options]
    expected = {(w.tensor, w.stages, w.data, w.whole_experts) for w in ways("toy-experts", "small")}
    assert {(s.tensor, s.pipeline, s.data, s.expert_parallel) for s in looked_at} == expected
    assert len(looked_at) == len(expected)


def wide_sizes(space: Space, model, hardware) -> set[tuple[int, int]]:
    return {(s.tensor, s.data) for s in splits(space, model, hardware) if s.data > 1}


def test_experts_are_dealt_out_evenly_and_beyond_a_fabric_to_whole_ones():
    space = Space(base=BASE, tensor=(1, 2), max_gpus=16)
    within = {(1, 2), (1, 4), (2, 2)}
    assert wide_sizes(space, many_experts(32), ALONE) == within
    assert wide_sizes(space, many_experts(32), JOINED) == within | {(1, 8), (2, 4), (1, 16), (2, 8)}
    assert wide_sizes(space, many_experts(12), JOINED) == {(1, 2), (1, 3), (1, 4), (2, 2), (1, 12), (2, 6)}  # not (1, 6): a half
    assert wide_sizes(space, MODEL, JOINED) == set()


def test_sizes_that_are_asked_for_are_those_that_are_tried():
    model, space = many_experts(32), Space(base=BASE, tensor=(1,), pipeline=(1,), max_gpus=16)
    asked = {
        data: list(splits(Space(base=BASE, tensor=(1,), pipeline=(1,), data=data, max_gpus=16), model, JOINED))
        for data in [(1,), (2,), (1, 8)]
    }
    one = Split(1, 1, 1, False)
    assert asked == {(1,): [one], (2,): [Split(1, 1, 2, True)], (1, 8): [one, Split(1, 1, 8, True)]}
    assert one in list(splits(space, model, JOINED))
    with pytest.raises(UsageError, match="no experts"):
        list(splits(Space(base=BASE, data=(2,)), MODEL, JOINED))
    assert {
        o.deployment.sharding.data for o in calc.plan("qwen3-30b-a3b", "h100-sxm5-80gb", data_parallel_size=4, max_gpus=8).options
    } == {4}


@pytest.mark.parametrize(
    ("engine", "groups"),
    [("vllm", {(1, 2), (1, 4), (2, 2)}), ("tensorrt-llm", {(1, 2), (1, 4)}), ("gpt-fast", set()), ("llama.cpp", set())],
)
def test_engines_are_asked_for_what_they_do(engine, groups):
    space = Space(base=DeploymentOptions(engine=engine), tensor=(1, 2), pipeline=(1,), max_gpus=4)
    hardware = device(vendor="NVIDIA", links=FABRIC, cloud_price_usd_per_hour={"value": 1.0})
    found = plan(Question(loaded(many_experts(8)), (loaded(hardware),), uniform(256, 64), space=space))
    shardings = [o.deployment.sharding for o in found.options]
    assert {(s.tensor, s.data) for s in shardings if s.is_wide} == groups
    assert "not_answered" not in [code for code, _ in found.warnings]


@pytest.mark.parametrize("demand", [Demand(40.0), Demand(None, 7), Demand(None, 8)], ids=["rate", "uneven users", "users"])
def test_figures_are_those_of_an_estimate(demand):
    length = (700, 32)
    found = ask(("cheap",), uniform(*length), Objectives(), demand, model="toy-experts")
    wide = [o for o in found.options if o.deployment.sharding.is_wide and o.index(1) is not None]
    assert len(wide) >= 2
    for option in wide:
        mine = answered(option, 1)
        theirs = served_load(option.deployment, Workload(input_len=length[0], output_len=length[1]), demand).answer
        assert (mine.tpot_s, mine.ttft_s, mine.e2e_s, mine.in_flight) == (
            theirs.tpot_s,
            theirs.ttft_s,
            theirs.e2e_s,
            theirs.in_flight,
        )
        assert mine.output_tokens_per_s == theirs.output_tokens_per_s


def test_requests_find_room_on_single_ranks():
    memory = MemoryOptions(gpu_memory_utilization=0.3)
    space = Space(base=DeploymentOptions(engine="ideal", memory=memory), tensor=(1,), pipeline=(1,), max_gpus=4)
    small = device(id="small", memory_capacity_gb=1.0, memory_reported_mib=1024.0)
    found = plan(Question(loaded(EXPERTS), (loaded(small),), uniform(30000, 64), goal="gpus", space=space))
    wide = [o for o in found.options if o.deployment.sharding.is_wide and o.limit]
    assert wide
    for option in wide:
        groups = option.deployment.sharding.data_ranks
        each = room(option.held, option.rules.traffic, conservative=False) / groups
        assert each % 1 > 0.01  # a part of a request, which no rank has room for
        assert option.limit == groups * int(each)


def test_named_in_answers_and_warned_of():
    found = ask(("cheap",), uniform(700, 32), Objectives(), Demand(None, 16), "tpot", model="toy-experts")
    wide = next(o for o in found.options if o.deployment.sharding.data == 4)
    assert label(wide).startswith("DP 4, EP cheap")
    record = report.split_record(wide, 1)
    assert (record["data_parallel_size"], record["gpus"]) == (4, 4)
    if found.answers[0].deployment.sharding.is_wide:
        assert "wide_expert_parallel" in [code for code, _ in found.warnings]


def test_prompts_on_replicas_of_their_own_are_not_cut_over_ranks_that_would_idle():
    space = Space(base=BASE, tensor=(1,), pipeline=(1,), max_gpus=32)
    question = Question(
        loaded(many_experts(8)), (loaded(JOINED),), uniform(2000, 100), Objectives(0.5, 0.02), Demand(20.0), space=space
    )
    for found in apart(plan(question)):
        assert not found.prefill.deployment.sharding.is_wide


def test_latent_attention_of_many_experts_is_served_data_parallel():
    found = calc.plan("deepseek-v3", "h200-sxm-141gb", request_rate=20.0, tpot_s=0.06, max_gpus=16)
    best = found.answers[0]
    assert (best.gpus, best.deployment.sharding.data_ranks) == (8, 8)
    alone = calc.plan("deepseek-v3", "h200-sxm-141gb", request_rate=20.0, tpot_s=0.06, max_gpus=64, data_parallel_size=1)
    assert best.usd_per_hour < alone.answers[0].usd_per_hour
    shown = plain(report.page(found), 80)
    assert max(map(len, shown.splitlines())) <= 80
    for words in ("DP 8, EP h200-sxm-141gb", "limited by", "Cheapest first", "--data-parallel-size 8"):
        assert words in shown, words
