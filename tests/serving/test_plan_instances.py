"""Prices of whole instances in a plan: what they count, that idle GPUs are used or said, and prices that do not compare."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.report.plan import record as report
from calc.report.table import plain
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.traffic import uniform
from calc.serving.plan import instances
from calc.serving.plan.apart import apart
from calc.serving.plan.reasons import cheaper_failures, fewest_gpus
from calc.serving.plan.search import Plan, Question, plan
from calc.serving.plan.space import Space
from tests.serving.small_space import BASE, MODEL
from tests.support.profiles import device, loaded

LINKS = {
    "scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 8,
    "scale_out_gb_per_s_per_direction_per_device": 50.0,
}  # fmt: skip
SPACE = Space(base=BASE, tensor=(1, 2, 4), pipeline=(1, 3), max_gpus=16)


def priced(name: str, usd: float = 2.0, **price: str):
    return device(
        id=name, links=LINKS, memory_capacity_gb=2.0, memory_reported_mib=2048.0, cloud_price_usd_per_hour={"value": usd} | price
    )


FOURS = priced("fours", provider="A", instance="four (8 / 4)")
SINGLE = priced("single", provider="A", instance="one")


def ask(*hardware, demand: Demand, objectives: Objectives | None = None, **rest) -> Plan:
    asked = objectives or Objectives()
    rest = {"whole_instances": True} | rest
    return plan(Question(loaded(MODEL), tuple(map(loaded, hardware)), uniform(700, 32), asked, demand, space=SPACE, **rest))


@pytest.mark.parametrize(
    ("text", "usd", "gpus"),
    [
        ("p5en.48xlarge us-east-1 (63.296 / 8)", 7.912, 8),
        ("gpu_8x_h100_sxm5 (31.92 / 8)", 3.99, 8),
        ("gpu_8x_h100_sxm5 (31.92 / 8)", 4.99, None),  # another price than that of the division
        ("gpu_1x_a10", 1.29, None),
        ("g7e, upper end of $/GPU over sizes", 4.143, None),
        (None, 1.0, None),
    ],
)
def test_the_instance_is_what_the_profile_divides_by(text, usd, gpus):
    found = instances.sold_as(priced("d", usd, **({"instance": text} if text else {})))
    assert (found.gpus if found else None) == gpus
    assert found is None or found.name == text.partition(" (")[0]


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm"])
def test_divisions_of_the_library_are_read(name):
    assert instances.sold_as(calc.load_hardware(name).profile).gpus == 8


@settings(max_examples=6)
@given(rate=st.floats(1.0, 600.0), tpot=st.none() | st.floats(5e-4, 2e-2))
def test_bills_are_those_of_whole_instances_and_never_above_what_single_gpus_would_fill(rate, tpot):
    demand, objectives = Demand(rate), Objectives(tpot_s=tpot)
    whole, single = (ask(d, demand=demand, objectives=objectives) for d in (FOURS, SINGLE))
    assert bool(whole.answers) == bool(single.answers)
    for answer in whole.answers:
        paid = math.ceil(answer.gpus / 4) * 4
        assert instances.paid_gpus(answer.option, answer.gpus) == paid
        assert answer.usd_per_hour == pytest.approx(2.0 * paid)
        assert answer.token_cost.output_all_in * answer.output_tokens_per_s * 3600 / 1e6 == pytest.approx(2.0 * paid)
    if whole.answers:
        assert whole.answers[0].usd_per_hour == pytest.approx(math.ceil(single.answers[0].usd_per_hour / 8 - 1e-9) * 8)
        assert all(f.usd_per_hour < whole.answers[0].usd_per_hour for f in cheaper_failures(whole))


def test_gpus_that_are_paid_for_are_used_where_that_is_faster():
    best = ask(FOURS, demand=Demand(None, 8)).answers[0]
    assert best.gpus == 4
    found = ask(FOURS, demand=Demand(None, 8))
    assert fewest_gpus(found, best) == 1
    shown = plain(report.page(found), 80)
    assert "1 x four of 4 GPUs; 1 GPU would do" in shown
    record = report.answer_record(best)
    assert (record["paid_gpus"], record["instance"]) == (4, {"name": "four", "gpus": 4, "count": 1})


def test_gpus_are_paid_one_by_one_unless_whole_instances_are_asked_for():
    found = ask(FOURS, demand=Demand(None, 1), goal="gpus", whole_instances=False)
    best = found.answers[0]
    assert (best.gpus, best.usd_per_hour, report.answer_record(best)["paid_gpus"]) == (1, 2.0, 1)
    assert "four of 4 GPUs, billed by the GPU here" in plain(report.page(found), 80)


def test_idle_gpus_are_said_and_paid():
    best = ask(FOURS, demand=Demand(None, 1), goal="gpus").answers[0]
    found = ask(FOURS, demand=Demand(None, 1), goal="gpus")
    assert (best.gpus, best.usd_per_hour) == (1, 8.0)
    assert best.option.price.usd_per_hour == 8.0
    shown = plain(report.page(found), 80)
    assert "1 GPU of 4 that are paid for, 8.00 USD/h" in shown
    assert "3 idle" in shown


def test_a_price_of_yours_is_of_single_gpus():
    best = ask(FOURS, demand=Demand(None, 1), prices={"fours": 1.5}).answers[0]
    assert (best.gpus, best.usd_per_hour) == (1, 1.5)
    assert report.answer_record(best)["instance"] is None


def test_both_kinds_of_replica_are_paid_in_whole_instances():
    space = Space(base=BASE, tensor=(1,), pipeline=(1,), max_gpus=32)
    question = Question(
        loaded(MODEL),
        (loaded(FOURS),),
        uniform(700, 32),
        Objectives(0.5, 0.02),
        Demand(1.0),
        whole_instances=True,
        space=space,
    )
    (best,) = apart(plan(question))
    assert (best.gpus, best.usd_per_hour) == (2, 8.0)


def test_a_part_of_a_board_is_said():
    half = device(id="half", links=LINKS, parent={"id": None, "name": "Twin", "count": 2}, cloud_price_usd_per_hour={"value": 1.0})
    shown = plain(report.page(ask(half, demand=Demand(None, 1), goal="gpus")), 80)
    assert "Twin of 2: 1 idle, not in the bill" in shown


def test_prices_of_different_providers_are_flagged():
    other = priced("other", 3.0, provider="B")

    def flagged(*hardware, **rest) -> tuple[bool, bool]:
        found = ask(*hardware, demand=Demand(None, 1), **rest)
        shown = plain(report.page(found), 80)
        return "prices_differ" in [code for code, _ in found.warnings], "different providers" in shown

    assert flagged(FOURS, other) == (True, True)
    assert flagged(FOURS, other, goal="tpot") == (True, False)  # not what they are ordered by
    assert flagged(FOURS, SINGLE) == (False, False)
    assert flagged(FOURS, SINGLE, prices={"single": 1.0}) == (True, True)
    assert flagged(FOURS, other, prices={"fours": 1.0, "other": 1.0}) == (False, False)
