"""Golden ridge points, critical batches and contexts, step times and collectives."""

from __future__ import annotations

import pytest

import calc
from calc.operators import work
from calc.operators.numbers import NumberPlan, plan
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.timing import network, roofline
from calc.timing.efficiency import load_efficiency
from calc.timing.roofline import Ceilings
from calc.timing.step_time import step_time
from tests.support.golden import check
from tests.support.profiles import BF16, H100, ONE, attention, decoder, llama, named, operators, total

# --- ridge points ---------------------------------------------------------------------------------------------------------

INPUTS = {  # dense TFLOP/s, TB/s
    "ridge.h100_sxm.bf16": (989.4, 3.35),
    "ridge.h100_sxm.fp8": (1978.9, 3.35),
    "ridge.h100_pcie.bf16": (756.5, 2.0),
    "ridge.h100_nvl.bf16": (835.5, 3.9),
    "ridge.h200.bf16": (989.4, 4.8),
    "ridge.a100_80_sxm.bf16": (312.0, 2.039),
    "ridge.a100_40.bf16": (312.0, 1.555),
    "ridge.b200.bf16": (2250.0, 8.0),
    "ridge.mi300x.bf16": (1307.4, 5.3),
    "ridge.rtx4090.bf16": (165.2, 1.008),
}


@pytest.mark.parametrize("identifier", INPUTS)
def test_ridge_point_is_peak_over_bandwidth(identifier):
    tflops, terabytes = INPUTS[identifier]
    check(identifier, Ceilings("named inputs", {"bf16": tflops * 1e12}, terabytes * 1e12).ridge_point("bf16"))


@pytest.mark.parametrize(
    ("identifier", "hardware", "dtype"),
    [
        ("ridge.h100_sxm.bf16", "h100-sxm5-80gb", "bf16"),
        ("ridge.h100_sxm.fp8", "h100-sxm5-80gb", "fp8"),
        ("ridge.a100_80_sxm.bf16", "a100-sxm4-80gb", "bf16"),
        ("ridge.a100_40.bf16", "a100-sxm4-40gb", "bf16"),
        ("ridge.mi300x.bf16", "mi300x", "bf16"),
        ("ridge.rtx4090.bf16", "rtx-4090", "bf16"),
    ],
)
def test_shipped_profile_has_the_golden_ridge_point(identifier, hardware, dtype):
    check(identifier, roofline.datasheet(calc.load_hardware(hardware).profile).ridge_point(dtype))


# --- critical batch: where the matrix product turns from memory-bound to compute-bound -----------------------------------------


def gemm(numbers: NumberPlan, tokens: int, hidden: int = 8192, width: int = 28672) -> Operator:
    """A down projection of Llama 70B with ``tokens`` rows."""
    model = decoder(hidden=hidden, layers=1, mixers=attention(64, 8, 128), width=width, vocab=None)
    return named(operators(model, work.prefill(1, tokens), ONE, numbers), "down_proj")


def critical_tokens(numbers: NumberPlan) -> float:
    """Rows at which the floor's compute time equals its memory time."""
    bounds = roofline.floor(gemm(numbers, 1), H100)
    return bounds.memory_s / bounds.compute_s


@pytest.mark.parametrize(
    ("identifier", "numbers"),
    [
        ("crit.batch.bf16.h100", BF16),
        ("crit.batch.w4a16.h100", plan("bf16", {}, compute="bf16", quantization="awq")),
        ("crit.batch.fp8.h100", plan("bf16", {}, compute="bf16", quantization="fp8", low_precision=frozenset({"fp8"}))),
    ],
)
def test_critical_batch(identifier, numbers):
    tokens = critical_tokens(numbers)
    check(identifier, tokens)
    assert roofline.floor(gemm(numbers, int(tokens)), H100).bound == "memory"
    assert roofline.floor(gemm(numbers, int(tokens) + 1), H100).bound == "compute"


def test_critical_batch_with_activation_bytes():
    one, two = (roofline.honest(gemm(BF16, t), H100) for t in (1, 2))
    per_token = two.memory_s - one.memory_s
    check("crit.batch.bf16.h100.exact_ffn70b", (one.memory_s - per_token) / (one.compute_s - per_token))


# --- critical context -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("identifier", "size"), [("crit.ctx.llama_70b.bf16.b1", "70b"), ("crit.ctx.llama_8b.bf16.b1", "8b")])
def test_context_at_which_kv_bytes_equal_weight_bytes(identifier, size):
    one, two = (operators(llama(size), work.decode(1, c)) for c in (1000, 1001))
    check(identifier, total(one, "weight_bytes") / (total(two, "kv_read_bytes") - total(one, "kv_read_bytes")))


def test_context_above_which_decode_is_memory_bound_at_any_batch():
    one, two = (operators(llama("70b"), work.decode(1, c)) for c in (1, 2))
    kv = total(two, "kv_read_bytes") - total(one, "kv_read_bytes")
    check("crit.ctx_inf.llama_70b.h100", total(one, "flops", "gemm") / H100.peaks["bf16"] * H100.bandwidth / kv)


# --- step times ---------------------------------------------------------------------------------------------------------------


def timed(step: work.Work, size: str = "8b"):
    return step_time(operators(llama(size), step), H100, load_efficiency())


@pytest.mark.parametrize(
    ("identifier", "batch", "context"),
    [
        ("time.decode.llama_8b.h100.b1c1024", 1, 1024),
        ("time.decode.llama_8b.h100.b32c4096", 32, 4096),
        ("time.decode.llama_8b.h100.b512c512.sum", 512, 512),
    ],
)
def test_decode_floor_is_the_sum_of_operator_maxima(identifier, batch, context):
    check(identifier, timed(work.decode(batch, context)).time_s.floor * 1e3)


def test_overlapped_floor_is_the_maximum_of_sums():
    check("time.decode.llama_8b.h100.b512c512.max", timed(work.decode(512, 512)).floor_overlapped_s * 1e3)


def test_mixed_step_adds_prefill_and_decode_attention():
    step = work.mixed(work.prefill(1, 1984), work.decode(64, 2048))
    assert step.tokens == 2048
    check("time.mixed.llama_8b.h100", timed(step).time_s.floor * 1e3)


def test_public_estimate_gives_the_golden_decode_floor():
    answer = calc.estimate("llama-3.1-8b", "h100-sxm5-80gb", batch_size=32, context_len=4096)
    check("time.decode.llama_8b.h100.b32c4096", answer.decode.time_s.floor * 1e3)


# --- collectives ----------------------------------------------------------------------------------------------------------------


def test_all_reduces_of_llama_70b_on_eight_ranks():
    found = operators(llama("70b"), work.decode(64, 1024), Sharding(tensor=8))
    layers = [o for o in found if o.collective and o.collective.kind == "all-reduce" and o.layers != "model"]
    assert sum(o.count for o in layers) == 160
    assert {o.collective.message_bytes for o in layers} == {1 << 20}
    for operator in layers:
        check("comm.allreduce.70b.b64.tp8.bytes", operator.network_bytes)
    wires = network.Link("450 GB/s", 450e9)
    check("comm.allreduce.70b.b64.tp8.step_ms", sum(o.count * network.transfer_s(o.collective, wires) for o in layers) * 1e3)
