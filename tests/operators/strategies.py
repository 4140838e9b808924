"""Random small parts of every kind; everything that spreads over heads divides by 4."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from calc.profiles.model import (
    BlockSparseAttention,
    ChannelMixing,
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    DenseFeedForward,
    Experts,
    FeedForward,
    FullAttention,
    GatedDeltaNet,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    NativeSparseAttention,
    RgLru,
    Rwkv,
    SharedExperts,
    ShortConvolution,
    SlidingAttention,
)

BOOL = st.booleans()
SMALL = st.sampled_from([8, 16, 24])
KERNEL = st.integers(2, 5)
HEADS = st.sampled_from([4, 8, 12])


def _heads() -> dict[str, Any]:
    return {
        "num_key_value_heads": st.sampled_from([1, 2, 4]),
        "num_attention_heads": st.sampled_from([4, 8, 16]),
        "head_dim": SMALL,
        "v_head_dim": st.none() | SMALL,
        "q_bias": BOOL,
        "k_bias": BOOL,
        "v_bias": BOOL,
        "o_bias": BOOL,
        "qk_norm": st.sampled_from(["none", "head"]),
        "sinks": BOOL,
    }


def _indexer() -> st.SearchStrategy[Indexer | None]:
    full = st.builds(Indexer, num_heads=st.integers(1, 4), head_dim=st.just(128), topk=st.integers(1, 60))
    return st.none() | full


#: Kind → strategy of its mixers.
MIXERS: dict[str, st.SearchStrategy[Mixer]] = {
    "full": st.builds(FullAttention, **_heads(), output_gate=st.sampled_from(["none", "elementwise", "head"])),
    "sliding": st.builds(SlidingAttention, **_heads(), window=st.integers(1, 90)),
    "chunked": st.builds(ChunkedAttention, **_heads(), chunk=st.integers(1, 90)),
    "cross": st.builds(CrossAttention, **_heads(), source_tokens=st.integers(1, 90), tanh_gate=BOOL),
    "block-sparse": st.builds(
        BlockSparseAttention,
        **_heads(),
        block=st.integers(1, 9),
        topk_blocks=st.integers(1, 9),
        index_heads=st.integers(1, 4),
        index_head_dim=SMALL,
    ),
    "native-sparse": st.builds(
        NativeSparseAttention,
        **_heads(),
        compressed_block=st.integers(1, 9),
        stride=st.integers(1, 9),
        block=st.integers(1, 9),
        selected_blocks=st.integers(1, 9),
        window=st.integers(1, 90),
        own_keys=BOOL,
        compressor_parameters=st.sampled_from([0, 640]),
    ),
    "latent": st.builds(
        LatentAttention,
        num_attention_heads=HEADS,
        q_lora_rank=st.none() | SMALL,
        kv_lora_rank=st.sampled_from([16, 32, 64]),
        qk_nope_head_dim=SMALL,
        qk_rope_head_dim=st.sampled_from([0, 8]),
        v_head_dim=SMALL,
        output_gate=st.sampled_from(["none", "elementwise", "head"]),
        indexer=_indexer(),
        window=st.none() | st.integers(1, 90),
    ),
    "compressed": st.builds(
        CompressedAttention,
        num_attention_heads=st.sampled_from([4, 8]),
        head_dim=SMALL,
        rotary_dim=st.just(8),
        query_rank=SMALL,
        output_rank=SMALL,
        output_groups=st.just(4),
        window=st.integers(1, 90),
        ratio=st.integers(0, 8),
        indexer=st.none(),
    )
    | st.builds(
        CompressedAttention,
        num_attention_heads=st.sampled_from([4, 8]),
        head_dim=SMALL,
        rotary_dim=st.just(8),
        query_rank=SMALL,
        output_rank=SMALL,
        output_groups=st.just(4),
        window=st.integers(1, 90),
        ratio=st.just(4),
        indexer=_indexer(),
    ),
    "mamba1": st.builds(
        Mamba1,
        inner_size=st.sampled_from([16, 32]),
        state_size=SMALL,
        dt_rank=SMALL,
        conv_kernel=KERNEL,
        conv_bias=BOOL,
        projection_bias=BOOL,
        parameter_norms=BOOL,
    ),
    "mamba2": st.builds(
        Mamba2,
        num_heads=st.sampled_from([4, 8]),
        head_dim=SMALL,
        state_size=SMALL,
        num_groups=st.sampled_from([1, 2, 4]),
        conv_kernel=KERNEL,
        chunk=st.just(32),
        gated_norm=BOOL,
        projection_bias=BOOL,
    ),
    "gated-delta-net": st.builds(
        GatedDeltaNet,
        num_key_heads=st.just(4),
        num_value_heads=st.sampled_from([4, 8]),
        key_head_dim=SMALL,
        value_head_dim=SMALL,
        conv_kernel=KERNEL,
        chunk=st.just(32),
        separate_gates=BOOL,
    ),
    "kda": st.builds(
        KimiDeltaAttention,
        num_heads=st.sampled_from([4, 8]),
        head_dim=SMALL,
        conv_kernel=KERNEL,
        chunk=st.just(32),
        decay_gate_rank=st.none() | SMALL,
        output_gate_rank=st.none() | SMALL,
    ),
    "lightning": st.builds(LightningAttention, num_heads=st.sampled_from([4, 8]), head_dim=SMALL, chunk=st.just(32)),
    "rwkv": st.builds(
        Rwkv,
        version=st.sampled_from([5, 6, 7]),
        attention_size=st.just(64),
        head_dim=st.sampled_from([8, 16]),
        low_rank_parameters=st.sampled_from([0, 640, 641]),
        chunk=st.just(32),
    ),
    "rg-lru": st.builds(RgLru, width=st.sampled_from([32, 64]), num_heads=st.sampled_from([4, 8]), conv_kernel=KERNEL),
    "short-conv": st.builds(ShortConvolution, conv_kernel=KERNEL, bias=BOOL),
}

#: Kind → strategy of its feed-forward parts.
PARTS: dict[str, st.SearchStrategy[FeedForward]] = {
    "dense": st.builds(DenseFeedForward, intermediate_size=st.sampled_from([32, 64]), gated=BOOL, bias=BOOL, scalars=st.just(0)),
    "rwkv-channel-mixing": st.builds(ChannelMixing, intermediate_size=st.sampled_from([32, 64]), receptance=BOOL),
    "experts": st.builds(
        Experts,
        num_experts=st.sampled_from([4, 8, 16]),
        num_experts_per_token=st.integers(1, 4),
        intermediate_size=st.sampled_from([8, 32]),
        gated=BOOL,
        bias=BOOL,
        router_bias=BOOL,
        correction_bias=BOOL,
        zero_experts=st.sampled_from([0, 4]),
        latent_size=st.none() | SMALL,
        shared=st.none() | st.builds(SharedExperts, intermediate_size=st.just(32), gated=BOOL, gate=BOOL),
    ),
}
