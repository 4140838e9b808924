"""Speculative decoding: no drafts are plain decode, certain drafts come free, a mixture of experts pays for its check."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.serving import speculation
from calc.serving.deployment import DeploymentOptions, MemoryOptions
from calc.serving.estimate import estimate
from calc.serving.request import Workload, mean_step
from calc.serving.speculation import Draft, draft_for, speculate, tokens_per_round
from calc.timing.step_time import NO_TIME
from tests.support.profiles import attention, decoder, deployment, device, llama, loaded

MODEL, DEVICE = llama("8b"), device()
SMALL = decoder(hidden=512, layers=4, mixers=attention(8, 2, 64), width=2048, vocab=128256)


def drafted(tokens: int, acceptance: tuple[float, ...], workload: Workload, **options):
    target = deployment(MODEL, DEVICE, memory=MemoryOptions(speculative_tokens=tokens), **options)
    draft = draft_for(target, acceptance, loaded(SMALL))
    return target, speculate(target, workload, draft, mean_step(target, workload))


@given(rate=st.floats(0, 0.999), drafts=st.integers(0, 64))
def test_tokens_of_a_round_are_the_geometric_sum(rate, drafts):
    assert tokens_per_round((rate,) * drafts) == pytest.approx((1 - rate ** (drafts + 1)) / (1 - rate))
    assert tokens_per_round((1.0,) * drafts) == drafts + 1


@given(rates=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_a_later_position_counts_less_and_a_refusal_ends_the_round(rates):
    assert 1 <= tokens_per_round(rates) <= 1 + len(rates)
    assert tokens_per_round([0.0, *rates]) == 1
    assert tokens_per_round([*rates, 0.5]) >= tokens_per_round(rates)


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(1, 64), prompt=st.integers(1, 4096), output=st.integers(1, 512), rate=st.floats(0, 1))
def test_no_drafts_are_plain_decode(batch, prompt, output, rate):
    workload = Workload(batch, prompt, output)
    target, found = drafted(0, (rate,), workload)
    plain = mean_step(target, workload)
    assert (found.tpot_s.floor, found.tpot_s.low, found.tpot_s.expected, found.tpot_s.high) == (
        plain.floor, plain.low, plain.expected, plain.high,
    )  # fmt: skip
    assert (found.speedup, found.tokens_per_round) == (1, 1)


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(1, 256), drafts=st.integers(1, 8), rate=st.floats(0, 1))
def test_ranges_hold_and_the_best_number_is_no_worse(batch, drafts, rate):
    _, found = drafted(drafts, (rate,), Workload(batch, 512, 64))
    assert found.tpot_s.floor <= found.tpot_s.low <= found.tpot_s.expected <= found.tpot_s.high
    assert found.verify_cost >= 1
    assert found.best_speedup >= max(1, found.speedup) - 1e-9


def test_more_drafts_than_the_search_tries_can_be_the_best():
    _, found = drafted(100, (1.0,), Workload())
    assert (found.best_drafts, found.best_speedup) == (100, found.speedup)


def test_drafts_that_are_never_kept_do_not_pay():
    _, found = drafted(3, (0.0,), Workload())
    assert found.speedup < 1
    assert (found.best_drafts, found.best_speedup) == (0, 1.0)


def test_looked_up_drafts_cost_their_check_alone():
    target = deployment(MODEL, DEVICE, memory=MemoryOptions(speculative_tokens=2))
    found = speculate(target, Workload(), draft_for(target, (0.5,), looked_up=True), NO_TIME)
    assert found.draft_cost == 0
    assert found.round_s == found.verify_s


def test_acceptance_by_position_repeats_its_last_rate():
    draft = Draft("named", None, (0.8, 0.5), 4)
    assert draft.by_position(4) == (0.8, 0.5, 0.5, 0.5)
    assert draft.by_position(1) == (0.8,)


@pytest.mark.parametrize("rates", [(), (1.1,), (-0.1,), (0.5, float("nan"))])
def test_rates_that_are_no_shares_are_refused(rates):
    with pytest.raises(UsageError):
        Draft("named", None, rates, 2)


def test_a_model_without_next_token_layers_says_what_to_do():
    with pytest.raises(UsageError, match="no next-token layers") as refusal:
        draft_for(deployment(MODEL, DEVICE), (0.5,))
    assert "--draft-model" in (refusal.value.hint or "")


def test_next_token_layers_of_a_mixture_draft_and_the_check_reads_more_experts():
    options = DeploymentOptions(tensor_parallel_size=8, memory=MemoryOptions(speculative_tokens=3))
    target = calc.deploy("deepseek-v3", "h200-sxm-141gb", options)
    found = speculate(target, Workload(1, 1024, 64), draft_for(target, (0.8,)), NO_TIME)
    assert 0 < found.draft_cost < 0.2
    assert found.verify_cost > 1.3  # a dense model's check costs hardly more than a step
    dense = drafted(3, (0.8,), Workload(1, 1024, 64))[1]
    assert dense.verify_cost < 1.2


def test_a_draft_that_does_not_fit_beside_the_model_gives_no_speed():
    target = deployment(llama("8b"), device(memory_reported_mib=20 * 1024.0), memory=MemoryOptions(speculative_tokens=3))
    found = estimate(target, Workload(1, 128, 16), draft_for(target, (0.8,), loaded(llama("8b"))))
    assert found.fit.fits
    assert found.speculation is not None
    assert found.speculation.tpot_s == NO_TIME
    assert "draft_does_not_fit" in dict(found.warnings)


def test_the_python_api_takes_one_rate_or_several():
    one = calc.estimate("llama-3.1-8b", "h100-sxm5-80gb", speculative_tokens=2, acceptance=0.7, draft_model="ngram")
    more = calc.estimate("llama-3.1-8b", "h100-sxm5-80gb", speculative_tokens=2, acceptance=(0.7, 0.7), draft_model="ngram")
    assert one.speculation.tpot_s == more.speculation.tpot_s
    assert one.speculation.draft.name == speculation.NGRAM
