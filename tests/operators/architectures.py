"""Published models as Python structs, written from their configurations: geometry for golden values and published totals."""

from __future__ import annotations

from calc.profiles.model import (
    Block,
    ChannelMixing,
    ChunkedAttention,
    CompressedAttention,
    DenseFeedForward,
    Experts,
    Extra,
    FullAttention,
    GatedDeltaNet,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LayerKind,
    LightningAttention,
    Mamba1,
    Mamba2,
    ModelProfile,
    NextTokenLayers,
    Norm,
    RgLru,
    Rwkv,
    SharedExperts,
    ShortConvolution,
    SlidingAttention,
    Storage,
)
from tests.operators.builders import model, uniform


def llama(layers: int, hidden: int, heads: int, kv_heads: int, width: int, vocabulary: int = 128256) -> ModelProfile:
    mixer = FullAttention(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=128)
    return uniform(hidden, vocabulary, layers, [mixer], [DenseFeedForward(intermediate_size=width)])


LLAMA_8B = llama(32, 4096, 32, 8, 14336)
LLAMA_70B = llama(80, 8192, 64, 8, 28672)
LLAMA_405B = llama(126, 16384, 128, 8, 53248)
QWEN25_72B = llama(80, 8192, 64, 8, 29568, 152064)
MHA_32 = llama(32, 4096, 32, 32, 11008)
TOY = uniform(
    4096,
    None,
    32,
    [FullAttention(num_attention_heads=32, num_key_value_heads=32, head_dim=128)],
    [DenseFeedForward(intermediate_size=16384, gated=False)],
    final_norm=False,
    storage=Storage(dtype="fp16"),
)

MIXTRAL = uniform(
    4096,
    32000,
    32,
    [FullAttention(num_attention_heads=32, num_key_value_heads=8, head_dim=128)],
    [Experts(num_experts=8, num_experts_per_token=2, intermediate_size=14336)],
)

DEEPSEEK_V3_ATTENTION = LatentAttention(
    num_attention_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
)
DEEPSEEK_V32_ATTENTION = LatentAttention(
    num_attention_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    indexer=Indexer(num_heads=64, head_dim=128, topk=2048),
)
DEEPSEEK_EXPERTS = Experts(
    num_experts=256,
    num_experts_per_token=8,
    intermediate_size=2048,
    correction_bias=True,
    shared=SharedExperts(intermediate_size=2048),
)


def deepseek(attention: LatentAttention) -> ModelProfile:
    kinds = {
        "dense": LayerKind(mixers=[attention], feed_forwards=[DenseFeedForward(intermediate_size=18432)]),
        "moe": LayerKind(mixers=[attention], feed_forwards=[DEEPSEEK_EXPERTS]),
    }
    return model(7168, 129280, kinds, [Block(repeat=3, layers=["dense"]), Block(repeat=58, layers=["moe"])])


DEEPSEEK_V3 = deepseek(DEEPSEEK_V3_ATTENTION)
DEEPSEEK_V32 = deepseek(DEEPSEEK_V32_ATTENTION)


def gpt_oss(layers: int, experts: int) -> ModelProfile:
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sinks": True}
    bias = {"q_bias": True, "k_bias": True, "v_bias": True, "o_bias": True}
    part = Experts(num_experts=experts, num_experts_per_token=4, intermediate_size=2880, bias=True, router_bias=True)
    kinds = {
        "sliding": LayerKind(mixers=[SlidingAttention(**heads, **bias, window=128)], feed_forwards=[part]),
        "full": LayerKind(mixers=[FullAttention(**heads, **bias)], feed_forwards=[part]),
    }
    storage = Storage(dtype="bf16", roles={"experts": "mxfp4"})
    return model(2880, 201088, kinds, [Block(repeat=layers // 2, layers=["sliding", "full"])], storage=storage)


GPT_OSS_120B = gpt_oss(36, 128)
GPT_OSS_20B = gpt_oss(24, 32)

_gemma = {"num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "qk_norm": "head"}
_gemma_ffn = DenseFeedForward(intermediate_size=21504)
GEMMA3_27B = model(
    5376,
    262208,
    {
        "sliding": LayerKind(mixers=[SlidingAttention(**_gemma, window=1024)], feed_forwards=[_gemma_ffn], norms=4),
        "full": LayerKind(mixers=[FullAttention(**_gemma)], feed_forwards=[_gemma_ffn], norms=4),
    },
    [Block(repeat=10, layers=["sliding"] * 5 + ["full"]), Block(layers=["sliding"] * 2)],
    tie_word_embeddings=True,
)

QWEN3_NEXT_LINEAR = GatedDeltaNet(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
_next_experts = Experts(
    num_experts=512,
    num_experts_per_token=10,
    intermediate_size=512,
    shared=SharedExperts(intermediate_size=512, gate=True),
)
QWEN3_NEXT = model(
    2048,
    151936,
    {
        "linear": LayerKind(mixers=[QWEN3_NEXT_LINEAR], feed_forwards=[_next_experts]),
        "full": LayerKind(
            mixers=[
                FullAttention(
                    num_attention_heads=16,
                    num_key_value_heads=2,
                    head_dim=256,
                    qk_norm="head",
                    output_gate="elementwise",
                    rotary_dim=64,
                )
            ],
            feed_forwards=[_next_experts],
        ),
    },
    [Block(repeat=12, layers=["linear", "linear", "linear", "full"])],
)
QWEN35_08B_LINEAR = GatedDeltaNet(num_key_heads=16, num_value_heads=16, key_head_dim=128, value_head_dim=128, conv_kernel=4)

KIMI_LINEAR_KDA = KimiDeltaAttention(num_heads=32, head_dim=128, conv_kernel=4, decay_gate_rank=128, output_gate_rank=128)
KIMI_LINEAR_MLA = LatentAttention(
    num_attention_heads=32, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
)


def kimi_linear() -> ModelProfile:
    experts = Experts(
        num_experts=256,
        num_experts_per_token=8,
        intermediate_size=1024,
        correction_bias=True,
        shared=SharedExperts(intermediate_size=1024),
    )
    dense = DenseFeedForward(intermediate_size=9216)
    kinds = {
        "first": LayerKind(mixers=[KIMI_LINEAR_KDA], feed_forwards=[dense]),
        "kda": LayerKind(mixers=[KIMI_LINEAR_KDA], feed_forwards=[experts]),
        "mla": LayerKind(mixers=[KIMI_LINEAR_MLA], feed_forwards=[experts]),
    }
    names = ["first"] + ["mla" if i in (4, 8, 12, 16, 20, 24, 27) else "kda" for i in range(2, 28)]
    return model(2304, 163840, kinds, [Block(layers=names)])


def jamba() -> ModelProfile:
    mamba = Mamba1(inner_size=8192, state_size=16, dt_rank=256, conv_kernel=4, parameter_norms=True)
    attention = FullAttention(num_attention_heads=32, num_key_value_heads=8, head_dim=128, positions="none")
    dense = DenseFeedForward(intermediate_size=14336)
    experts = Experts(num_experts=16, num_experts_per_token=2, intermediate_size=14336)
    kinds = {
        f"{mixer_name}-{part_name}": LayerKind(mixers=[mixer], feed_forwards=[part])
        for mixer_name, mixer in (("mamba", mamba), ("full", attention))
        for part_name, part in (("dense", dense), ("moe", experts))
    }
    names = [f"{'full' if i % 8 == 4 else 'mamba'}-{'moe' if i % 2 else 'dense'}" for i in range(32)]
    return model(4096, 65536, kinds, [Block(layers=names)])


MAMBA1_28B_MIXER = Mamba1(inner_size=5120, state_size=16, dt_rank=160, conv_kernel=4)
MAMBA2_27B_MIXER = Mamba2(num_heads=80, head_dim=64, state_size=128, num_groups=1, conv_kernel=4)


def mamba_28b() -> ModelProfile:
    return uniform(2560, 50280, 64, [MAMBA1_28B_MIXER], [], norms=1, tie_word_embeddings=True)


def mamba_codestral() -> ModelProfile:
    mixer = Mamba2(num_heads=128, head_dim=64, state_size=128, num_groups=8, conv_kernel=4)
    return uniform(4096, 32768, 64, [mixer], [], norms=1)


LIGHTNING = LightningAttention(num_heads=64, head_dim=128)


def minimax_01() -> ModelProfile:
    attention = FullAttention(num_attention_heads=64, num_key_value_heads=8, head_dim=128, rotary_dim=64)
    experts = Experts(num_experts=32, num_experts_per_token=2, intermediate_size=9216)
    kinds = {
        "lightning": LayerKind(mixers=[LIGHTNING], feed_forwards=[experts]),
        "full": LayerKind(mixers=[attention], feed_forwards=[experts]),
    }
    return model(6144, 200064, kinds, [Block(repeat=10, layers=["lightning"] * 7 + ["full"])])


def rwkv7(layers: int, hidden: int, decay: int, rate: int, residual: int, gate: int) -> ModelProfile:
    """RWKV-7: the first layer has no value residual; one more LayerNorm before the first layer, one at the end."""
    ranks, values = 2 * hidden * (decay + rate + gate), 2 * hidden * residual + hidden
    mixing = ChannelMixing(intermediate_size=4 * hidden, receptance=False, mix_vectors=1)

    def kind(low_rank: int) -> LayerKind:
        mixer = Rwkv(version=7, attention_size=hidden, head_dim=64, low_rank_parameters=low_rank)
        return LayerKind(mixers=[mixer], feed_forwards=[mixing])

    kinds = {"first": kind(ranks), "rest": kind(ranks + values)}
    return model(
        hidden,
        65536,
        kinds,
        [Block(layers=["first"]), Block(repeat=layers - 1, layers=["rest"])],
        norm=Norm(kind="layer", bias=True),
        embedding_norm=True,
    )


RECURRENT_GEMMA_9B_UNIT = RgLru(width=4096, num_heads=16, conv_kernel=4)


def recurrent_gemma_2b() -> ModelProfile:
    attention = SlidingAttention(
        num_attention_heads=10, num_key_value_heads=1, head_dim=256, window=2048, rotary_dim=128, o_bias=True
    )
    ffn = DenseFeedForward(intermediate_size=7680, bias=True)
    kinds = {
        "recurrent": LayerKind(mixers=[RgLru(width=2560, num_heads=10, conv_kernel=4)], feed_forwards=[ffn]),
        "attention": LayerKind(mixers=[attention], feed_forwards=[ffn]),
    }
    stack = [Block(repeat=8, layers=["recurrent", "recurrent", "attention"]), Block(layers=["recurrent"] * 2)]
    return model(2560, 256000, kinds, stack, tie_word_embeddings=True)


def lfm2() -> ModelProfile:
    ffn = DenseFeedForward(intermediate_size=8192)
    attention = FullAttention(num_attention_heads=32, num_key_value_heads=8, head_dim=64, qk_norm="head")
    kinds = {
        "conv": LayerKind(mixers=[ShortConvolution(conv_kernel=3)], feed_forwards=[ffn]),
        "full": LayerKind(mixers=[attention], feed_forwards=[ffn]),
    }
    names = ["full" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)]
    return model(2048, 65536, kinds, [Block(layers=names)], tie_word_embeddings=True)


def glm_5() -> ModelProfile:
    attention = LatentAttention(
        num_attention_heads=64,
        q_lora_rank=2048,
        kv_lora_rank=512,
        qk_nope_head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=256,
        indexer=Indexer(num_heads=32, head_dim=128, topk=2048),
    )
    kinds = {
        "dense": LayerKind(mixers=[attention], feed_forwards=[DenseFeedForward(intermediate_size=12288)]),
        "moe": LayerKind(mixers=[attention], feed_forwards=[DEEPSEEK_EXPERTS]),
    }
    joins = [
        Extra(name="joining projection", elements=2 * 6144**2, kind="matrix"),
        Extra(name="joining norms", elements=3 * 6144, kind="vector"),
    ]
    following = NextTokenLayers(count=1, layers=["moe"], extras=joins)
    stack = [Block(repeat=3, layers=["dense"]), Block(repeat=75, layers=["moe"])]
    return model(6144, 154880, kinds, stack, next_token_layers=following)


def olmo_hybrid() -> ModelProfile:
    linear = GatedDeltaNet(num_key_heads=30, num_value_heads=30, key_head_dim=96, value_head_dim=192, conv_kernel=4)
    full = FullAttention(num_attention_heads=30, num_key_value_heads=30, head_dim=128, qk_norm="projection")
    ffn = DenseFeedForward(intermediate_size=11008)
    kinds = {
        "linear": LayerKind(mixers=[linear], feed_forwards=[ffn]),
        "full": LayerKind(mixers=[full], feed_forwards=[ffn]),
    }
    return model(3840, 100352, kinds, [Block(repeat=8, layers=["linear", "linear", "linear", "full"])])


def qwen15_moe() -> ModelProfile:
    attention = FullAttention(num_attention_heads=16, num_key_value_heads=16, head_dim=128, q_bias=True, k_bias=True, v_bias=True)
    experts = Experts(
        num_experts=60,
        num_experts_per_token=4,
        intermediate_size=1408,
        shared=SharedExperts(intermediate_size=5632, gate=True),
    )
    return uniform(2048, 151936, 24, [attention], [experts])


def deepseek_v4_mixer(ratio: int) -> CompressedAttention:
    """DeepSeek-V4-Flash: ratio 0 is window only."""
    return CompressedAttention(
        num_attention_heads=64,
        head_dim=512,
        rotary_dim=64,
        query_rank=1024,
        output_rank=1024,
        output_groups=8,
        window=128,
        ratio=ratio,
        indexer=Indexer(num_heads=64, head_dim=128, topk=512) if ratio == 4 else None,
    )


def llama4_scout() -> ModelProfile:
    heads = {"num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128}
    part = Experts(num_experts=16, num_experts_per_token=1, intermediate_size=8192, shared=SharedExperts(intermediate_size=8192))
    kinds = {
        "chunked": LayerKind(mixers=[ChunkedAttention(**heads, chunk=8192)], feed_forwards=[part]),
        "full": LayerKind(mixers=[FullAttention(**heads, positions="none")], feed_forwards=[part]),
    }
    return model(5120, 202048, kinds, [Block(repeat=12, layers=["chunked", "chunked", "chunked", "full"])])


def nemotron_3_super() -> ModelProfile:
    """Latent experts without gates, Mamba-2 and a few attention layers; one norm per layer, no next-token layers."""
    mamba = Mamba2(num_heads=128, head_dim=64, state_size=128, num_groups=8, conv_kernel=4, chunk=128)
    attention = FullAttention(num_attention_heads=32, num_key_value_heads=2, head_dim=128)
    experts = Experts(
        num_experts=512,
        num_experts_per_token=22,
        intermediate_size=2688,
        gated=False,
        correction_bias=True,
        latent_size=1024,
        shared=SharedExperts(intermediate_size=5376, gated=False),
    )
    kinds = {
        "m": LayerKind(mixers=[mamba], norms=1),
        "e": LayerKind(feed_forwards=[experts], norms=1),
        "a": LayerKind(mixers=[attention], norms=1),
    }
    stack = [Block(repeat=40, layers=["m", "e"]), Block(repeat=8, layers=["a"])]
    return model(4096, 131072, kinds, stack)
