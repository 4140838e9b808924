"""The lightning indexer of DeepSeek sparse attention: scores every visible key in fp8 and keeps the best ``topk``.

Sources: DeepSeek-V3.2-Exp report; vLLM `vllm/v1/kv_cache_interface.py` (132 bytes a token: 128 in fp8 and one fp32 scale).
"""

from __future__ import annotations

from calc.arrays import Number, minimum
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.weight import Weight, vector
from calc.profiles.model import Indexer

SCALE_GROUP = 128  # elements of an index key that share one fp32 scale


def owns(indexer: Indexer | None) -> bool:
    """Whether the layer scores keys itself; a shared indexer reuses the selection of an earlier layer."""
    return indexer is not None and indexer.role == "full"


def key_bytes(indexer: Indexer | None) -> int:
    """Bytes of one index key: fp8 elements and an fp32 scale per 128. Nothing where the layer has no indexer of its own."""
    if indexer is None or indexer.role != "full":
        return 0
    return indexer.head_dim + 4 * -(-indexer.head_dim // SCALE_GROUP)


def weights(indexer: Indexer, hidden_size: int, query_rank: int | None, *, keys: bool = True) -> list[Weight]:
    """Query, key and head-weight projections, whole on every rank. ``keys`` False: keys come from a compressor of its own."""
    if indexer.role != "full":
        return []
    found = [Weight("index_q_proj", "attention", query_rank or hidden_size, indexer.num_heads * indexer.head_dim)]
    if keys:
        found.append(Weight("index_k_proj", "attention", hidden_size, indexer.head_dim))
        found.append(vector("index_k_norm", 2 * indexer.head_dim))  # a LayerNorm: gain and bias
    return [*found, Weight("index_weights_proj", "attention", hidden_size, indexer.num_heads)]


def operators(
    indexer: Indexer, ctx: LayerContext, projections: list[Weight], *, pairs: Number, keys: Number, new_keys: Number
) -> list[Operator]:
    """Projections, scores of all visible keys, and the selection, for an indexer of its own.

    ``pairs`` and ``keys`` count visible (query, index key) pairs and distinct index keys, ``new_keys`` the index keys made in this
    step. Scores are made in fp8 where the device has it; they are counted also while every key is still selected.
    """
    heads, width = indexer.num_heads, indexer.head_dim
    rotated = (heads + 1) * width
    score = Operator(
        "index_score",
        "attention",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"tokens": ctx.tokens, "pairs": pairs, "keys": keys, "heads": heads, "kv_heads": 1, "head_dim": width},
        "fp8" if "fp8" in ctx.numbers.low_precision else ctx.numbers.compute,
        flops=2 * heads * width * pairs,
        vector_flops=2 * heads * pairs,  # ReLU, then the sum over heads with their weights
        activation_bytes=ctx.tokens * (heads * width + 2 * heads) + 4 * pairs,  # fp8 queries and head weights in, fp32 logits out
        kv_read_bytes=keys * key_bytes(indexer),
        new_kv_read_bytes=minimum(keys, new_keys) * key_bytes(indexer),
        stored_kv_bytes=new_keys * key_bytes(indexer),
        kv_write_bytes=new_keys * key_bytes(indexer),
    )
    selection = Operator(
        "index_topk",
        "elementwise",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"tokens": ctx.tokens, "pairs": pairs, "topk": indexer.topk},
        ctx.numbers.compute,
        vector_flops=pairs,
        activation_bytes=4 * pairs + 4 * ctx.tokens * indexer.topk,  # one pass over the logits, indices out
    )
    rope = ctx.elementwise("index_rope", rotated, rotated, vector_flops=3 * ctx.tokens * rotated, moves=ctx.policy.position)
    return [*(ctx.linear(w) for w in projections if not w.vector), rope, score, selection]
