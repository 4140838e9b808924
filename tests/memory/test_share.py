"""What the utilisation is a share of, law by law: what is left, what is missing, and that the shown formula is the computed one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import UsageError
from calc.memory.share import OfFreeAfter, OfFreeBefore, OfTotal
from calc.memory.term import GIVEN, Term
from calc.serving.estimate import check_fit
from calc.serving.request import Workload
from tests.support.memory import GIB, deploy, held

LAWS = (OfTotal, OfFreeBefore, OfFreeAfter)
SIZES = st.integers(0, 100 * GIB)
SHARES = st.integers(1, 1000).map(lambda n: n / 1000)
ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "ideal")
HOST = {"cpu_offload_bytes", "gpu_experts"}  # options that leave weights in host memory


def budget(law, total, weights, activation, runtime):
    memory = Term("gpu_memory", total, "reported")
    before = Term("runtime", runtime, "logs")
    kept = law.static(memory, before) if isinstance(law, OfFreeBefore) else None
    activation = max(0, total - runtime) - kept.bytes if kept else activation
    return memory, (
        Term("weights", weights, "shapes"),
        Term("activation", activation, "layers"),
        before,
        Term("cuda_graphs", 0, "none"),
    )


@pytest.mark.parametrize("law", LAWS)
@given(SHARES, SIZES, SIZES, SIZES, SIZES)
def test_the_shown_formula_gives_the_cache_to_the_byte(law, value, total, weights, activation, runtime):
    share = law(value)
    memory, taken = budget(share, total, weights, activation, runtime)
    names = {t.name: t.bytes for t in (memory, *taken)} | {"utilization": value, "max": max, "floor": math.floor}
    assert eval(share.formula, {"__builtins__": {}}, names) == share.left(memory, taken).bytes


@pytest.mark.parametrize("law", LAWS)
@given(SHARES, SIZES, SIZES, SIZES, SIZES, st.integers(1, 50 * GIB))
def test_without_the_missing_weights_the_cache_is_there(law, value, total, weights, activation, runtime, needed):
    share = law(value)
    memory, taken = budget(share, total, weights, activation, runtime)
    missing = share.missing_bytes(memory, taken, needed)
    assert (missing == 0) == (share.left(memory, taken).bytes >= needed) or missing <= 1 / value + 1
    if missing <= weights:
        lighter = (Term("weights", weights - missing, "shapes"), *taken[1:])
        assert share.left(memory, lighter).bytes >= needed - 1
    assert share.left(memory, taken).bytes + sum(t.bytes for t in taken) <= max(
        share.limit_bytes(memory, taken), sum(t.bytes for t in taken)
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_fit_wherever_the_law_leaves_a_cache(engine):
    for value in (0.15, 0.5, 0.9):
        one = deploy("llama-3.1-8b", "h100-sxm5-80gb", engine, gpu_memory_utilization=value)
        fit, found = check_fit(one, Workload(1, 512, 64))
        assert fit.fits == (found.kv_cache_bytes_per_gpu > 0) == found.loaded
        if not fit.fits:
            assert fit.too_large == "weights"
            assert fit.missing_bytes_per_gpu > 0


def test_tensorrt_llm_shares_what_stays_free():
    one = deploy("llama-3.1-8b", "h100-sxm5-80gb", "tensorrt-llm", gpu_memory_utilization=0.15)
    fit, found = check_fit(one, Workload(1, 1024, 256))
    assert fit.fits
    assert found.max_concurrency > 1
    many, _ = check_fit(one, Workload(70, 1024, 256))
    assert many.too_large == "kv_cache"
    free = found.capacity_bytes_per_gpu - found.fixed_bytes_per_gpu
    needed = many.used_bytes_per_gpu - found.fixed_bytes_per_gpu
    assert many.missing_bytes_per_gpu == math.ceil(needed / 0.15) - free


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tp": 2, "speculative_tokens": 1},
        {"weights_bytes": 10 * GIB},
        {"cpu_offload_bytes": 5 * GIB},
        {"gpu_experts": 32},
        {"pp": 2, "pipeline_layers": (20, 28)},
        {"quantization": "nvfp4"},
        {"lora_slots": 2},
    ],
    ids=str,
)
def test_weights_are_the_sum_of_their_parts(engine, options):
    if ("cpu_offload_bytes" in options and engine == "llama.cpp") or (options.keys() & HOST and engine == "tensorrt-llm"):
        pytest.skip("has no such option")
    for rank in held("qwen3-30b-a3b", "h200-sxm-141gb", engine, **options).ranks:
        term = next(t for t in rank.taken if t.name == "weights")
        assert sum(size for _, size in term.parts) == term.bytes
        names = [name for name, _ in term.parts]
        assert len(names) == len(set(names))
        assert (GIVEN in names) == ("weights_bytes" in options)
        assert ("left in host memory" in names) == ("cpu_offload_bytes" in options)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "ideal"])
def test_experts_on_the_host_take_no_memory_of_the_device(engine):
    whole, few = (held("qwen3-30b-a3b", "h200-sxm-141gb", engine, gpu_experts=n).ruling.taken[0] for n in (128, 32))
    experts = [next(size for name, size in term.parts if name.startswith("experts")) for term in (whole, few)]
    assert experts[0] == 4 * experts[1]


def test_an_engine_that_keeps_all_experts_says_so():
    with pytest.raises(UsageError, match="no --gpu-experts"):
        held("qwen3-30b-a3b", "h200-sxm-141gb", "tensorrt-llm", gpu_experts=32)


def test_layers_without_a_cache_of_their_own_do_not_rule():
    found = held("gemma-3n-e4b-it", "h100-sxm5-80gb", pp=3)
    assert any(not r.pool.cache.layers for r in found.ranks)  # the last stage reads the caches of others
    assert found.ruling.pool.cache.layers
    assert found.weights_bytes_per_gpu == found.ruling.term("weights")


def test_a_cache_that_was_stated_needs_room_beside_the_weights():
    assert held("llama-3.1-8b", "l40s", kv_cache_bytes=20 * GIB).loaded
    assert not held("llama-3.1-8b", "l40s", kv_cache_bytes=40 * GIB).loaded
    assert not held("llama-3.1-70b", "l40s", kv_cache_bytes=GIB).loaded
