"""Compressed sparse attention of DeepSeek-V4: one shared key-value head, a window of recent tokens and entries of ``ratio`` tokens.

Source: DeepSeek-V4 configuration (compress_ratios, o_groups, o_lora_rank); vLLM packs an entry into 584 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, minimum
from calc.operators import indexer as lightning
from calc.operators import work as step_work
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly
from calc.operators.weight import Weight, vector
from calc.profiles.model import CompressedAttention


def compresses(mixer: CompressedAttention) -> bool:
    """Whether the layer keeps compressed entries beside its window."""
    return mixer.ratio > 1


def overlap(ratio: int) -> int:
    """Width factor of the compressor: at ratio 4 an entry overlaps the previous one and the projections are twice as wide."""
    return 2 if ratio == 4 else 1


def weights(mixer: CompressedAttention, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: queries and output groups by heads; the key-value head, compressor and indexer replicated."""
    heads = split_evenly(mixer.num_attention_heads, tensor, "attention heads")
    groups = split_evenly(mixer.output_groups, tensor, "output groups")
    width, rank = mixer.head_dim, mixer.query_rank
    found = [
        Weight("fused_qkv_a_proj", "attention", hidden_size, rank + width),
        vector("q_a_norm", rank),
        vector("kv_norm", width),
        Weight("q_b_proj", "attention", rank, heads * width),
    ]
    if compresses(mixer):
        found += _compressor("compressor", hidden_size, mixer.ratio, width)
    if mixer.indexer is not None and lightning.owns(mixer.indexer):
        found += lightning.weights(mixer.indexer, hidden_size, rank, keys=False)
        found += _compressor("index_compressor", hidden_size, mixer.ratio, mixer.indexer.head_dim)
    if mixer.sinks:
        found.append(vector("sinks", heads, "attention"))
    found.append(Weight("o_a_proj", "attention", heads * width // groups, mixer.output_rank, copies=groups))
    return [*found, Weight("o_proj", "attention", groups * mixer.output_rank, hidden_size)]


def _compressor(name: str, hidden_size: int, ratio: int, width: int) -> list[Weight]:
    """Value and gate projections, a position bias for each of the ``ratio`` tokens, and a norm."""
    wide = overlap(ratio) * width
    return [
        Weight(f"{name}_proj", "attention", hidden_size, 2 * wide),
        vector(f"{name}_position", ratio * wide, "attention"),
        vector(f"{name}_norm", width),
    ]


def cache_law(mixer: CompressedAttention, hidden_size: int, tensor: int) -> tuple[CacheLaw, ...]:
    """A window of vectors that serve as key and value, and one such entry per ``ratio`` tokens with its index key, on every rank.

    The compressor's running block (a few vectors per sequence) is not counted.
    """
    vectors = ((1, mixer.head_dim),)
    window = CacheLaw("sliding", vectors, limit=mixer.window)
    if not compresses(mixer):
        return (window,)
    entries = CacheLaw(
        "compressed",
        vectors,
        tokens_per_entry=mixer.ratio,
        extra_bytes_per_token=lightning.key_bytes(mixer.indexer),
    )
    return window, entries


def entries_seen(tokens: Number, ratio: int, most: int | None = None) -> Number:
    """Sum of ``min(floor(i / ratio), most)`` over positions i = 1..``tokens``: complete entries that each position sees."""
    if most is not None:
        reach = minimum(tokens, most * ratio)
        return entries_seen(reach, ratio) + (tokens - reach) * most
    full, rest = tokens // ratio, tokens % ratio
    return ratio * full * (full - 1) // 2 + full * (rest + 1)


@dataclass(frozen=True, slots=True)
class Seen:
    """Totals over the requests of a step: pairs and keys of the window and of entries, entries scored, read and made."""

    pairs: Number = 0
    keys: Number = 0
    scored_pairs: Number = 0
    entries: Number = 0
    new_entries: Number = 0


def seen(mixer: CompressedAttention, work: step_work.Work) -> Seen:
    """What the new tokens attend to: the window, and all complete entries or the best of them."""
    most = mixer.indexer.topk if mixer.indexer else None
    total = Seen()
    for group in work.groups:
        new, cached, n = group.new, group.cached, group.count
        pairs = step_work.window_pairs(new, cached, mixer.window)
        keys = step_work.window_keys(new, cached, mixer.window)
        scored: Number = 0
        entries: Number = 0
        made: Number = 0
        if compresses(mixer):
            entries = (cached + new) // mixer.ratio
            made = entries - cached // mixer.ratio
            scored = entries_seen(cached + new, mixer.ratio) - entries_seen(cached, mixer.ratio)
            pairs = pairs + entries_seen(cached + new, mixer.ratio, most) - entries_seen(cached, mixer.ratio, most)
            keys = keys + (entries if most is None else minimum(entries, most + new - 1))
        total = Seen(
            total.pairs + n * pairs,
            total.keys + n * keys,
            total.scored_pairs + n * scored,
            total.entries + n * entries,
            total.new_entries + n * made,
        )
    return total


def operators(mixer: CompressedAttention, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer: projections, compressor, indexer, attention over window and entries, grouped output projection."""
    held = {w.name: w for w in weights(mixer, ctx.hidden_size, ctx.sharding.tensor)}
    heads = held["q_b_proj"].d_out // mixer.head_dim
    total = seen(mixer, ctx.work)
    vector_bytes = ctx.numbers.keys.vector_bytes(mixer.head_dim)
    normed, rotated = mixer.query_rank + mixer.head_dim, (heads + 1) * mixer.rotary_dim
    written, fused_write = (ctx.tokens + total.new_entries) * vector_bytes, not ctx.policy.kv_write
    found = [
        ctx.linear(
            held["fused_qkv_a_proj"],
            written=mixer.query_rank if fused_write else None,
            makes_kv_bytes=written,
        ),
        ctx.linear(held["q_b_proj"]),
        ctx.elementwise(
            "latent_norm", normed, normed, vector_flops=4 * ctx.tokens * normed, weight_bytes=2 * normed, moves=ctx.policy.norm
        ),
        ctx.elementwise("rope", rotated, rotated, vector_flops=3 * ctx.tokens * rotated, moves=ctx.policy.position),
    ]
    if compresses(mixer):
        found += _compress("compressor", held, ctx, total.new_entries)
    if not fused_write:
        found.append(ctx.kv_cache_write(mixer.head_dim, written))
    if mixer.indexer is not None and lightning.owns(mixer.indexer):
        found += _compress("index_compressor", held, ctx, total.new_entries)
        found += lightning.operators(
            mixer.indexer,
            ctx,
            [held["index_q_proj"], held["index_weights_proj"]],
            pairs=total.scored_pairs,
            keys=total.entries,
            new_keys=total.new_entries,
        )
    found.append(_core(mixer, ctx, heads, total, vector_bytes))
    return [*found, ctx.linear(held["o_a_proj"]), ctx.linear(held["o_proj"])]


def _compress(name: str, held: dict[str, Weight], ctx: LayerContext, new_entries: Number) -> list[Operator]:
    """Values and gates of every token, then their softmax-weighted sum over the tokens of each entry that completes."""
    projection, position, norm = held[f"{name}_proj"], held[f"{name}_position"], held[f"{name}_norm"]
    wide = projection.d_out // 2
    pool = Operator(
        name,
        "elementwise",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"m": ctx.tokens, "n": projection.d_out},
        ctx.numbers.compute,
        vector_flops=6 * ctx.tokens * wide,
        exponentials=ctx.tokens * wide,
        weight_bytes=2 * (position.elements + norm.elements),
        activation_bytes=(ctx.tokens * 2 * wide + new_entries * norm.elements) * ctx.activation,
    )
    return [ctx.linear(projection), pool]


def _core(mixer: CompressedAttention, ctx: LayerContext, heads: int, total: Seen, vector_bytes: float) -> Operator:
    """Multi-query attention whose one vector per entry is key and value."""
    width = mixer.head_dim
    return Operator(
        "attention",
        "attention",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {
            "tokens": ctx.tokens,
            "sequences": ctx.work.sequences,
            "pairs": total.pairs,
            "keys": total.keys,
            "heads": heads,
            "kv_heads": 1,
            "head_dim": width,
            "v_head_dim": width,
        },
        ctx.numbers.compute,
        flops=4 * heads * width * total.pairs,
        vector_flops=4 * heads * total.pairs,
        exponentials=heads * total.pairs,
        weight_bytes=2 * heads if mixer.sinks else 0,
        activation_bytes=2 * ctx.tokens * heads * width * ctx.activation,
        kv_read_bytes=total.keys * vector_bytes,
        new_kv_read_bytes=minimum(total.keys, ctx.tokens + total.new_entries) * vector_bytes,
        stored_kv_bytes=(ctx.tokens + total.new_entries) * vector_bytes,
        detail={"mask": "compressed", "ratio": mixer.ratio},
    )
