"""Golden values 7.2 to 7.6: FLOP, weights, distinct experts, intensities and critical points, from the operator list."""

from __future__ import annotations

import pytest

from calc.operators import work
from calc.operators.fusion import FUSED
from calc.operators.latent_attention import pair_flops
from calc.operators.numbers import plan
from calc.operators.parameters import count_parameters
from calc.operators.routing import distinct_experts
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.weight import Weight
from calc.profiles.model import Indexer, ModelProfile
from tests.operators import architectures as known
from tests.operators.builders import BF16, check_golden, context, mixer_operators, operator, step, total

FP16 = plan("fp16", {}, compute="fp16", kv_cache="fp16")
RIDGES = {  # dense TFLOP/s, TB/s
    "h100_sxm.bf16": (989.4, 3.35),
    "h100_sxm.fp8": (1978.9, 3.35),
    "h100_pcie.bf16": (756.5, 2.0),
    "h100_nvl.bf16": (835.5, 3.9),
    "h200.bf16": (989.4, 4.8),
    "a100_80_sxm.bf16": (312.0, 2.039),
    "a100_40.bf16": (312.0, 1.555),
    "b200.bf16": (2250.0, 8.0),
    "mi300x.bf16": (1307.4, 5.3),
    "rtx4090.bf16": (165.2, 1.008),
}


def ridge(name: str) -> float:
    tflops, terabytes = RIDGES[name]
    return tflops / terabytes


@pytest.mark.parametrize("name", RIDGES)
def test_ridge_points(name: str) -> None:
    check_golden(f"ridge.{name}", ridge(name))


def test_toy_prefill() -> None:
    operators = step(known.TOY, work.prefill(4, 1024), FP16)
    linear = [o for o in operators if o.op_class == "gemm"]
    weight_bytes = total(linear, "weight_bytes")
    check_golden("toy.params", weight_bytes / 2)
    check_golden("toy.weights", weight_bytes)
    check_golden("toy.prefill.linear", total(linear, "flops"))
    check_golden("toy.intensity.weights_only", total(linear, "flops") / weight_bytes)
    check_golden("toy.prefill.attn_causal", total(operators, "flops", "attention"))
    # 44 d elements a token: every activation, KV written once, KV read once.
    moved = sum(total(operators, f) for f in ("activation_bytes", "kv_read_bytes", "kv_write_bytes"))
    check_golden("toy.act_bytes.44d", moved)
    check_golden("toy.intensity.honest", total(operators, "flops") / (moved + weight_bytes))


def test_toy_prefill_with_fused_elementwise_operators() -> None:
    operators = step_operators(known.TOY, Sharding(), FP16, work.prefill(4, 1024), FUSED)
    moved = total(operators, "bytes") - total([o for o in operators if o.op_class == "norm"], "weight_bytes")
    check_golden("toy.intensity.gemm_attn_io_only", total(operators, "flops") / moved)


def test_toy_decode() -> None:
    operators = step(known.TOY, work.decode(4, 1024), FP16)
    linear = [o for o in operators if o.op_class == "gemm"]
    moved = total(linear, "weight_bytes") + total(operators, "kv_read_bytes")
    check_golden("toy.decode.intensity", total(operators, "flops") / moved)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("llama31_8b", known.LLAMA_8B),
        ("llama31_70b", known.LLAMA_70B),
        ("llama31_405b", known.LLAMA_405B),
        ("mixtral_8x7b", known.MIXTRAL),
        ("gpt_oss_120b", known.GPT_OSS_120B),
        ("qwen3_next_80b", known.QWEN3_NEXT),
        ("gemma3_27b.text", known.GEMMA3_27B),
        ("deepseek_v3", known.DEEPSEEK_V3),
    ],
)
def test_parameter_totals(name: str, profile: ModelProfile) -> None:
    check_golden(f"params.{name}", count_parameters(profile).total)


def test_active_parameters() -> None:
    check_golden("params.mixtral_8x7b.active", count_parameters(known.MIXTRAL).active)
    check_golden("params.deepseek_v3.active", count_parameters(known.DEEPSEEK_V3).active)


def test_weight_bytes_of_quantised_checkpoints() -> None:
    mxfp4 = plan("bf16", {"experts": "mxfp4"}, compute="bf16")
    for name, profile in (("120b", known.GPT_OSS_120B), ("20b", known.GPT_OSS_20B)):
        # The published files keep the biases of the experts in 16 bit.
        check_golden(f"weights.gpt_oss_{name}.mxfp4", count_parameters(profile, mxfp4).weights_bytes)
    awq = plan("bf16", {}, compute="bf16", quantization="awq")
    check_golden("weights.llama_70b.awq_g128", count_parameters(known.LLAMA_70B, awq).weights_bytes)


@pytest.mark.parametrize(
    ("name", "experts", "per_token"),
    [("mixtral", 8, 2), ("gpt_oss_120b", 128, 4), ("deepseek_v3", 256, 8), ("qwen3_next", 512, 10)],
)
def test_distinct_experts(name: str, experts: int, per_token: int) -> None:
    for tokens in (1, 8, 32, 128):
        check_golden(f"moe.distinct.{name}.T{tokens}", distinct_experts(experts, per_token, tokens))


@pytest.mark.parametrize("skew", ["0.5", "1.0", "1.5"])
def test_distinct_experts_under_skew(skew: str) -> None:
    check_golden(f"moe.distinct.skew.gpt_oss_120b.T16.z{skew}", distinct_experts(128, 4, 16, float(skew)))


def streamed(profile: ModelProfile, tokens: int) -> float:
    """Weight bytes that a decode step reads, without the router's and norms' vectors kept apart by the golden values."""
    return total(step(profile, work.decode(tokens, 1024)), "weight_bytes")


def test_mixtral_weights_per_decode_step() -> None:
    check_golden("moe.decode.mixtral.weight_bytes.T8", streamed(known.MIXTRAL, 8))


def critical_tokens(ridge_point: float, flops: float, weight_bytes: float) -> float:
    """Tokens at which a matrix is as long in arithmetic as in reading its weights."""
    return ridge_point * weight_bytes / flops


def test_critical_batch() -> None:
    matrix = Weight("up_proj", "feed_forward", 8192, 28672)
    for name, quantization, point in (("bf16", None, "h100_sxm.bf16"), ("w4a16", "awq", "h100_sxm.bf16")):
        one = context(work.decode(1, 1), 8192, numbers=plan("bf16", {}, compute="bf16", quantization=quantization)).linear(matrix)
        check_golden(f"crit.batch.{name}.h100", critical_tokens(ridge(point), one.flops, one.weight_bytes))
    eight = plan("bf16", {}, compute="bf16", quantization="fp8", low_precision=frozenset({"fp8"}))
    one = context(work.decode(1, 1), 8192, numbers=eight).linear(matrix)
    assert one.compute_dtype == "fp8"
    check_golden("crit.batch.fp8.h100", critical_tokens(ridge("h100_sxm.fp8"), one.flops, one.weight_bytes))


def test_critical_batch_with_activations() -> None:
    """The smallest T whose intensity, activations included, reaches the ridge: T flops = ridge (weights + T moved)."""
    one = context(work.decode(1, 1), 8192).linear(Weight("up_proj", "feed_forward", 8192, 28672))
    point = ridge("h100_sxm.bf16")
    check_golden("crit.batch.bf16.h100.exact_ffn70b", point * one.weight_bytes / (one.flops - point * one.activation_bytes))


def test_critical_batch_of_experts() -> None:
    """With every expert read, E / k times as many tokens as for a dense matrix."""
    for name, profile, quantization, point in (
        ("mixtral.bf16", known.MIXTRAL, None, "h100_sxm.bf16"),
        ("deepseek_v3.fp8", known.DEEPSEEK_V3, "fp8", "h100_sxm.fp8"),
    ):
        numbers = plan("bf16", {}, compute="bf16", quantization=quantization)
        tokens = 1_000_000
        grouped = operator(step(profile, work.decode(tokens, 1), numbers), "experts_gate_up_proj")
        check_golden(f"crit.batch.{name}", tokens * ridge(point) * grouped.weight_bytes / grouped.flops)


def test_critical_context() -> None:
    """The context at which one sequence's KV takes as long to read as the weights."""
    for name, profile in (("llama_70b.bf16.b1", known.LLAMA_70B), ("llama_8b.bf16.b1", known.LLAMA_8B)):
        operators = step(profile, work.decode(1, 1000))
        check_golden(f"crit.ctx.{name}", total(operators, "weight_bytes") / (total(operators, "kv_read_bytes") / 1000))


def test_context_beyond_which_decode_is_never_compute_bound() -> None:
    """Per sequence: the time of the linear FLOP against that of reading its own KV (attention's FLOP, 3 % of it, left out)."""
    operators = step(known.LLAMA_70B, work.decode(1, 1000))
    linear = total([o for o in operators if o.op_class == "gemm"], "flops")
    kv_bytes = total(operators, "kv_read_bytes") / 1000
    check_golden("crit.ctx_inf.llama_70b.h100", linear / (ridge("h100_sxm.bf16") * kv_bytes))


def test_latent_attention_costs() -> None:
    row, naive, absorbed = pair_flops(known.DEEPSEEK_V3_ATTENTION, 128)
    check_golden("mla.pair.naive", naive)
    check_golden("mla.pair.absorbed", absorbed)
    check_golden("mla.breakeven.new_tokens", row / (absorbed - naive))


@pytest.mark.parametrize("tensor", [1, 8])
def test_absorbed_intensity(tensor: int) -> None:
    core = operator(mixer_operators(known.DEEPSEEK_V3_ATTENTION, work.decode(3, 5000), tensor=tensor), "attention")
    check_golden(f"mla.absorbed.intensity.tp{tensor}", core.flops / core.kv_read_bytes)


def test_indexer_cost_per_key() -> None:
    score = operator(mixer_operators(known.DEEPSEEK_V32_ATTENTION, work.decode(1, 1000)), "index_score")
    check_golden("dsa.indexer.flop_per_key", (score.flops + score.vector_flops) / 1000)


def test_indexer_figures_at_long_context() -> None:
    """Per token and layer at 131,072: indexer 2.164 GFLOP, main 0.570 GFLOP; 17.30 MB of index keys, 1.343 MB of packed rows."""
    numbers = plan("bf16", {}, compute="bf16", kv_cache="fp8-ds-mla", low_precision=frozenset({"fp8"}))
    operators = mixer_operators(known.DEEPSEEK_V32_ATTENTION, work.decode(1, 131072), numbers=numbers)
    score, core = operator(operators, "index_score"), operator(operators, "attention")
    assert score.compute_dtype == "fp8"
    assert (score.flops + score.vector_flops, core.flops) == (2_164_260_864, 570_425_344)
    assert (score.kv_read_bytes, core.kv_read_bytes) == (17_301_504, 1_343_488)
    dense = operator(mixer_operators(known.DEEPSEEK_V3_ATTENTION, work.decode(1, 131072)), "attention")
    assert (dense.flops, dense.kv_read_bytes) == (36_507_222_016, 150_994_944)


def test_indexer_equals_main_attention_at_34816_tokens() -> None:
    indexer = known.DEEPSEEK_V32_ATTENTION.indexer or Indexer(num_heads=1, head_dim=1, topk=1)
    _, _, absorbed = pair_flops(known.DEEPSEEK_V32_ATTENTION, 128)
    assert indexer.topk * absorbed / (2 * indexer.num_heads * indexer.head_dim) == 34816


def test_sixteen_bit_weights_of_the_8b_model() -> None:
    assert count_parameters(known.LLAMA_8B, BF16).weights_bytes == 2 * 8_030_261_248
