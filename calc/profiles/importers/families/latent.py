"""Multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM-5, MiniCPM3, LongCat-Flash."""

from __future__ import annotations

from typing import Any, Literal

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft, stack_of
from calc.profiles.importers.families.moe import mixed
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, latent
from calc.profiles.importers.mechanisms.decoder import Family, model
from calc.profiles.importers.mechanisms.feed_forward import experts, gated, shared_by_count, sparse_after_first
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import layer_words
from calc.profiles.model import Extra, FeedForward, Indexer, LatentAttention, LayerKind

Role = Literal["full", "shared"]


def _biases(c: Config) -> tuple[dict[str, bool], list[Extra]]:
    """``attention_bias`` sits on the down projections and the output."""
    if not c.flag("attention_bias"):
        return {}, []
    width = c.integer("kv_lora_rank") + c.count("qk_rope_head_dim")
    low_rank = c.optional("q_lora_rank") is not None  # a full query projection has no bias
    return {"q_bias": low_rank, "o_bias": True}, [Extra(name="kv_a_bias", elements=width, kind="vector")]


def _indexer(c: Config, role: Role) -> Indexer | None:
    if not c.optional("index_topk"):
        return None
    c.ignore("indexer_rope_interleave", "index_topk_freq", "index_share_for_mtp_iteration")
    return Indexer(
        num_heads=c.integer("index_n_heads"), head_dim=c.integer("index_head_dim"), topk=c.integer("index_topk"), role=role
    )


def _indexer_roles(c: Config, count: int) -> list[Role]:
    """Layers that are "shared" reuse the selection of the last "full" one."""
    given = c.items("indexer_types")
    if given is None:
        return ["full"] * count
    c.check_length("indexer_types", given, count, beyond=64)
    for role in given:
        if role not in ("full", "shared"):
            raise c.unknown("indexer_types", role, ("full", "shared"), "indexer type")
    return ["full" if role == "full" else "shared" for role in given[:count]]


def _parts(c: Config, count: int, *, correction: bool) -> tuple[list[FeedForward], FeedForward]:
    """(one part a layer, the part of a next-token layer)."""
    if not c.optional("n_routed_experts", "num_experts"):
        dense = gated(c)
        c.ignore("first_k_dense_replace", "moe_layer_freq", "moe_intermediate_size", "n_shared_experts", "num_experts_per_tok")
        return [dense] * count, dense
    routed = experts(c, shared=shared_by_count(c, c.integer("moe_intermediate_size")), correction_bias=correction)
    return mixed(c, sparse_after_first(c, count), routed), routed


def deepseek(c: Config) -> Draft:
    """Low-rank queries where ``q_lora_rank`` is set, experts after the first layers, an indexer in V3.2 and GLM-5."""
    count = c.layers(*LAYERS)
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")  # latent attention has one shared cache: these say nothing
    method = c.word("topk_method", default="noaux_tc" if c.data.get("scoring_func") == "sigmoid" else "greedy")
    layer_words(c, count, lambda _: "full", allowed=("full",), beyond=64)
    parts, routed = _parts(c, count, correction=method == "noaux_tc")
    biases, extras = _biases(c)
    roles = _indexer_roles(c, count)
    mixers: dict[Role, LatentAttention] = {role: latent(c, indexer=_indexer(c, role), **biases) for role in dict.fromkeys(roles)}
    common: dict[str, Any] = {"extras": extras}
    found = model(c, stack_of(count, lambda i: mixers[roles[i]], lambda i: parts[i], **common))
    modules = c.count("num_nextn_predict_layers")
    if modules:
        layer = LayerKind(mixers=[latent(c, indexer=_indexer(c, "full"), **biases)], feed_forwards=[routed], extras=extras)
        found.next_token = NextTokenDraft(modules, [layer], joining(c.integer(*HIDDEN)))
    return found


def minicpm3(c: Config) -> Draft:
    """MiniCPM3: latent attention, dense, tied."""
    hidden, heads = c.integer(*HIDDEN), c.integer("num_attention_heads")
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    if not c.has("v_head_dim"):
        c.data = {**c.data, "v_head_dim": max(1, hidden // heads)}
    dense = gated(c)
    return model(c, stack_of(c.layers(*LAYERS), lambda _: latent(c), lambda _: dense), tie=True)


def longcat(c: Config) -> Draft:
    """Two attentions and two dense parts a layer beside one set of experts, some of which compute nothing."""
    count = c.layers("num_layers", "num_hidden_layers")
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "mla_scale_q_lora", "mla_scale_kv_lora", "zero_expert_type")
    zero = c.count("zero_expert_num")
    routed = experts(
        c,
        width=("expert_ffn_hidden_size", "moe_intermediate_size"),
        zero_experts=zero,
        correction_bias=True,
        router_bias=c.flag("router_bias"),
    )
    dense = gated(c, keys=("ffn_hidden_size", "intermediate_size"))
    biases, extras = _biases(c)
    mixer = latent(c, **biases)
    return model(c, stack_of(count, lambda _: [mixer, mixer], lambda _: [dense, dense, routed], norms=4, extras=extras * 2))


_V3 = {
    "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "num_attention_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "topk_method": "noaux_tc", "max_position_embeddings": 4096,
}  # fmt: skip
_INDEX = {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64, "max_position_embeddings": 163840}
_GLM5 = _V3 | _INDEX | {
    "vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78, "num_attention_heads": 64,
    "q_lora_rank": 2048, "v_head_dim": 256, "qk_nope_head_dim": 192, "index_n_heads": 32,
}  # fmt: skip
_GLM_LITE = _V3 | {
    "vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240, "moe_intermediate_size": 1536, "num_hidden_layers": 47,
    "num_attention_heads": 20, "n_routed_experts": 64, "num_experts_per_tok": 4, "first_k_dense_replace": 1, "q_lora_rank": 768,
    "v_head_dim": 256, "qk_nope_head_dim": 192,
}  # fmt: skip
_MINICPM3 = {
    "vocab_size": 73448, "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62, "num_attention_heads": 40,
    "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "max_position_embeddings": 32768,
}  # fmt: skip
_LONGCAT = {
    "vocab_size": 131072, "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64, "ffn_hidden_size": 12288, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_topk": 12, "n_routed_experts": 512,
    "zero_expert_num": 256, "expert_ffn_hidden_size": 2048, "max_position_embeddings": 131072,
}  # fmt: skip

FAMILIES = {
    "deepseek_v2": Family(deepseek, {}),
    "deepseek_v3": Family(deepseek, _V3),
    "deepseek_v32": Family(deepseek, _V3 | _INDEX),
    "kimi_k2": Family(deepseek, _V3),
    "glm_moe_dsa": Family(deepseek, _GLM5),
    "glm4_moe_lite": Family(deepseek, _GLM_LITE),
    "minicpm3": Family(minicpm3, _MINICPM3),
    "longcat_flash": Family(longcat, _LONGCAT),
}
