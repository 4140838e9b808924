"""Every row of a sweep is the single estimate of its point."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.memory.options import MemoryOptions
from calc.operators import work
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.serving.estimate import estimate
from calc.serving.load.objectives import Demand
from calc.serving.phase import timed_step
from calc.serving.request import Workload, mean_step, pieces, smallest_chunk, spans
from calc.serving.sweep.grid import Sweep, WorkAxes, check_size
from calc.serving.sweep.mean_step import MeanStep
from tests.support.profiles import attention, decoder, loaded

MODELS = (
    "llama-3.1-8b", "llama-3.1-70b", "deepseek-v3", "deepseek-v2-lite", "gpt-oss-20b", "gemma-3-27b-it", "qwen3-30b-a3b",
    "qwen3-next-80b-a3b-instruct", "mixtral-8x7b-v0.1", "phi-3-mini-4k-instruct",
)  # fmt: skip
DEVICES = ("h100-sxm5-80gb", "l40s", "mi300x", "a100-sxm4-40gb", "rtx-4090", "t4")
ENGINES = ("vllm", "ideal", "sglang", "tensorrt-llm", "llama.cpp")
COUNTS = st.lists(st.one_of(st.integers(1, 64), st.integers(1, 5000)), min_size=1, max_size=3, unique=True)
TIMES = ("floor", "low", "expected", "high")


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    options = DeploymentOptions(
        tensor_parallel_size=draw(st.sampled_from([1, 2, 4, 8])),
        engine=draw(st.sampled_from(ENGINES)),
        kv_cache_dtype=draw(st.sampled_from(["auto", "fp8"])),
        quantization=draw(st.sampled_from([None, None, "fp8", "awq"])),
        memory=MemoryOptions(max_model_len=draw(st.sampled_from([None, None, 8192]))),
    )
    try:
        return calc.deploy(draw(st.sampled_from(MODELS)), draw(st.sampled_from(DEVICES)), options)
    except UsageError:
        assume(False)
        raise


def close(found: float, wanted: float | None) -> bool:
    """Within rounding; a point that is not answered is NaN."""
    return math.isnan(found) if wanted is None else math.isclose(found, wanted, rel_tol=1e-12, abs_tol=0.0)


@settings(max_examples=60)
@given(
    deployment=deployments(), batch=COUNTS, prompt=COUNTS, output=COUNTS,
    context=st.lists(st.none() | st.integers(1, 9000), min_size=1, max_size=2, unique=True),
    cached=st.lists(st.integers(0, 3000), min_size=1, max_size=2, unique=True),
)  # fmt: skip
def test_rows_equal_single_estimates(deployment, batch, prompt, output, context, cached):
    try:
        columns = Sweep(deployment).columns(WorkAxes(batch, prompt, output, context, cached))
    except UsageError:  # a split that this model does not allow
        assume(False)
    points = list(itertools.product(batch, prompt, output, context, cached))
    assert len(columns["fits"]) == len(points)
    for i, (b, p, o, c, h) in enumerate(points):
        single = calc.estimate_deployment(deployment, Workload(b, p, o, c, h))
        assert bool(columns["fits"][i]) == single.fit.fits
        assert close(columns["max_concurrency"][i], single.capacity.max_concurrency)
        assert columns["kv_tokens"][i] == single.capacity.kv_tokens
        if not deployment.has_rates:
            continue
        ranges = {
            "prefill_s": single.prefill.time_s, "decode_s": single.decode.time_s, "tpot_s": single.request.tpot_s,
            "e2e_s": single.request.e2e_s,
        }  # fmt: skip
        for name, value in ranges.items():
            for part in TIMES:
                assert close(columns[f"{name}_{part}"][i], getattr(value, part)), (name, part)
        assert close(columns["decode_share"][i], single.request.decode_share)
        assert close(columns["output_tokens_per_s"][i], single.request.output_tokens_per_s.expected)
        for phase, step in (("prefill", single.prefill), ("decode", single.decode)):
            assert columns[f"{phase}_bound"][i] == (step.bound or "")


@given(
    first=st.lists(st.integers(2, 300), min_size=1, max_size=4), length=st.integers(0, 200),
    bends=st.lists(st.integers(1, 500), max_size=3), chunk=st.none() | st.integers(20, 100),
)  # fmt: skip
def test_pieces_of_arrays_are_those_of_numbers(first, length, bends, chunk):
    starts = np.array(first, dtype=float)
    ends = starts + length
    whole = [
        (np.broadcast_to(a, starts.shape), np.broadcast_to(b, starts.shape))
        for a, b in spans(starts, ends, sorted(set(bends)), chunk)
    ]
    for i, start in enumerate(first):
        mine = [((a[i] + b[i]) / 2, b[i] - a[i] + 1) for a, b in whole if b[i] >= a[i]]
        assert mine == pieces(start, start + length, sorted(set(bends)), chunk)


CHUNKED = calc.deploy("llama-4-scout-17b-16e-instruct", "h200-sxm-141gb", DeploymentOptions(tensor_parallel_size=8))


@settings(max_examples=20)
@given(batch=st.integers(1, 300), prompt=st.integers(1, 40_000), output=st.integers(2, 100_000))
def test_the_mean_step_over_chunks_is_the_mean_of_all_steps(batch, prompt, output):
    steps = timed_step(CHUNKED, work.decode(batch, np.arange(prompt + 1.0, prompt + output))).time_s.expected
    assert mean_step(CHUNKED, Workload(batch, prompt, output)).expected == pytest.approx(float(np.mean(steps)), rel=1e-9)


def test_thousands_of_chunks_take_few_steps_and_the_sweep_agrees():
    """2,400 attention chunks: cut at every one, a point took seconds; cut at the first thousand, a single estimate was wrong."""
    prompt, output = 1000, 20_000_000
    single = mean_step(CHUNKED, Workload(1, prompt, output))
    many = MeanStep(CHUNKED).at(np.array([1.0]), np.array([float(prompt)]), np.array([float(output)]))
    assert close(float(many.expected[0]), single.expected)
    assert len(pieces(prompt, prompt + output, [], smallest_chunk(CHUNKED))) <= 4


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 7), min_size=5, max_size=5), limit=st.integers(1, 500))
def test_chunks_are_the_cross_product_in_order(sizes, limit):
    axes = WorkAxes(*(tuple(range(1, n + 1)) for n in sizes))
    assume(axes.points <= 20_000)
    points = []
    for part in axes.chunks(limit):
        assert part.points <= max(limit, 1)
        points += itertools.product(part.batch_size, part.input_len, part.output_len, part.context_len, part.cached_len)
    assert points == list(itertools.product(*(range(1, n + 1) for n in sizes)))


def test_threads_keep_the_order():
    deployment = calc.deploy("llama-3.1-8b", "h100-sxm5-80gb")
    axes = WorkAxes(range(1, 301), range(1, 401))
    sweep = Sweep(deployment)
    together = [p["tpot_s_expected"] for p in sweep.parts(axes, workers=3)]
    alone = [p["tpot_s_expected"] for p in Sweep(deployment).parts(axes, workers=1)]
    assert len(together) > 1
    assert all((a == b).all() for a, b in zip(together, alone, strict=True))


def test_a_sweep_without_end_is_refused_with_its_size():
    with pytest.raises(UsageError, match="1,000,000,000,000 points"):
        check_size(1, WorkAxes(range(1, 10**6 + 1), range(1, 10**6 + 1)))
    with pytest.raises(UsageError, match="1,000,000 deployments"):
        check_size(10**6, WorkAxes())


def test_loads_are_counted_over_the_whole_sweep():
    """However the points are cut into parts: 200 x 150 x 4 lengths and users, each with a steady state of its own."""
    with pytest.raises(UsageError, match="120,000 loads"):
        check_size(1, WorkAxes((1,), range(1, 201), range(1, 151), concurrency=(1, 2, 3, 4)))
    with pytest.raises(UsageError, match="180,000 loads"):
        check_size(3, WorkAxes((1,), range(1, 201), range(1, 301), concurrency=(1,)))
    check_size(
        1, WorkAxes((1, 2, 4), range(1, 201), range(1, 151), (None, 64), concurrency=(1,))
    )  # batches and contexts have no load
    check_size(3, WorkAxes((1,), range(1, 201), range(1, 301)))


def test_a_load_of_an_encoder_is_refused_as_a_single_estimate_refuses_it():
    encoder = decoder(hidden=256, layers=2, mixers=attention(4, 4, 64, causal=False), width=512, vocab=1000)
    deployment = resolve(loaded(encoder), calc.load_hardware("l40s"), DeploymentOptions(engine="ideal"))
    with pytest.raises(UsageError, match="is an encoder") as single:
        estimate(deployment, Workload(), None, Demand(None, 4, 0.0))
    with pytest.raises(UsageError, match="is an encoder") as swept:
        list(Sweep(deployment).parts(WorkAxes([1], [64], [1], concurrency=[4])))
    assert single.value.message == swept.value.message
