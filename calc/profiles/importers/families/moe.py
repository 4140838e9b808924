"""Routed experts behind grouped-query attention: the plain kind, in which every sparse layer looks alike."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft
from calc.profiles.importers.families.qwen import SIZES as QWEN_SIZES
from calc.profiles.importers.families.qwen import qwen_windows
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, bias, full, geometry
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, PLAIN_LAYER_NORM, Family, decoder, windows
from calc.profiles.importers.mechanisms.feed_forward import (
    experts,
    gated,
    shared_bias,
    shared_by_count,
    shared_by_width,
    sparse_after_first,
    sparse_by_step,
)
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import every
from calc.profiles.model import DenseFeedForward, Experts, Extra, FeedForward, LayerKind, SharedExperts


def mixed(c: Config, sparse: Sequence[bool], routed: Experts, *, dense: DenseFeedForward | None = None) -> list[FeedForward]:
    """One part a layer. The dense width is asked for only where a layer is dense."""
    if all(sparse):
        c.ignore("intermediate_size")
        return [routed] * len(sparse)
    other = dense or gated(c)
    return [routed if is_sparse else other for is_sparse in sparse]


def mixtral(c: Config) -> Draft:
    """Experts as wide as ``intermediate_size``, none shared."""
    words, window = windows(c, lambda _: "sliding")
    return decoder(c, geometry(c), experts(c, width=("intermediate_size",)), words=words, window=window)


def qwen2_moe(c: Config) -> Draft:
    """Qwen1.5 and 2: bias on q, k, v; a shared expert behind a scalar gate."""
    words, window = qwen_windows(c)
    shared = shared_by_width(c, "shared_expert_intermediate_size", gate=True)
    parts = mixed(c, sparse_by_step(c, c.layers(*LAYERS)), experts(c, shared=shared))
    g = geometry(c, **bias(qkv=c.flag("qkv_bias", default=True), out=False))
    return decoder(c, g, parts, per_layer=True, words=words, window=window)


def qwen3_moe(c: Config) -> Draft:
    """Norms on queries and keys, no shared expert."""
    words, window = qwen_windows(c)
    parts = mixed(c, sparse_by_step(c, c.layers(*LAYERS)), experts(c))
    g = geometry(c, **bias(c.flag("attention_bias", "qkv_bias")), qk_norm="head")
    c.flag("use_qk_norm")
    return decoder(c, g, parts, per_layer=True, words=words, window=window)


def olmoe(c: Config) -> Draft:
    """Experts as wide as ``intermediate_size``; norms over whole projections."""
    g = geometry(c, **bias(c.flag("attention_bias")), qk_norm="projection")
    return decoder(c, g, experts(c, width=("intermediate_size",)))


def granitemoe(c: Config) -> Draft:
    """A shared expert by its width where there is one."""
    shared = shared_by_width(c, "shared_intermediate_size")
    g = geometry(c, **bias(c.flag("attention_bias")))
    return decoder(c, g, experts(c, width=("intermediate_size",), shared=shared))


def phimoe(c: Config) -> Draft:
    """LayerNorm; bias on q, k, v, o and on the head."""
    words, window = windows(c, lambda _: "sliding")
    g = geometry(c, **bias(c.flag("attention_bias")))
    part = experts(c, width=("intermediate_size",))
    return decoder(c, g, part, words=words, window=window, norm=LAYER_NORM, lm_head_bias=c.flag("lm_head_bias"))


def gpt_oss(c: Config) -> Draft:
    """Sliding and full in turn, a sink per head, bias on every matrix of attention, router and experts."""
    words, window = windows(c, every(2))
    g = geometry(c, **bias(c.flag("attention_bias", default=True)), sinks=True)
    part = experts(c, width=("intermediate_size",), bias=True, router_bias=True)
    return decoder(c, g, part, words=words, window=window)


def dbrx(c: Config) -> Draft:
    """Attention and experts in sections of their own; LayerNorm without bias."""
    attention, ffn = c.section("attn_config"), c.section("ffn_config")
    if attention is None or ffn is None:
        raise c.fault("ffn_config" if attention else "attn_config", "is missing")
    heads = c.integer("n_heads", "num_attention_heads")
    g = geometry(c, kv_heads=attention.integer("kv_n_heads", default=1))
    ffn.ignore("ffn_act_fn", "uniform_expert_assignment", "moe_jitter_eps", "moe_normalize_expert_weights")
    part = experts(ffn, width=("ffn_hidden_size",))
    c.used.add("num_key_value_heads")
    return decoder(c, g | {"num_attention_heads": heads}, part, norm=PLAIN_LAYER_NORM)


def grok(c: Config) -> Draft:
    """Four norms; Grok-2 has a dense part beside the experts (``residual_moe``)."""
    beside = c.flag("residual_moe")
    c.ignore("moe_intermediate_size")
    routed = experts(c, width=("moe_intermediate_size", "intermediate_size") if beside else ("intermediate_size",))
    parts: list[FeedForward] = [gated(c), routed] if beside else [routed]
    g = geometry(c)
    return decoder(c, g, [parts] * c.layers(*LAYERS), per_layer=True, norms=4, tie=True)


def ernie_moe(c: Config) -> Draft:
    """Sparse layers by first, last and interval; a correction bias; the next-token layer is dense and joins with two norms."""
    count, everywhere = c.layers(*LAYERS), c.flag("use_bias")
    first, last = c.count("moe_layer_start_index"), c.integer("moe_layer_end_index", default=-1, minimum=-1)
    interval = c.integer("moe_layer_interval", default=1)
    last = count - 1 if last < 0 else last
    if first >= count or last >= count:
        raise c.fault("moe_layer_start_index" if first >= count else "moe_layer_end_index", f"lies beyond the {count} layers")
    sparse = [first <= i <= last and (i + 1) % interval == 0 for i in range(count)]
    shared = shared_by_count(c, c.integer("moe_intermediate_size"))
    routed = experts(c, shared=shared, correction_bias=c.flag("moe_use_aux_free", default=True))
    dense = gated(c, bias=everywhere)
    g = geometry(c, **bias(everywhere))
    found = decoder(c, g, mixed(c, sparse, routed, dense=dense), per_layer=True, tie=True)
    if everywhere:
        _ernie_bias(found, sparse, shared)
    modules = c.count("num_nextn_predict_layers")
    if modules:
        layer = LayerKind(mixers=[full(g)], feed_forwards=[dense])
        found.next_token = NextTokenDraft(modules, [layer], joining(c.integer(*HIDDEN), norms=2))
    return found


def _ernie_bias(found: Draft, sparse: Sequence[bool], shared: SharedExperts | None) -> None:
    """``use_bias`` reaches shared experts and the head; that of a tied head is a tensor of its own."""
    if found.tie_word_embeddings:
        found.extras.append(Extra(name="lm_head_bias", elements=found.vocab_size or 0, kind="vector"))
    else:
        found.lm_head_bias = True
    if shared:
        own = shared_bias(shared, found.hidden_size)
        found.layers = [
            msgspec.structs.replace(kind, extras=[*kind.extras, own]) if is_sparse else kind
            for kind, is_sparse in zip(found.layers, sparse, strict=True)
        ]


def with_next_token(c: Config, found: Draft) -> Draft:
    """Next-token modules that run a layer like the last one (GLM-4.5, Ling 2)."""
    modules = c.count("num_nextn_predict_layers", "mtp_num_hidden_layers")
    if modules:
        found.next_token = NextTokenDraft(modules, [found.layers[-1]], joining(found.hidden_size))
    return found


def deepseek_like(c: Config, *, qk_norm: str, correction: bool, qkv: bool = False) -> Draft:
    """Dense layers first, shared experts as a number of experts."""
    sparse = sparse_after_first(c, c.layers(*LAYERS))
    routed = experts(c, shared=shared_by_count(c, c.integer("moe_intermediate_size")), correction_bias=correction)
    words, window = windows(c, lambda _: "sliding")
    g = geometry(c, **bias(qkv=qkv, out=False), qk_norm=qk_norm)
    return with_next_token(c, decoder(c, g, mixed(c, sparse, routed), per_layer=True, words=words, window=window))


def deepseek(c: Config) -> Draft:
    """DeepSeekMoE, the first version: no correction bias."""
    return deepseek_like(c, qk_norm="none", correction=False)


def dots1(c: Config) -> Draft:
    """Norms on queries and keys, a correction bias."""
    return deepseek_like(c, qk_norm="head", correction=True, qkv=c.flag("attention_bias"))


def glm4_moe(c: Config) -> Draft:
    """Bias on q, k, v; norms on queries and keys by a flag; a correction bias; a sparse next-token layer."""
    return deepseek_like(c, qk_norm="head" if c.flag("use_qk_norm") else "none", correction=True, qkv=c.flag("attention_bias"))


def bailing_moe(c: Config) -> Draft:
    """Ling and Ring: version 2 adds norms on queries and keys and a correction bias."""
    width = c.integer("moe_intermediate_size")
    shared_width = c.optional("moe_shared_expert_intermediate_size") or width
    shared = shared_by_count(c, shared_width, "num_shared_experts")
    everywhere = c.flag("use_bias")
    routed = experts(c, shared=shared, correction_bias=c.flag("moe_router_enable_expert_bias"))
    norm = "head" if c.flag("use_qk_norm") else "none"
    g = geometry(c, **bias(qkv=c.flag("use_qkv_bias"), out=everywhere), qk_norm=norm)
    parts = mixed(c, sparse_after_first(c, c.layers(*LAYERS)), routed)
    return with_next_token(c, decoder(c, g, parts, per_layer=True))


def hunyuan_moe(c: Config) -> Draft:
    """Per-layer lists; every expert layer shares a dense part; cross-layer attention reuses keys and values of an earlier layer."""
    count = c.layers(*LAYERS)
    width = c.per_layer("moe_intermediate_size", "intermediate_size", count=count)
    chosen = c.per_layer("moe_topk", count=count, default=1)
    shared = c.per_layer("num_shared_expert", count=count, default=1, minimum=0)
    number = c.integer("num_experts")
    if max(chosen) > number:
        raise c.fault("moe_topk", f"{max(chosen)} of {number} experts cannot be chosen")
    beside = c.flag("use_mixed_mlp_moe", default=True)
    dense_width = c.optional("intermediate_size") or max(width)

    def part(i: int) -> FeedForward:
        held = SharedExperts(intermediate_size=shared[i] * width[i]) if beside and shared[i] else None
        if number == 1:
            return DenseFeedForward(intermediate_size=dense_width)
        return Experts(num_experts=number, num_experts_per_token=chosen[i], intermediate_size=width[i], shared=held)

    g = geometry(c, **bias(c.flag("attention_bias")), qk_norm="head" if c.flag("use_qk_norm", default=True) else "none")
    found = decoder(c, g, [part(i) for i in range(count)], per_layer=True)
    factor = c.integer("cla_share_factor", default=2)
    if c.flag("use_cla"):
        borrowed = full(g, kv_source="shared", kv_weights_stored=False)
        found.layers = [
            LayerKind(mixers=[borrowed], feed_forwards=kind.feed_forwards) if i % factor else kind
            for i, kind in enumerate(found.layers)
        ]
    return found


_MIXTRAL = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 131072,
}  # fmt: skip
_QWEN2_MOE = QWEN_SIZES | {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
}  # fmt: skip
_QWEN3_MOE = _QWEN2_MOE | {
    "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8,
}  # fmt: skip
_GPT_OSS = {
    "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "num_local_experts": 128, "num_experts_per_tok": 4,
    "max_position_embeddings": 131072,
}  # fmt: skip
_ERNIE_MOE = {
    "vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20,
    "num_key_value_heads": 4, "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64, "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1, "max_position_embeddings": 131072,
}  # fmt: skip
_GLM4_MOE = {
    "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96,
    "num_key_value_heads": 8, "moe_intermediate_size": 1408, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "n_routed_experts": 128, "first_k_dense_replace": 1, "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 1,
    "max_position_embeddings": 131072,
}  # fmt: skip
_OLMOE = {
    "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_experts": 64, "num_experts_per_tok": 8, "max_position_embeddings": 4096,
}  # fmt: skip

FAMILIES = {
    "mixtral": Family(mixtral, _MIXTRAL),
    "qwen2_moe": Family(qwen2_moe, _QWEN2_MOE),
    "qwen3_moe": Family(qwen3_moe, _QWEN3_MOE),
    "olmoe": Family(olmoe, _OLMOE),
    "granitemoe": Family(granitemoe, _MIXTRAL | {"intermediate_size": 11008, "num_key_value_heads": None}),
    "granitemoeshared": Family(granitemoe, _MIXTRAL | {"intermediate_size": 11008, "num_key_value_heads": None}),
    "phimoe": Family(phimoe, _MIXTRAL | {"vocab_size": 32064, "intermediate_size": 6400, "num_local_experts": 16}),
    "gpt_oss": Family(gpt_oss, _GPT_OSS),
    "dbrx": Family(dbrx, {"vocab_size": 32000, "d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048}),
    "grok-1": Family(grok, {}),
    "ernie4_5_moe": Family(ernie_moe, _ERNIE_MOE),
    "deepseek": Family(deepseek, {}),
    "dots1": Family(dots1, {"vocab_size": 152064, "first_k_dense_replace": 0}),
    "glm4_moe": Family(glm4_moe, _GLM4_MOE),
    "glm4v_moe_text": Family(glm4_moe, _GLM4_MOE | {"vocab_size": 151424, "attention_bias": True, "num_nextn_predict_layers": 0}),
    "bailing_moe": Family(bailing_moe, {}),
    "hunyuan_v1_moe": Family(hunyuan_moe, {"vocab_size": 290943}),
    "hunyuan": Family(hunyuan_moe, {}),
}
