"""Attention and linear attention in one stack: Qwen3-Next and 3.5, Olmo-Hybrid, Kimi-Linear, Ling 3, MiniMax-01, LFM2, RecurrentGemma."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft, stack_of
from calc.profiles.importers.families.moe import mixed
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, bias, full, geometry, sliding
from calc.profiles.importers.mechanisms.decoder import Family, model
from calc.profiles.importers.mechanisms.feed_forward import experts, gated, shared_by_width, sparse_by_step
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import every, indices, layer_words
from calc.profiles.importers.mechanisms.recurrent import gated_delta_net, lightning, state_dtype
from calc.profiles.model import DenseFeedForward, FeedForward, LayerKind, RgLru, ShortConvolution


def _qwen(c: Config, *, modules: int) -> Draft:
    count = c.layers(*LAYERS)
    words = layer_words(
        c, count, every(c.integer("full_attention_interval", default=4), other="linear"), allowed=("full", "linear")
    )
    gate = "elementwise" if c.flag("attn_output_gate", default=True) else "none"
    c.ignore("output_gate_type")
    attention = full(geometry(c, **bias(c.flag("attention_bias")), qk_norm="head", output_gate=gate))
    mixer = gated_delta_net(c) if "linear" in words else None
    parts: list[FeedForward]
    if c.optional("num_experts", minimum=0):
        shared = shared_by_width(c, "shared_expert_intermediate_size", gate=True)
        parts = mixed(c, sparse_by_step(c, count), experts(c, shared=shared))
    else:
        parts = [gated(c)] * count
    found = model(
        c, stack_of(count, lambda i: attention if words[i] == "full" else mixer, lambda i: parts[i]), state_dtype=state_dtype(c)
    )
    if modules:
        layer = LayerKind(mixers=[attention], feed_forwards=[parts[-1]])
        found.next_token = NextTokenDraft(modules, [layer], joining(c.integer(*HIDDEN)))
    return found


def qwen3_next(c: Config) -> Draft:
    """Three gated DeltaNets, then a gated full layer. The checkpoints store a next-token layer that the config does not mention."""
    return _qwen(c, modules=c.count("mtp_num_hidden_layers", "num_nextn_predict_layers", default=1))


def qwen3_5(c: Config) -> Draft:
    """Qwen3-Next's layers, dense or sparse; the config counts the next-token layers."""
    if c.flag("mtp_use_dedicated_embeddings"):
        c.warn("the next-token layers have an embedding of their own, which is not counted")
    return _qwen(c, modules=c.count("mtp_num_hidden_layers"))


def olmo_hybrid(c: Config) -> Draft:
    """Gated DeltaNet beside OLMo 2 attention."""
    count = c.layers(*LAYERS)
    words = layer_words(c, count, every(4, other="linear"), allowed=("full", "linear"))
    attention = full(geometry(c, **bias(c.flag("attention_bias")), qk_norm="projection"))
    mixer = gated_delta_net(c) if "linear" in words else None
    c.ignore("linear_allow_neg_eigval")
    dense = gated(c)
    return model(c, stack_of(count, lambda i: attention if words[i] == "full" else mixer, lambda _: dense))


def minimax(c: Config) -> Draft:
    """MiniMax-01 and M1: lightning attention in seven of eight layers, experts as wide as ``intermediate_size``."""
    count = c.layers(*LAYERS)
    listed = c.integers("attn_type_list", maximum=1)
    if listed is not None:
        c.check_length("attn_type_list", listed, count)
    elif not c.has("layer_types"):
        c.warn("neither attn_type_list nor layer_types: full and linear attention are taken to alternate, as the class does")
    words = layer_words(c, count, lambda i: ("linear", "full")[listed[i] if listed else 1 - i % 2], allowed=("full", "linear"))
    attention, mixer = full(geometry(c)), lightning(c)
    shared = shared_by_width(c, "shared_intermediate_size")
    c.ignore("shared_moe_mode", "postnorm")
    part = experts(c, width=("intermediate_size",), shared=shared)
    return model(c, stack_of(count, lambda i: attention if words[i] == "full" else mixer, lambda _: part))


def _lfm2_width(c: Config) -> int:
    """Two thirds of the given width, scaled and rounded up to a multiple, unless the adjustment is off."""
    width = c.integer("block_ff_dim", "intermediate_size")
    c.ignore("block_ff_dim", "intermediate_size")
    factor, multiple = c.number("block_ffn_dim_multiplier", default=1.0), c.integer("block_multiple_of", default=256)
    if not c.flag("block_auto_adjust_ff_dim", default=True):
        return width
    return max(1, -(-int(factor * int(2 * width / 3)) // multiple)) * multiple


def _lfm2(c: Config, parts: list[FeedForward]) -> Draft:
    count = len(parts)
    listed = indices(c, "full_attn_idxs", count)
    if listed is None and not c.has("layer_types"):
        listed = set(range(count))
    words = layer_words(c, count, lambda i: "full" if listed and i in listed else "conv", allowed=("full", "conv"))
    attention = full(geometry(c, qk_norm="head"))
    c.ignore(
        "conv_dim", "conv_dim_out", "block_dim", "conv_use_xavier_init", "block_use_swiglu", "block_use_xavier_init", "num_heads"
    )
    mixer = ShortConvolution(conv_kernel=c.integer("conv_L_cache", default=3), bias=c.flag("conv_bias"))
    found = model(c, stack_of(count, lambda i: attention if words[i] == "full" else mixer, lambda i: parts[i]), tie=True)
    if c.has("tie_embedding"):
        found.tie_word_embeddings = c.flag("tie_embedding")
    return found


def lfm2(c: Config) -> Draft:
    """Short convolutions and a few attention layers, tied."""
    dense: FeedForward = DenseFeedForward(intermediate_size=_lfm2_width(c))
    return _lfm2(c, [dense] * c.layers(*LAYERS))


def lfm2_moe(c: Config) -> Draft:
    """LFM2 with experts after the first dense layers."""
    count, first = c.layers(*LAYERS), c.count("num_dense_layers", default=2)
    routed = experts(c, correction_bias=c.flag("use_expert_bias", default=True))
    return _lfm2(c, mixed(c, [i >= first for i in range(count)], routed))


def recurrent_gemma(c: Config) -> Draft:
    """Griffin: ``block_types`` cycled over the stack, feed-forward parts half as wide as the key says, with bias."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    cycle = c.items("block_types", "_block_types") or ["recurrent", "recurrent", "attention"]
    if len(cycle) > count:
        raise c.fault("block_types", f"has {len(cycle):,} entries for {count:,} layers", "the pattern is longer than the stack")
    for word in cycle:
        if word not in ("recurrent", "attention"):
            raise c.unknown("block_types", word, ("recurrent", "attention"), "layer type")
    heads, width = c.integer("num_attention_heads"), c.optional("lru_width") or hidden
    if width % heads:
        raise c.fault("num_attention_heads", f"{heads} does not divide the recurrent width {width:,}")
    g = geometry(c, **bias(qkv=c.flag("attention_bias"), out=True))
    attention = sliding(g, c.integer("attention_window_size", default=2048))
    mixer = RgLru(width=width, num_heads=heads, conv_kernel=c.integer("conv1d_width", default=4))
    dense = DenseFeedForward(intermediate_size=max(1, c.integer("intermediate_size") // 2), bias=True)
    layers = stack_of(count, lambda i: attention if cycle[i % len(cycle)] == "attention" else mixer, lambda _: dense)
    return model(c, layers, tie=True)


_NEXT = {
    "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "partial_rotary_factor": 0.25, "max_position_embeddings": 32768,
}  # fmt: skip
_NEXT_MOE = _NEXT | {
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10,
}  # fmt: skip
_DENSE_3_5 = _NEXT | {
    "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_key_value_heads": 4,
}  # fmt: skip
_MOE_3_5 = _NEXT_MOE | {"vocab_size": 248320, "num_hidden_layers": 40, "num_experts": 256, "num_experts_per_tok": 8}
_OLMO = {
    "vocab_size": 100352, "hidden_size": 3840, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 30,
    "max_position_embeddings": 65536,
}  # fmt: skip
_GRIFFIN = {
    "vocab_size": 256000, "hidden_size": 2560, "intermediate_size": 7680, "num_hidden_layers": 26, "num_attention_heads": 10,
    "head_dim": 256, "partial_rotary_factor": 0.5,
}  # fmt: skip
_MINIMAX = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 131072,
}  # fmt: skip
_LFM2_MOE = {
    "vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 32, "num_experts_per_tok": 4, "max_position_embeddings": 128000,
}  # fmt: skip
_LFM2 = {
    "vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 128000,
}  # fmt: skip

FAMILIES = {
    "qwen3_next": Family(qwen3_next, _NEXT_MOE),
    "qwen3_5_text": Family(qwen3_5, _DENSE_3_5),
    "qwen3_5_moe_text": Family(qwen3_5, _MOE_3_5),
    "olmo_hybrid": Family(olmo_hybrid, _OLMO),
    "minimax": Family(minimax, _MINIMAX),
    "minimax_m1": Family(minimax, {}),
    "lfm2": Family(lfm2, _LFM2),
    "lfm2_moe": Family(lfm2_moe, _LFM2_MOE),
    "recurrent_gemma": Family(recurrent_gemma, _GRIFFIN),
}
