"""Parameters: published totals to the digit, and tensor lists written out the long way."""

from __future__ import annotations

import pytest

from calc.operators import experts, layer_kinds, parameters, work
from calc.profiles.model import (
    Block,
    BlockSparseAttention,
    ChannelMixing,
    CrossAttention,
    DenseFeedForward,
    Experts,
    FeedForward,
    FullAttention,
    KimiDeltaAttention,
    LatentAttention,
    LayerKind,
    Mamba2,
    Mixer,
    ModelProfile,
    Rwkv,
    SharedExperts,
)
from tests.operators import architectures as known
from tests.operators.builders import BF16, context, model, operator, part_operators, step, total

#: Element totals of published checkpoints (safetensors metadata of the Hugging Face Hub; RWKV-7: arXiv 2503.14456).
PUBLISHED = [
    ("ai21labs/Jamba-v0.1", known.jamba, 51_570_323_328),
    ("state-spaces/mamba-2.8b-hf", known.mamba_28b, 2_768_345_600),
    ("mistralai/Mamba-Codestral-7B-v0.1", known.mamba_codestral, 7_285_403_648),
    ("MiniMaxAI/MiniMax-Text-01", known.minimax_01, 456_089_655_296),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", known.kimi_linear, 49_122_681_728),
    ("google/recurrentgemma-2b-it", known.recurrent_gemma_2b, 2_682_862_080),
    ("LiquidAI/LFM2-1.2B", known.lfm2, 1_170_340_608),
    ("zai-org/GLM-5", known.glm_5, 753_864_139_008),
    ("allenai/Olmo-Hybrid-7B", known.olmo_hybrid, 7_430_870_688),
    ("Qwen/Qwen1.5-MoE-A2.7B", known.qwen15_moe, 14_315_784_192),
    ("RWKV-7 0.1B", lambda: known.rwkv7(12, 768, 64, 64, 32, 128), 191_034_624),
    ("RWKV-7 0.4B", lambda: known.rwkv7(24, 1024, 64, 64, 32, 128), 450_767_872),
    ("RWKV-7 1.5B", lambda: known.rwkv7(24, 2048, 96, 96, 64, 256), 1_527_404_544),
    ("RWKV-7 2.9B", lambda: known.rwkv7(32, 2560, 96, 96, 64, 320), 2_947_735_040),
]


@pytest.mark.parametrize(("name", "build", "expected"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_published_totals(name: str, build: object, expected: int) -> None:
    profile = build()  # type: ignore[operator]
    assert isinstance(profile, ModelProfile)
    assert parameters.count_parameters(profile).total == expected


def test_totals_without_next_token_layers_and_towers() -> None:
    """Published totals less the next-token layer or the vision tower that the profile leaves out."""
    assert parameters.count_parameters(known.nemotron_3_super()).total == 123_611_033_088 - 2_942_325_248
    assert parameters.count_parameters(known.llama4_scout()).total == 108_641_793_536 - 871_932_416
    glm = parameters.count_parameters(known.glm_5())
    assert glm.by_part["next_token_layers"] == 9_952_920_576
    assert glm.text == glm.total - 9_952_920_576


def elements(mixer: Mixer, hidden_size: int) -> int:
    return sum(w.elements for w in layer_kinds.mixer_module(mixer).weights(mixer, hidden_size, 1))


def part_elements(part: FeedForward, hidden_size: int) -> int:
    return sum(w.elements for w in layer_kinds.feed_forward_module(part).weights(part, hidden_size, 1))


def test_deepseek_v4_attention() -> None:
    """All 43 layers of V4-Flash: ratios 0, 0, then 4 and 128 in turn."""
    ratios = [0, 0] + [4, 128] * 20 + [4]
    assert sum(elements(known.deepseek_v4_mixer(r), 4096) for r in ratios) == 5_086_317_888


def test_deepseek_v4_experts_with_hash_router() -> None:
    """Hash layers route by a table of vocabulary x k ids (an extra of the layer) in place of the balancing bias."""
    sizes = {"num_experts": 256, "num_experts_per_token": 6, "intermediate_size": 2048}
    shared = SharedExperts(intermediate_size=2048)
    learned = part_elements(Experts(**sizes, correction_bias=True, shared=shared), 4096)
    hashed = part_elements(Experts(**sizes, router="hash", shared=shared), 4096)
    assert 40 * learned + 3 * (hashed + 129280 * 6) == 278_154_947_072


def test_minimax_m3_index() -> None:
    heads = {"num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "qk_norm": "head"}
    sparse = BlockSparseAttention(**heads, block=128, topk_blocks=16, index_heads=4, index_head_dim=128)
    dense = FullAttention(**heads)
    assert 57 * (elements(sparse, 6144) - elements(dense, 6144)) == 224_147_712
    assert 60 * elements(dense, 6144) == 6_417_300_480


def test_gates_of_kimi_k3_and_ling_3() -> None:
    k3 = KimiDeltaAttention(num_heads=96, head_dim=128, conv_kernel=4, decay_gate_rank=128)
    assert 69 * elements(k3, 7168) == 30_618_086_496
    ling = KimiDeltaAttention(num_heads=32, head_dim=128, conv_kernel=4)
    assert 35 * elements(ling, 2560) == 2_206_746_080
    heads = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    gated = LatentAttention(num_attention_heads=96, q_lora_rank=1536, output_gate="elementwise", **heads)
    assert 24 * elements(gated, 7168) == 5_572_706_304
    by_head = LatentAttention(num_attention_heads=32, q_lora_rank=None, output_gate="head", **heads)
    assert 7 * elements(by_head, 2560) == 223_759_872


def test_zero_computation_experts_are_scored_but_not_held() -> None:
    """LongCat-Flash: 28 mixtures of 512 experts and 256 that compute nothing."""
    part = Experts(num_experts=512, num_experts_per_token=12, intermediate_size=2048, zero_experts=256, correction_bias=True)
    assert 28 * part_elements(part, 6144) == 541_298_021_376


def test_rwkv_5_world_3b() -> None:
    assert 32 * elements(Rwkv(version=5, attention_size=2560, head_dim=64), 2560) == 1_049_231_360
    assert 32 * part_elements(ChannelMixing(intermediate_size=8960), 2560) == 1_677_885_440


def test_rwkv_6_world_3b() -> None:
    """RWKV-6 World 3B: 3.10B parameters (arXiv 2404.05892), low ranks 32 x 5 for the shift and 64 for the decay."""
    low_rank = 2 * 2560 * 32 * 5 + 2 * 2560 * 64
    mixer = Rwkv(version=6, attention_size=2560, head_dim=64, low_rank_parameters=low_rank)
    mixing = ChannelMixing(intermediate_size=8960)
    layers = 32 * (elements(mixer, 2560) + part_elements(mixing, 2560) + 4 * 2560)
    assert f"{(layers + 2 * 65536 * 2560 + 4 * 2560) / 1e9:.2f}" == "3.10"


def test_cross_attention() -> None:
    """Llama 3.2 Vision: a cross layer holds what a self-attention layer does, two head norms and two gates."""
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    cross = CrossAttention(**heads, source_tokens=6404, qk_norm="head", tanh_gate=True)
    assert 32 * elements(FullAttention(**heads), 4096) + 8 * elements(cross, 4096) == 1_677_723_664


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_mamba2_written_out(groups: int) -> None:
    mixer = Mamba2(num_heads=8, head_dim=16, state_size=32, num_groups=groups, conv_kernel=4, projection_bias=True)
    inner, hidden, mixed = 8 * 16, 96, 2 * groups * 32
    matrices = hidden * inner * 2 + hidden * mixed + hidden * 8 + inner * hidden
    vectors = (inner + mixed) * 5 + 3 * 8 + inner + (2 * inner + mixed + 8) + hidden
    assert elements(mixer, hidden) == matrices + vectors


def test_shared_blocks_are_held_once_and_read_at_every_depth() -> None:
    """Zamba2: nine depths share one attention block; each keeps norms of its own."""
    attention = FullAttention(num_attention_heads=4, num_key_value_heads=4, head_dim=16, input_size=128)
    block = LayerKind(mixers=[attention], feed_forwards=[DenseFeedForward(intermediate_size=96)], shared_weights="a")
    own = LayerKind(mixers=[attention], feed_forwards=[DenseFeedForward(intermediate_size=96)])
    stack = [Block(repeat=9, layers=["block"])]
    sharing, alone = model(64, None, {"block": block}, stack), model(64, None, {"block": own}, stack)
    held = parameters.count_parameters(sharing).total
    one = sum(w.elements for w in layer_kinds.part_weights(block, sharing, 1))
    assert held == one + 9 * 2 * 64 + 64
    assert parameters.count_parameters(alone).total == held + 8 * one
    for figure in ("weight_bytes", "flops", "kv_read_bytes"):
        decode = work.decode(2, 50)
        assert total(step(sharing, decode), figure) == total(step(alone, decode), figure)


@pytest.mark.parametrize("tensor", [2, 4])
def test_expert_parallelism_holds_whole_experts(tensor: int) -> None:
    part = Experts(num_experts=8, num_experts_per_token=2, intermediate_size=32, bias=True)
    kind = LayerKind(feed_forwards=[part])
    profile = model(64, None, {"layer": kind}, [Block(layers=["layer"])])
    whole = {w.name: w for w in layer_kinds.part_weights(kind, profile, 1)}
    for weight in layer_kinds.part_weights(kind, profile, tensor, expert_ranks=tensor):
        if weight.role == "experts":
            assert weight.copies * tensor == 8
            assert tensor * weight.elements == whole[weight.name].elements
        else:
            assert weight == whole[weight.name]


def test_quantised_mixtures_charge_whole_experts() -> None:
    part = Experts(num_experts=8, num_experts_per_token=2, intermediate_size=32)
    up, _ = experts.expert_weights(part, 64, 1)
    grouped = operator(part_operators(part, work.prefill(1, 4000)), "experts_gate_up_proj")
    assert grouped.weight_bytes == pytest.approx(up.bytes(context(work.decode(1, 1)).numbers.weight("experts")), rel=1e-12)
    assert up.bytes(BF16.weight("experts")) == 8 * 64 * 64 * 2
