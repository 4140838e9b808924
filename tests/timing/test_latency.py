"""Latency of a request: the mean decode step is the mean over its steps, and the whole is their sum."""

from __future__ import annotations

import pytest

import calc
from calc.operators import work
from calc.serving.phase import evaluate
from calc.serving.request import Workload
from tests.support.profiles import attention, decoder, deployment, device, llama

NAMES = ("floor", "low", "expected", "high")
WINDOWED = decoder(hidden=256, layers=4, mixers=attention(32, 32, 128, "sliding", window=400), width=256, vocab=100)


def steps(settled, batch: int, input_len: int, output_len: int):
    """Every decode step of a request: its first new token sees the prompt, the first output token and nothing else."""
    return [evaluate(settled, work.decode(batch, input_len + i)).time_s for i in range(1, output_len)]


@pytest.mark.parametrize("output_len", [2, 3, 64, 65])
@pytest.mark.parametrize("model", [llama("8b"), WINDOWED], ids=["full attention", "window crossed"])
def test_time_per_output_token_is_the_mean_of_the_decode_steps(model, output_len):
    settled = deployment(model, device())
    found = calc.estimate_deployment(settled, Workload(batch_size=64, input_len=380, output_len=output_len)).request
    each = steps(settled, 64, 380, output_len)
    for name in NAMES:
        mean = sum(getattr(s, name) for s in each) / len(each)
        # Terms are affine in the context; the spread around them bends with their shares.
        tolerance = 1e-6 if name in ("floor", "expected") else 1e-4
        assert getattr(found.tpot_s, name) == pytest.approx(mean, rel=tolerance), name


def test_a_long_answer_across_the_window_is_the_sum_of_its_steps():
    settled = deployment(WINDOWED, device())
    found = calc.estimate_deployment(settled, Workload(batch_size=64, input_len=100, output_len=800)).request
    whole = sum(s.expected for s in steps(settled, 64, 100, 800))
    assert found.e2e_s.expected - found.ttft_s.expected == pytest.approx(whole, rel=1e-3)


def test_one_output_token_comes_with_the_prefill():
    found = calc.estimate_deployment(deployment(llama("8b"), device()), Workload(input_len=500, output_len=1)).request
    assert found.e2e_s.expected == found.ttft_s.expected
    assert found.decode_share == 0


def test_a_context_that_is_shown_does_not_change_the_latency_of_the_request():
    settled = deployment(llama("8b"), device())
    usual = calc.estimate_deployment(settled, Workload(input_len=500, output_len=100))
    shown = calc.estimate_deployment(settled, Workload(input_len=500, output_len=100, context_len=9000))
    assert shown.request.tpot_s == usual.request.tpot_s
    assert shown.decode.time_s.expected > usual.decode.time_s.expected


def test_a_prefix_hit_shortens_the_first_token_alone():
    settled = deployment(llama("8b"), device())
    cold, warm = (calc.estimate_deployment(settled, Workload(input_len=4096, cached_len=h)).request for h in (0, 4000))
    assert warm.ttft_s.expected < cold.ttft_s.expected / 10
    assert warm.tpot_s == cold.tpot_s
