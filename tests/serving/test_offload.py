"""Weights and layers on the host: nothing left there is the plain step, more never makes it faster, memory and times agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.memory import host
from calc.memory.options import MemoryOptions
from calc.operators import work
from calc.serving import offload
from calc.serving.phase import evaluate, timed_step
from tests.support.profiles import attention, decoder, deployment, device

GIB = 1 << 30
MODEL = decoder(hidden=4096, layers=16, mixers=attention(32, 8, 128), width=14336, vocab=32000)
LINK = 50.0
DEVICE = device(links={"pcie_gb_per_s_per_direction": LINK, "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 8})
PARTS = ("floor", "low", "expected", "high")
STEPS = st.one_of(
    st.builds(work.decode, st.integers(1, 64), st.integers(1, 4096)),
    st.builds(work.prefill, st.integers(1, 4), st.integers(1, 20_000)),
)


def streaming(gib: float, **options):
    return deployment(MODEL, DEVICE, engine="vllm", memory=MemoryOptions(cpu_offload_bytes=int(gib * GIB)), **options)


def on_host(gpu_layers: int | None, bandwidth: float = 60e9, **options):
    memory = MemoryOptions(gpu_layers=gpu_layers, host_bandwidth_bytes_per_s=bandwidth)
    return deployment(MODEL, DEVICE, engine="llama.cpp", memory=memory, **options)


def times(one, step):
    found = evaluate(one, step).time_s
    return [getattr(found, part) for part in PARTS]


@settings(max_examples=15)
@given(step=STEPS)
def test_nothing_on_the_host_is_the_plain_step(step):
    assert times(streaming(0), step) == times(deployment(MODEL, DEVICE, engine="vllm"), step)
    plain = times(deployment(MODEL, DEVICE, engine="llama.cpp"), step)
    assert times(on_host(None), step) == times(on_host(17), step) == times(on_host(999), step) == plain


@settings(max_examples=20)
@given(step=STEPS, gib=st.lists(st.floats(0, 6), min_size=2, max_size=2))
def test_more_weights_on_the_host_never_help_and_the_link_carries_them(step, gib):
    less, more = (times(streaming(g), step) for g in sorted(gib))
    assert all(a <= b * (1 + 1e-9) for a, b in zip(less, more, strict=True))
    assert more == sorted(more)
    one = streaming(max(gib))
    part = offload.host_part(one, list(evaluate(deployment(MODEL, DEVICE, engine="vllm"), step).operators), step)
    if part is not None:
        assert more[1] >= part.seconds["low"] * (1 - 1e-9)
        assert part.seconds["expected"] == pytest.approx(part.seconds["low"] * 32 / 25)


@settings(max_examples=20)
@given(step=STEPS, layers=st.lists(st.integers(0, 17), min_size=2, max_size=2))
def test_fewer_layers_on_the_device_never_help(step, layers):
    more, fewer = (times(on_host(n), step) for n in sorted(layers))
    assert all(a * (1 + 1e-9) >= b for a, b in zip(more, fewer, strict=True))
    assert more == sorted(more)


@settings(max_examples=10)
@given(step=STEPS, gib=st.floats(0.1, 5))
def test_operators_still_sum_to_the_step_and_arrays_agree(step, gib):
    for one in (streaming(gib), on_host(6)):
        phase = evaluate(one, step)
        assert phase.operators[-1].op_class == "host"
        ends = phase.timed.operators[-1].time_s
        assert ends.floor <= ends.low <= ends.expected <= ends.high
        total = sum(i.time_s.expected * i.operator.count for i in phase.timed.operators)
        assert total == pytest.approx(phase.time_s.expected)
        for part in PARTS:
            assert getattr(timed_step(one, step).time_s, part) == pytest.approx(getattr(phase.time_s, part))


def test_a_grid_of_arrays_equals_numbers_one_by_one():
    batch, length = np.array([1, 16, 64])[:, None], np.array([1, 500, 9000])[None, :]
    for one in (streaming(3), on_host(6), on_host(0)):
        for phase in (work.decode, work.prefill):
            grid = timed_step(one, phase(batch, length)).time_s
            for i, j in itertools.product(range(3), range(3)):
                single = evaluate(one, phase(int(batch[i, 0]), int(length[0, j]))).time_s
                for part in PARTS:
                    assert getattr(grid, part)[i, j] == pytest.approx(getattr(single, part), rel=1e-12)


def test_memory_is_freed_by_what_is_left_on_the_host():
    plain, streamed = (one.engine.capacity(one.question(max_model_len=1024)) for one in (streaming(0), streaming(4)))
    assert plain.weights_bytes_per_gpu - streamed.weights_bytes_per_gpu == 4 * GIB
    assert streamed.kv_cache_bytes_per_gpu - plain.kv_cache_bytes_per_gpu == 4 * GIB
    whole, half = (one.engine.capacity(one.question(max_model_len=1024)) for one in (on_host(None), on_host(9)))
    assert half.weights_bytes_per_gpu < 0.6 * whole.weights_bytes_per_gpu


def test_next_token_layers_stay_on_the_device():
    options = {"tensor_parallel_size": 8, "speculative_tokens": 1, "acceptance": 0.8}
    plain, offloaded = (
        calc.estimate("deepseek-v3", "h200-sxm-141gb", cpu_offload_bytes=gib * GIB, **options).speculation for gib in (0, 10)
    )
    assert offloaded.draft_s == plain.draft_s
    assert offloaded.verify_s.expected > plain.verify_s.expected


def test_layers_on_the_host_run_at_its_memory():
    step = work.decode(1, 512)
    phase = evaluate(on_host(0), step)
    held = phase.totals.weight_bytes + phase.totals.kv_read_bytes + phase.totals.kv_write_bytes
    assert phase.time_s.expected == pytest.approx(held / 60e9, rel=1e-6)  # nothing runs on the device
    assert [host.layers_on_host(16, n) for n in (None, 17, 16, 1, 0)] == [0, 0, 1, 16, 16]


@pytest.mark.parametrize(
    ("step", "bound"), [(work.decode(1, 512), "memory"), (work.prefill(1, 4096), "network")], ids=("decode", "prompt")
)
def test_layers_on_the_host_are_whole_however_the_others_are_cut(step, bound):
    one, two = (evaluate(on_host(4, tensor_parallel_size=n), step) for n in (1, 2))
    parts = [offload.host_part(on_host(4, tensor_parallel_size=n), p.operators[:-1], step) for n, p in ((1, one), (2, two))]
    assert parts[0].seconds == parts[1].seconds
    assert one.bound == two.bound == bound  # of a prompt the link to the device is busy, not the host's memory
    assert two.time_s.floor >= parts[1].seconds["floor"]


def test_a_model_too_large_for_a_device_runs_with_its_host():
    found = calc.estimate("llama-3.1-70b", "h100-sxm5-80gb", cpu_offload_bytes=80 * GIB)
    assert found.fit.fits
    assert found.request.tpot_s.floor >= 80 * GIB * 0.98 / 63e9  # PCIe 5.0 x16; of the layers alone, a whole model holds more
    assert found.decode.bound == "network"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpu_offload_bytes": 200 * GIB}, "exceeds"),
        ({"cpu_offload_bytes": -1}, "cpu_offload_bytes"),
        ({"gpu_layers": 4}, "no --n-gpu-layers"),
        ({"engine": "llama.cpp", "cpu_offload_bytes": GIB}, "no --cpu-offload-gb"),
        ({"engine": "tensorrt-llm", "cpu_offload_bytes": GIB}, "no --cpu-offload-gb"),
        ({"engine": "llama.cpp", "gpu_layers": 10}, "bandwidth of the host"),
        ({"engine": "llama.cpp", "gpu_layers": 10, "host_bandwidth_bytes_per_s": 0.0}, "host_bandwidth"),
    ],
    ids=str,
)
def test_what_cannot_be_left_to_the_host_is_refused(options, words):
    with pytest.raises(UsageError, match=words) as caught:
        calc.estimate("llama-3.1-8b", "h100-sxm5-80gb", **options)
    assert caught.value.hint or "must be between" in caught.value.message


def test_a_device_that_shares_its_memory_has_nowhere_to_leave_weights():
    with pytest.raises(UsageError, match="shares one memory"):
        calc.estimate("llama-3.1-8b", "apple-m1-max", engine="ideal", cpu_offload_bytes=GIB)
