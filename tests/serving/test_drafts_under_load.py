"""Drafts in plans and sweeps: none are the plain answer, one user gets the single estimate's rounds, rows are estimates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.memory.options import MemoryOptions
from calc.serving.deployment import DeploymentOptions
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.replica import replica
from calc.serving.load.steady_state import served_load
from calc.serving.load.traffic import uniform
from calc.serving.plan.search import Question, plan
from calc.serving.plan.space import Space
from calc.serving.request import Workload
from calc.serving.speculation import Drafting
from calc.serving.sweep.grid import Sweep, WorkAxes
from tests.support.profiles import attention, decoder, deployment, device, loaded

MODEL = decoder(hidden=2048, layers=16, mixers=attention(16, 4, 128), width=8192, vocab=32000, id="target")
SMALL = decoder(hidden=512, layers=4, mixers=attention(8, 2, 64), width=2048, vocab=32000, id="small")
DEVICE = device(cloud_price_usd_per_hour={"value": 1.0})
PARTS = ("floor", "low", "expected", "high")


def settled(tokens: int, **memory):
    options = MemoryOptions(speculative_tokens=tokens, max_num_batched_tokens=4096, **memory)
    return deployment(MODEL, DEVICE, engine="ideal", memory=options)


def draft(one, rate: float, own: bool = True):
    return Drafting((rate,), loaded(SMALL) if own else None, looked_up=not own).draft(one)


@settings(max_examples=10)
@given(closed=st.booleans(), rate=st.floats(0, 1))
def test_no_drafts_are_plain_decode(closed, rate):
    one = settled(0)
    assert draft(one, rate) is None
    held, loads = one.engine.capacity(one.question()), np.array([1.0, 8.0, 64.0])
    plain = replica(one, held, uniform(500, 64), loads, closed=closed).at("expected")
    three = settled(3)
    refused = replica(three, held, uniform(500, 64), loads, closed=closed, draft=draft(three, 0.0)).at("expected")
    assert (refused.tpot_s >= plain.tpot_s).all()  # all drafts refused: only their cost is left


@settings(max_examples=10)
@given(tokens=st.integers(1, 6), rate=st.floats(0.1, 1), own=st.booleans())
def test_one_user_gets_the_rounds_of_the_single_estimate(tokens, rate, own):
    one, work = settled(tokens), Workload(1, 500, 64)
    drafted = draft(one, rate, own)
    single = calc.estimate_deployment(one, work, drafted).speculation
    loaded_once = served_load(one, work, Demand(None, 1, 0.0), drafted).answer
    for part in PARTS[2:]:
        assert getattr(loaded_once.tpot_s, part) == pytest.approx(getattr(single.tpot_s, part), rel=0.02)


@settings(max_examples=10)
@given(
    tokens=st.integers(0, 5), rate=st.floats(0, 1), own=st.booleans(),
    batch=st.lists(st.integers(1, 3000), min_size=1, max_size=2, unique=True),
)  # fmt: skip
def test_rows_of_a_sweep_are_single_estimates(tokens, rate, own, batch):
    one = settled(tokens)
    drafting = Drafting((rate,), loaded(SMALL) if own else None, looked_up=not own)
    columns = Sweep(one, drafting).columns(WorkAxes(batch, (900,), (100,)))
    for i, b in enumerate(batch):
        single = calc.estimate_deployment(one, Workload(b, 900, 100), drafting.draft(one))
        found = single.speculation.tpot_s if single.speculation else single.request.tpot_s
        for part in PARTS:
            mine, wanted = columns[f"speculative_tpot_s_{part}"][i], getattr(found, part)
            assert np.isnan(mine) if wanted is None else mine == pytest.approx(wanted, rel=1e-12)


def test_a_draft_model_takes_room_from_requests():
    held = [plan(question(drafts)).options[0] for drafts in ((0,), (4,))]
    assert held[1].room < held[0].room
    assert held[1].held.weights_bytes_per_gpu > held[0].held.weights_bytes_per_gpu


def question(drafts: tuple[int, ...], goal="tpot", acceptance: float = 0.9) -> Question:
    base = DeploymentOptions(engine="ideal", memory=MemoryOptions(max_num_batched_tokens=4096, max_num_seqs=64))
    space = Space(
        base, tensor=(1,), pipeline=(1,), max_gpus=1, drafting=Drafting((acceptance,), loaded(SMALL)), speculative_tokens=drafts
    )
    return Question(loaded(MODEL), (loaded(DEVICE),), uniform(500, 100), Objectives(), Demand(None, 1), goal, space=space)


def test_a_plan_names_the_number_of_drafts_that_is_best():
    best = plan(question((0, 2, 4))).answers[0]
    assert best.option.draft is not None
    tried = {n: plan(question((n,))).answers[0].tpot_s.expected for n in (0, 2, 4)}
    assert best.tpot_s.expected == min(tried.values())
    assert best.option.draft.tokens == min(tried, key=lambda n: tried[n])
    assert plan(question((0, 2, 4), acceptance=0.0)).answers[0].option.draft is None


@pytest.mark.parametrize("rates", [(), (1.1,), (-0.1,), (0.5, float("nan"))], ids=str)
def test_rates_that_make_no_sense_are_refused(rates):
    with pytest.raises(UsageError):
        Drafting(rates)
