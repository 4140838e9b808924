"""Block-sparse attention (MiniMax-M3): grouped-query attention over the best blocks of keys, chosen by a small index."""

from __future__ import annotations

from calc.arrays import minimum
from calc.operators import attention
from calc.operators import work as step_work
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.weight import Weight, vector
from calc.profiles.model import BlockSparseAttention


def index_weights(mixer: BlockSparseAttention, hidden_size: int) -> list[Weight]:
    """Index queries, one index key per token, and a gain for each; whole on every rank."""
    return [
        Weight("index_q_proj", "attention", hidden_size, mixer.index_heads * mixer.index_head_dim),
        Weight("index_k_proj", "attention", hidden_size, mixer.index_head_dim),
        vector("index_norm", 2 * mixer.index_head_dim),
    ]


def weights(mixer: BlockSparseAttention, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: those of grouped-query attention and of the index."""
    return attention.weights(mixer, hidden_size, tensor) + index_weights(mixer, hidden_size)


def cache_law(mixer: BlockSparseAttention, hidden_size: int, tensor: int) -> CacheLaw:
    """Every key and value is kept, any block may be chosen later; plus one index key per token, whole on every rank."""
    _, kv_heads = attention.local_heads(mixer, tensor)
    keys = ((kv_heads, mixer.head_dim), (1, mixer.index_head_dim))
    return CacheLaw("full", keys, ((kv_heads, mixer.value_dim),))


def operators(mixer: BlockSparseAttention, ctx: LayerContext) -> list[Operator]:
    """Operators of grouped-query attention, with the index ahead of the attention kernel."""
    found = attention.operators(mixer, ctx)
    kernel = next(i for i, operator in enumerate(found) if operator.name == "attention")
    return [*found[:kernel], *_index(mixer, ctx), *found[kernel:]]


def _index(mixer: BlockSparseAttention, ctx: LayerContext) -> list[Operator]:
    """Scores of every visible key, the best of each block, and the choice of blocks."""
    query, key, _ = index_weights(mixer, ctx.hidden_size)
    heads, width = mixer.index_heads, mixer.index_head_dim
    pairs = sum(g.count * step_work.causal_pairs(g.new, g.cached) for g in ctx.work.groups)
    keys = sum(g.count * (g.cached + g.new) for g in ctx.work.groups)
    key_bytes = ctx.numbers.keys.vector_bytes(width)
    both = query.d_out + key.d_out
    return [
        ctx.linear(query),
        ctx.linear(key),
        ctx.elementwise("index_norm_rope", both, both, vector_flops=7 * ctx.tokens * both, moves=ctx.policy.position),
        Operator(
            "index_score",
            "attention",
            ctx.layers,
            ctx.count,
            ctx.ranks,
            {"tokens": ctx.tokens, "pairs": pairs, "keys": keys, "heads": heads, "kv_heads": 1, "head_dim": width},
            ctx.numbers.compute,
            flops=2 * heads * width * pairs,
            vector_flops=heads * pairs,
            # queries in, new key through; one fp32 score per block and head written and read by the selection
            activation_bytes=ctx.tokens * both * ctx.activation + 8 * heads * pairs / mixer.block,
            kv_read_bytes=keys * key_bytes,
            new_kv_read_bytes=minimum(keys, ctx.tokens) * key_bytes,
            stored_kv_bytes=ctx.tokens * key_bytes,
            kv_write_bytes=ctx.tokens * key_bytes,
        ),
    ]
