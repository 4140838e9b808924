"""Every kernel against float32 at tiny shapes, through the very check that a run makes, and a planted wrong one that it must catch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calc.measure import kernels
from calc.measure.cases import Case, workload
from calc.measure.ceilings import candidates, working_sets
from calc.measure.device import DeviceFacts
from calc.measure.grid import Grid
from calc.measure.runner import NotAvailable, OutOfMemory
from calc.measure.torch_runner import TorchRunner
from calc.profiles.model import Block, ChunkedAttention, DenseFeedForward, FullAttention, LayerKind, Norm, SlidingAttention
from tests.measure.simulated_device import PLAN, tiny_model

torch = pytest.importorskip("torch")

FACTS = DeviceFacts("cpu", 0, "CPU", 1 << 34, 1 << 28, 1 << 18, True, 1)
PLAIN = DenseFeedForward(intermediate_size=320, gated=False)


def odd_model():
    """Every kernel that the tiny model lacks: LayerNorm with bias, partial rotary, norms of queries and keys, masks, head sizes apart."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64}
    kinds = {
        "a": LayerKind(mixers=[FullAttention(**heads, rotary_dim=32, v_head_dim=32)], feed_forwards=[PLAIN]),
        "b": LayerKind(mixers=[SlidingAttention(**heads, qk_norm="head", window=20)], feed_forwards=[PLAIN]),
        "c": LayerKind(mixers=[ChunkedAttention(**heads, qk_norm="head", positions="none", chunk=16)], feed_forwards=[PLAIN]),
    }
    return tiny_model(layer_kinds=kinds, stack=[Block(layers=["a", "b", "c"])], norm=Norm(kind="layer", bias=True))


def grouped() -> Case:
    return Case(
        "gemm:o_a_proj", "o_a_proj", "gemm", "decode", "grouped_gemm", {"m": 3, "n": 64, "k": 48, "copies": 4}, "bf16", 1, 1
    )


def experts() -> Case:
    sizes = {"rows": 11, "active": 4, "n": 64, "k": 48}
    return Case("experts:experts_down_proj", "experts_down_proj", "experts", "prefill", "experts", sizes, "bf16", 1, 1)


def absorbed() -> Case:
    sizes = {"b": 2, "q": 1, "kv": 40, "h": 8, "hkv": 1, "d": 72, "dv": 64}
    masks = {"mask": "none", "shared": True}
    return Case("attention:attention", "attention", "attention", "decode", "attention", sizes, "bf16", 1, 1, parameters=masks)


def recurrent() -> list[Case]:
    scan = {"sequences": 2, "heads": 4, "head_dim": 16, "state": 8, "groups": 2, "chunk": 16}
    delta = {"tokens": 2, "sequences": 2, "heads": 3, "key_heads": 3, "key_head_dim": 16, "value_head_dim": 24, "chunk": 8}
    conv = {"tokens": 10, "sequences": 2, "channels": 12, "kernel": 4}

    def case(name: str, kernel: str, shape: dict, **parameters: str) -> Case:
        return Case(f"recurrent:{name}", name, "recurrent", "decode", kernel, shape, "bf16", 1, 1, parameters=parameters)

    return [
        case("ssd_scan", "ssd_scan", {"tokens": 2, **scan}, form="stepwise"),
        case("ssd_scan", "ssd_scan", {"tokens": 96, **scan}, form="chunked"),
        case("gated_delta_rule", "delta_step", delta),
        case("causal_conv1d", "conv1d", conv),
    ]


def all_cases(dtype: str) -> list[Case]:
    sizes = {"batch_size": 2, "input_len": 48, "context_len": 40}
    found = [c for model in (tiny_model(), odd_model()) for c in workload(model, dtype, grid=Grid(composites=True), **sizes).cases]
    found += [c for group in candidates(PLAN, dtype, found).values() for c in group]
    found += [c for group in working_sets((1 << 16,), dtype).values() for c in group]
    return [*found, *(replace(c, dtype=dtype) for c in (grouped(), experts(), absorbed(), *recurrent()))]


@pytest.fixture(scope="module", params=["bf16", "fp16", "fp32"])
def runner(request):
    made = TorchRunner(torch, FACTS, request.param, largest_operand_bytes=8 << 20, deviation=1 / 16, seed=5)
    yield made
    made.close()


def test_every_kernel_agrees_with_float32(runner):
    cases = all_cases(runner.space.dtype)
    assert {c.kernel for c in cases} == set(kernels.BUILDERS)
    for case in cases:
        timed = runner.prepare(case)
        assert timed.check() <= 1, case.id
        timed.begin()
        samples = timed.sample(2, 3)
        timed.end()
        timed.close()
        assert len(samples) == 3
        assert all(s > 0 for s in samples)
        assert timed.setup.kernel
        assert timed.setup.copies == (len(timed.kernel.calls) if timed.kernel.operand_bytes else 0)


def test_the_masks_are_the_ones_asked_for(runner):
    attention = [c for c in all_cases(runner.space.dtype) if c.kernel == "attention"]
    assert {c.parameters["mask"] for c in attention} == {"none", "causal", "window", "chunk"}
    windowed = next(c for c in attention if c.parameters["mask"] == "window")
    kernel = runner.prepare(windowed).kernel
    unmasked = replace(windowed, parameters={"mask": "none"})
    other = runner.prepare(unmasked).kernel
    wrong = kernels.Kernel(other.calls, lambda: (other.compare()[0], kernel.compare()[1]), "")
    assert kernels.deviation(wrong, runner.space.dtype) > 1


def test_a_wrong_kernel_is_caught(runner):
    case = next(c for c in all_cases(runner.space.dtype) if c.kernel == "gemm")
    timed = runner.prepare(case)
    right = timed.kernel.compare
    timed.kernel.compare = lambda: (right()[0] * 1.2, right()[1])
    assert timed.check() > 1


def test_operands_stay_within_a_quarter_of_free_memory(runner):
    assert runner.space.arena_bytes <= FACTS.free_bytes // 4
    case = replace(grouped(), kernel="gemm", shape={"m": 1, "n": 1 << 14, "k": 1 << 14}, dtype=runner.space.dtype)
    with pytest.raises(OutOfMemory, match="quarter of the free memory"):
        runner.prepare(case)
    with pytest.raises(OutOfMemory, match="activations"):
        runner.prepare(replace(case, shape={"m": 1 << 20, "n": 64, "k": 64}))
    with pytest.raises(NotAvailable):
        runner.prepare(replace(case, kernel="nonsense"))


def test_rotation_goes_on_where_the_last_case_stopped(runner):
    case = next(c for c in all_cases(runner.space.dtype) if c.operation == "gate_up_proj")
    timed = runner.prepare(case)
    operands = len(timed.kernel.calls)
    assert operands * timed.kernel.operand_bytes >= 3 * FACTS.cache_bytes
    assert timed.setup.cache == "cold"
    taken = list(timed.rotation.take(operands + 1))
    assert taken[0] is taken[-1]
    assert len({id(c) for c in taken}) == operands
    timed.rotation.stop()
    other = runner.prepare(case)
    other.rotation.resume()
    assert other.rotation.position == timed.rotation.position == 1


def test_the_thread_count_is_put_back():
    before = torch.get_num_threads()
    made = TorchRunner(torch, replace(FACTS, threads=1), "fp32", largest_operand_bytes=1 << 20, deviation=1.0)
    assert torch.get_num_threads() == 1
    made.close()
    assert torch.get_num_threads() == before
