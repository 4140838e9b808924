"""Attention and Mamba in one stack: Jamba, Bamba, Granite 4, Falcon-H1, Nemotron-H, Zamba2."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, stack_of
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, bias, full, geometry
from calc.profiles.importers.mechanisms.decoder import Family, model
from calc.profiles.importers.mechanisms.feed_forward import experts, gated, shared_by_width
from calc.profiles.importers.mechanisms.patterns import indices, layer_words
from calc.profiles.importers.mechanisms.recurrent import mamba1, mamba2
from calc.profiles.model import Extra, FeedForward, LayerKind

_TYPES = ("full", "mamba", "linear")  # newer files call every recurrent layer linear attention


def jamba(c: Config) -> Draft:
    """Attention and experts each by period and offset; norms on dt, B and C; no positions."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    mixer = mamba1(c, hidden, inner=(), parameter_norms=True)
    attention = full(geometry(c, positions="none"))
    period, offset = c.integer("attn_layer_period", default=8), c.count("attn_layer_offset", default=4)
    every, first = c.integer("expert_layer_period", default=2), c.count("expert_layer_offset", default=1)
    dense = gated(c)
    routed: FeedForward = experts(c, width=("intermediate_size",)) if c.integer("num_experts", default=16) > 1 else dense
    listed = ("layers_block_type", "layer_types")
    words = layer_words(c, count, lambda i: "full" if i % period == offset else "mamba", keys=listed, allowed=_TYPES)
    layers = stack_of(
        count, lambda i: attention if words[i] == "full" else mixer, lambda i: routed if i % every == first else dense
    )
    return model(c, layers)


def bamba(c: Config) -> Draft:
    """Mamba-2 with attention at listed layers, a gated feed-forward part in all."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    attention = full(geometry(c, **bias(c.flag("attention_bias"))))
    c.ignore("attn_rotary_emb")
    listed = indices(c, "attn_layer_indices", count) or set()
    words = layer_words(c, count, lambda i: "full" if i in listed else "mamba", allowed=_TYPES)
    mixer = mamba2(c, hidden) if {"mamba", "linear"} & set(words) else None
    dense = gated(c, bias=c.flag("mlp_bias"))
    return model(c, stack_of(count, lambda i: attention if words[i] == "full" else mixer, lambda _: dense))


def granite_hybrid(c: Config) -> Draft:
    """Granite 4: a shared feed-forward part in every layer, experts beside it in the larger ones."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    positions = "none" if c.word("position_embedding_type", default="rope") == "nope" else "rotary"
    attention = full(geometry(c, **bias(c.flag("attention_bias")), positions=positions))
    words = layer_words(c, count, lambda _: "mamba", keys=("layer_types", "layers_block_type"), allowed=_TYPES)
    mixer = mamba2(c, hidden) if {"mamba", "linear"} & set(words) else None
    c.used |= {key for key in c.data if key.startswith("mamba_")}
    part: FeedForward
    if c.count("num_local_experts"):
        part = experts(c, width=("intermediate_size",), shared=shared_by_width(c, "shared_intermediate_size"))
    else:
        part = gated(c, keys=("shared_intermediate_size", "intermediate_size"))
        c.ignore("num_experts_per_tok", "intermediate_size")
    return model(c, stack_of(count, lambda i: attention if words[i] == "full" else mixer, lambda _: part))


def falcon_h1(c: Config) -> Draft:
    """Attention and Mamba-2 side by side in every layer."""
    hidden = c.integer(*HIDDEN)
    attention = full(geometry(c, **bias(c.flag("attention_bias"))))
    c.ignore("mamba_norm_before_gate", "mamba_use_mlp", "attn_layer_indices", "mlp_expansion_factor")
    biased, bias_out = c.flag("mamba_proj_bias"), c.flag("projectors_bias")  # of the projection in and of the one out
    mixer = mamba2(
        c, hidden, gated_norm=c.flag("mamba_rms_norm"), inner=c.optional("mamba_d_ssm"), projection_bias=biased and bias_out
    )
    extras = []
    if biased != bias_out:
        inner = mixer.num_heads * mixer.head_dim
        wide = 2 * inner + 2 * mixer.num_groups * mixer.state_size + mixer.num_heads
        extras = [Extra(name="mamba_bias", elements=wide if biased else hidden, kind="vector")]
    dense = gated(c, bias=c.flag("mlp_bias"))
    return model(c, stack_of(c.layers(*LAYERS), lambda _: [attention, mixer], lambda _: dense, extras=extras))


def zamba2(c: Config) -> Draft:
    """A few attention blocks shared by many depths. A shared block reads the hidden state beside the embedding, so it is twice as wide;
    each depth has a matrix behind the block and low-rank adapters, and a cache of its own. A hybrid depth is two entries of the stack.
    """
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    listed = indices(c, "hybrid_layer_ids", count) or set()
    words = _zamba_words(c, count, listed)
    heads = c.integer("num_attention_heads")
    wide = c.integer("attention_hidden_size", default=2 * hidden)
    c.ignore("kv_channels", "num_query_groups")
    positions = "rotary" if c.flag("use_mem_rope") else "none"
    size = c.integer("attention_head_dim", default=max(1, 2 * hidden // heads))
    attention = full(geometry(c, head_dim=("attention_head_dim",), positions=positions, input_size=2 * hidden) | {"head_dim": size})
    rank, dense = c.integer("adapter_rank", default=128), gated(c, bias=c.flag("add_bias_linear"))
    adapters = rank * (hidden + 2 * dense.intermediate_size)
    if c.flag("use_shared_attention_adapter"):
        adapters += 3 * 2 * rank * wide
    own = [
        Extra(name="hybrid_proj", elements=hidden * hidden, kind="matrix"),
        Extra(name="adapters", elements=adapters, kind="matrix"),
    ]
    copies = c.integer("num_mem_blocks", default=1)
    blocks = [
        LayerKind(mixers=[attention], feed_forwards=[dense], norms=0, extras=own, shared_weights=f"block-{j}")
        for j in range(copies)
    ]
    inner = LayerKind(mixers=[mamba2(c, hidden)], norms=1)
    layers: list[LayerKind] = []
    depth = 0
    for word in words:
        if word == "hybrid":
            layers.append(blocks[depth % copies])
            depth += 1
        layers.append(inner)
    norms = Extra(name="shared_block_norms", elements=min(copies, max(depth, 1)) * 3 * hidden, kind="vector")
    c.ignore("mamba_expand", "use_mem_eff_path")
    return model(c, layers, tie=True, extras=[norms])


def _zamba_words(c: Config, count: int, listed: set[int]) -> list[str]:
    words = layer_words(
        c,
        count,
        lambda i: "hybrid" if i in listed else "mamba",
        keys=("layers_block_type", "layer_types"),
        allowed=("hybrid", "mamba", "linear"),
    )
    if listed and {i for i, word in enumerate(words) if word == "hybrid"} != listed:
        raise c.fault("hybrid_layer_ids", "and layers_block_type name different layers")
    return words


_JAMBA = {
    "vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2, "max_position_embeddings": 262144,
}  # fmt: skip
_BAMBA = {
    "vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_d_state": 256, "max_position_embeddings": 262144,
}  # fmt: skip
_GRANITE = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "mamba_n_heads": 128, "mamba_d_state": 256,
    "max_position_embeddings": 2048,
}  # fmt: skip
_FALCON_H1 = {
    "vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_d_state": 256, "max_position_embeddings": 8192,
}  # fmt: skip
_ZAMBA2 = {
    "vocab_size": 32000, "hidden_size": 2560, "num_hidden_layers": 54, "intermediate_size": 10240, "num_attention_heads": 32,
    "mamba_d_state": 64, "n_mamba_heads": 8, "hybrid_layer_ids": [6, 12, 18, 24, 30, 36, 42, 47, 51],
    "max_position_embeddings": 4096,
}  # fmt: skip

FAMILIES = {
    "jamba": Family(jamba, _JAMBA),
    "bamba": Family(bamba, _BAMBA),
    "granitemoehybrid": Family(granite_hybrid, _GRANITE),
    "falcon_h1": Family(falcon_h1, _FALCON_H1),
    "zamba2": Family(zamba2, _ZAMBA2),
}
