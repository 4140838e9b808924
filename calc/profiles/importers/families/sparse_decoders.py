"""Routed experts with attention of several kinds in one stack: Llama 4, MiniMax-M2 and M3, MiMo-V2, Step-3 and its successors."""

from __future__ import annotations

from collections.abc import Sequence

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft, positions_limit, stack_of
from calc.profiles.importers.families.moe import mixed
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, Geometry, bias, chunked, full, geometry, sliding
from calc.profiles.importers.mechanisms.decoder import Family, decoder, model, windows
from calc.profiles.importers.mechanisms.feed_forward import experts, gated, shared_by_count, shared_by_width, sparse_after_first
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import indices, layer_words, window_of
from calc.profiles.model import BlockSparseAttention, Extra, LayerKind, Mixer


def llama4(c: Config) -> Draft:
    """Chunked layers with rotary positions, full ones without; experts in every ``interleave_moe_layer_step``-th layer."""
    count, step = c.layers(*LAYERS), c.integer("interleave_moe_layer_step", default=1)
    listed = indices(c, "moe_layers", count)
    sparse = [i in listed if listed is not None else (i + 1) % step == 0 for i in range(count)]
    rotary = c.integers("no_rope_layers", maximum=1) or []  # holds 1 where positions are used
    interval = c.integer("no_rope_layer_interval", default=4)
    if rotary:
        c.check_length("no_rope_layers", rotary, count)
    else:
        rotary = [int((i + 1) % interval != 0) for i in range(count)]
    chunk = window_of(c, "attention_chunk_size", limit=positions_limit(c))
    c.ignore("layer_types")
    g = geometry(c, **bias(c.flag("attention_bias")))
    norm = "unweighted" if c.flag("use_qk_norm", default=True) else "none"
    far = full(g, positions="none", rotary_dim=None)
    near: Mixer = chunked(g, chunk, qk_norm=norm) if chunk else full(g, qk_norm=norm)
    shared = shared_by_width(c, "intermediate_size")
    routed = experts(c, width=("intermediate_size",), shared=shared)
    parts = mixed(c, sparse, routed, dense=gated(c, keys=("intermediate_size_mlp",)) if not all(sparse) else None)
    c.ignore("intermediate_size_mlp")
    return model(c, stack_of(count, lambda i: near if rotary[i] else far, lambda i: parts[i]))


def _norm_kind(c: Config) -> str:
    if not c.flag("use_qk_norm", default=True):
        return "none"
    kinds = {"per_layer": "projection", "per_head": "head"}
    kind = c.word("qk_norm_type", default="per_layer")
    if kind not in kinds:
        raise c.unknown("qk_norm_type", kind, kinds, "norm of queries and keys")
    return kinds[str(kind)]


_NOT_STORED = "next-token modules that the config names are not in the published checkpoints and not counted"


def _without_modules(c: Config, found: Draft) -> Draft:
    if c.count("num_mtp_modules") or c.count("num_nextn_predict_layers"):
        found.quirks.append(_NOT_STORED)
    return found


def minimax_m2(c: Config) -> Draft:
    """Full attention, a correction bias. The next-token modules that the config names are not in the checkpoints."""
    c.ignore("mtp_transformer_layers", "num_mtp_modules", "use_mtp", "attn_type_list", "shared_intermediate_size")
    g = geometry(c, qk_norm=_norm_kind(c))
    part = experts(c, width=("intermediate_size",), correction_bias=c.flag("use_routing_bias", default=True))
    return _without_modules(c, decoder(c, g, part))


def minimax_m3(c: Config) -> Draft:
    """Full attention first, then attention over the best blocks that a small index chooses."""
    count = c.layers(*LAYERS)
    c.ignore("num_mtp_modules", "num_nextn_predict_layers", "attention_output_gate", "layer_types")
    width = c.integer("shared_intermediate_size", "moe_intermediate_size")
    shared = shared_by_count(c, width, "n_shared_experts")
    routed = experts(
        c, width=("moe_intermediate_size", "intermediate_size"), shared=shared, correction_bias=c.flag("use_routing_bias")
    )
    parts = mixed(c, sparse_after_first(c, count), routed, dense=gated(c, keys=("dense_intermediate_size", "intermediate_size")))
    g = geometry(c, qk_norm=_norm_kind(c))
    s = c.section("sparse_attention_config")
    dense: Mixer = full(g)
    if s is None or not s.flag("use_sparse_attention", default=True):
        return _without_modules(c, decoder(c, g, parts, per_layer=True))
    s.ignore("sparse_disable_index_value", "sparse_score_type")
    indexed = BlockSparseAttention(
        **g,
        block=s.integer("sparse_block_size"),
        topk_blocks=s.integer("sparse_topk_blocks"),
        index_heads=s.integer("sparse_num_index_heads"),
        index_head_dim=s.integer("sparse_index_dim"),
        init_blocks=s.count("sparse_init_block"),
        local_blocks=s.count("sparse_local_block"),
    )
    used = s.integers("sparse_attention_freq", maximum=1) or [1] * count
    s.check_length("sparse_attention_freq", used, count)
    layers = stack_of(count, lambda i: indexed if used[i] else dense, lambda i: parts[i])
    return _without_modules(c, model(c, layers))


def mimo_v2(c: Config) -> Draft:
    """Sliding layers with heads of their own and sinks; values narrower than keys."""
    count = c.layers(*LAYERS)
    pattern = c.integers("hybrid_layer_pattern", maximum=1)
    if pattern is not None:
        c.check_length("hybrid_layer_pattern", pattern, count)
    elif not c.has("layer_types"):
        raise c.fault("hybrid_layer_pattern", "and layer_types are missing")
    else:
        pattern = [int(word == "sliding") for word in layer_words(c, count, lambda _: "full")]
    limit = positions_limit(c)
    window = window_of(c, "sliding_window", "sliding_window_size", limit=limit)
    c.ignore("attention_chunk_size")
    qkv = bias(qkv=c.flag("attention_bias"), out=False)
    g = geometry(c, v_head_dim=c.optional("v_head_dim"), sinks=c.flag("add_full_attention_sink_bias"), **qkv)
    own = geometry(
        c,
        heads=("swa_num_attention_heads", "num_attention_heads"),
        kv_heads=("swa_num_key_value_heads", "num_key_value_heads"),
        head_dim=("swa_head_dim", "head_dim"),
        v_head_dim=c.optional("swa_v_head_dim", "v_head_dim"),
        sinks=c.flag("add_swa_attention_sink_bias", default=True),
        **qkv,
    )
    near: Mixer = sliding(own, window) if window else full(own)
    far = full(g)
    width = c.integer("moe_intermediate_size")
    routed = experts(c, shared=shared_by_count(c, width), correction_bias=c.word("topk_method", default="noaux_tc") == "noaux_tc")
    parts = mixed(c, sparse_after_first(c, count), routed)
    return model(c, stack_of(count, lambda i: near if pattern[i] else far, lambda i: parts[i]))


def _listed_sparse(c: Config, count: int) -> Sequence[bool]:
    listed = indices(c, "moe_layers_enum", count)
    c.ignore("moe_layer_freq", "first_k_dense_replace")
    return [i in listed for i in range(count)] if listed is not None else sparse_after_first(c, count)


def step3(c: Config) -> Draft:
    """Multi-matrix factorised attention: queries through a narrow bottleneck, one key-value head."""
    count = c.layers(*LAYERS)
    g = geometry(c, query_rank=c.optional("share_q_dim"), query_rank_norm=True)
    routed = experts(c, shared=shared_by_width(c, "share_expert_dim"))
    return decoder(c, g, mixed(c, _listed_sparse(c, count), routed), per_layer=True)


def step3_flash(c: Config) -> Draft:
    """Step-3.5 and later: more query heads in sliding layers, a gate per head, dense sliding next-token layers with heads of their own."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    modules = c.count("num_nextn_predict_layers")
    words, window = windows(c, lambda i: "sliding" if i % 4 else "full", beyond=modules)
    gate = "head" if c.flag("use_head_wise_attn_gate", default=True) else "none"
    g = geometry(c, qk_norm="head", output_gate=gate)
    near = sliding(_other_heads(c, g), window) if window else full(g)
    far = full(g)
    shared = shared_by_width(c, "share_expert_dim", "share_expert_dims")
    c.ignore("n_shared_experts")
    routed = experts(c, shared=shared, correction_bias=c.flag("use_moe_router_bias", default=True))
    parts = mixed(c, _listed_sparse(c, count), routed)
    found = model(c, stack_of(count, lambda i: near if words[i] == "sliding" else far, lambda i: parts[i]))
    if modules:
        head = Extra(name="lm_head", elements=hidden * c.integer("vocab_size"), kind="matrix")
        layer = LayerKind(mixers=[near], feed_forwards=[gated(c)])
        found.next_token = NextTokenDraft(modules, [layer], [*joining(hidden), head])
    return found


def _other_heads(c: Config, g: Geometry) -> Geometry:
    """Heads of the sliding layers; where the config does not say, half as many again as the full layers have."""
    other, stated = c.section("attention_other_setting"), c.optional("num_sliding_attention_heads")
    if stated is not None:
        return g | {"num_attention_heads": stated}
    if other is None:
        heads = g["num_attention_heads"] * 3 // 2
        c.warn(f"attention_other_setting is absent: sliding layers are taken to have {heads} query heads")
        return g | {"num_attention_heads": heads}
    other.ignore("attention_type")
    return g | geometry(other, hidden=c.integer(*HIDDEN))


_MINIMAX_M2 = {
    "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 8, "num_local_experts": 256, "max_position_embeddings": 196608,
}  # fmt: skip

FAMILIES = {
    "llama4_text": Family(
        llama4,
        {
            "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
            "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16, "num_experts_per_tok": 1,
            "attention_chunk_size": 8192, "max_position_embeddings": 131072,
        },
    ),
    "minimax_m2": Family(minimax_m2, _MINIMAX_M2),
    "minimax_m3": Family(minimax_m3, {}),
    "mimo_v2_flash": Family(mimo_v2, {}),
    "step3_text": Family(step3, {}),
    "step3p5": Family(step3_flash, {}),
    "step3p7": Family(step3_flash, {}),
}  # fmt: skip
