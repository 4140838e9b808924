"""A model of many kinds of layers at tiny sizes: between them its operators need every kernel that operators can need."""

from __future__ import annotations

from calc.profiles.model import (
    Block,
    BlockSparseAttention,
    ChannelMixing,
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    DenseFeedForward,
    Experts,
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
    RgLru,
    Rwkv,
    SharedExperts,
    ShortConvolution,
    SlidingAttention,
)
from tests.measure.simulated_device import tiny_model

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
PLAIN = DenseFeedForward(intermediate_size=96, gated=False)
EXPERTS = Experts(
    num_experts=8, num_experts_per_token=2, intermediate_size=48, shared=SharedExperts(intermediate_size=64, gate=True)
)
ZERO_EXPERTS = Experts(num_experts=6, num_experts_per_token=3, intermediate_size=48, zero_experts=2, gated=False)
INDEXER = Indexer(num_heads=3, head_dim=32, topk=24)
LATENT = {"num_attention_heads": 4, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
COMPRESSED = {
    "num_attention_heads": 4, "head_dim": 32, "rotary_dim": 16, "query_rank": 48, "output_rank": 24, "output_groups": 2, "window": 20
}  # fmt: skip

_MIXERS = {
    "full": FullAttention(**HEADS, rotary_dim=16),
    "sliding": SlidingAttention(**HEADS, qk_norm="head", window=20),
    "chunked": ChunkedAttention(**HEADS, qk_norm="head", positions="none", chunk=16),
    "cross": CrossAttention(**HEADS, source_tokens=24, qk_norm="head"),
    "blocks": BlockSparseAttention(**HEADS, block=16, topk_blocks=8, index_heads=2, index_head_dim=32),
    "latent": LatentAttention(**LATENT, q_lora_rank=48, indexer=INDEXER),
    "latent-gate": LatentAttention(**LATENT, q_lora_rank=None, output_gate="head"),
    "window": CompressedAttention(**COMPRESSED, ratio=1),
    "compressed": CompressedAttention(**COMPRESSED, ratio=4, indexer=INDEXER),
    "far": CompressedAttention(**COMPRESSED, ratio=8),
    "mamba1": Mamba1(inner_size=96, state_size=8, dt_rank=12, conv_kernel=4, parameter_norms=True),
    "mamba2": Mamba2(num_heads=4, head_dim=24, state_size=16, num_groups=2, conv_kernel=4, chunk=32),
    "mamba2-gate": Mamba2(num_heads=4, head_dim=24, state_size=16, num_groups=1, conv_kernel=4, gated_norm=False),
    "delta": GatedDeltaNet(num_key_heads=2, num_value_heads=4, key_head_dim=24, value_head_dim=16, conv_kernel=4, chunk=32),
    "kimi": KimiDeltaAttention(num_heads=3, head_dim=32, conv_kernel=4, chunk=32),
    "lightning": LightningAttention(num_heads=3, head_dim=32, chunk=32),
    "rwkv": Rwkv(version=5, attention_size=96, head_dim=32, chunk=32),
    "rg-lru": RgLru(width=96, num_heads=3, conv_kernel=4),
    "short": ShortConvolution(conv_kernel=3),
}
_FEED_FORWARDS = {
    "latent": EXPERTS, "delta": ZERO_EXPERTS, "rwkv": ChannelMixing(intermediate_size=96), "full": PLAIN,
}  # fmt: skip


def many_kinds() -> ModelProfile:
    """One layer of each kind."""
    kinds = {
        name: LayerKind(mixers=[mixer], feed_forwards=[_FEED_FORWARDS[name]] if name in _FEED_FORWARDS else [])
        for name, mixer in _MIXERS.items()
    }
    return tiny_model(hidden_size=96, layer_kinds=kinds, stack=[Block(layers=list(kinds))])
