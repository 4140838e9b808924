"""Geometry of softmax attention from config keys, in all their spellings."""

from __future__ import annotations

from typing import Any

from calc.profiles.importers.config import Config
from calc.profiles.model import ChunkedAttention, FullAttention, LatentAttention, SlidingAttention

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "d_kv")

Geometry = dict[str, Any]


def geometry(
    c: Config,
    *,
    hidden: int | None = None,
    heads: tuple[str, ...] = HEADS,
    kv_heads: tuple[str, ...] | int = KV_HEADS,
    head_dim: tuple[str, ...] = HEAD_DIM,
    **traits: Any,
) -> Geometry:
    """Heads, key-value heads and head size as fields of the attention structs, with the family's ``traits`` added.

    Absent key-value heads mean as many as query heads; an explicit head size wins over hidden size / heads.
    """
    width = c.integer(*HIDDEN) if hidden is None else hidden
    query = c.integer(*heads, maximum=1 << 20)
    keys = kv_heads if isinstance(kv_heads, int) else c.optional(*kv_heads, maximum=1 << 20) or query
    size = c.optional(*head_dim)
    if size is None:
        if width % query:
            raise c.fault(heads[0], f"{query:,} does not divide the hidden size {width:,}, and no head size is given")
        size = width // query
    if query % keys:
        spelling = heads[0] if isinstance(kv_heads, int) else next((k for k in kv_heads if c.data.get(k) is not None), heads[0])
        raise c.fault(spelling, f"{keys:,} key-value heads cannot be shared evenly by {query:,} query heads")
    found: Geometry = {"num_attention_heads": query, "num_key_value_heads": keys, "head_dim": size}
    if traits.get("positions", "rotary") == "rotary":
        found["rotary_dim"] = rotary_dim(c, size)
    return found | traits


def rotary_dim(c: Config, head_dim: int) -> int | None:
    """Rotated part of a head where it is not the whole: a size or a share of the head."""
    rope = c.section("rope_parameters")
    size = c.optional("rotary_dim", minimum=0)
    factor = c.number("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percent", default=0.0)
    if rope and not factor:
        factor = rope.number("partial_rotary_factor", default=0.0)
    size = size or int(head_dim * factor)
    return size if 0 < size < head_dim else None


def bias(everywhere: bool = False, *, qkv: bool | None = None, out: bool | None = None) -> Geometry:
    """Bias fields: on q, k and v, and on the output."""
    inputs = everywhere if qkv is None else qkv
    return {"q_bias": inputs, "k_bias": inputs, "v_bias": inputs, "o_bias": everywhere if out is None else out}


def full(g: Geometry, **changes: Any) -> FullAttention:
    """Attention over everything before."""
    return FullAttention(**{**g, **changes})


def sliding(g: Geometry, window: int, **changes: Any) -> SlidingAttention:
    """Attention over a window."""
    return SlidingAttention(**{**g, **changes}, window=window)


def chunked(g: Geometry, chunk: int, **changes: Any) -> ChunkedAttention:
    """Attention within a chunk."""
    return ChunkedAttention(**{**g, **changes}, chunk=chunk)


def of_kind(g: Geometry, word: str, window: int | None) -> FullAttention | SlidingAttention:
    """Full or sliding attention as a pattern says; a window that is null leaves full attention."""
    return sliding(g, window) if word == "sliding" and window else full(g)


def latent(c: Config, **traits: Any) -> LatentAttention:
    """Multi-head latent attention (DeepSeek-V2 and later)."""
    return LatentAttention(
        num_attention_heads=c.integer("num_attention_heads", maximum=1 << 20),
        q_lora_rank=c.optional("q_lora_rank"),
        kv_lora_rank=c.integer("kv_lora_rank"),
        qk_nope_head_dim=c.integer("qk_nope_head_dim"),
        qk_rope_head_dim=c.count("qk_rope_head_dim"),
        v_head_dim=c.integer("v_head_dim"),
        **traits,
    )
