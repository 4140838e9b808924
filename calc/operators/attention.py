"""Softmax attention over per-head keys and values: MHA, GQA, MQA; full, sliding-window and chunked-local masks; shared caches.

Sources: GQA arXiv 2305.13245; FlashAttention arXiv 2205.14135, 2307.08691 (fused traffic: keys and values once per request).
"""

from __future__ import annotations

from calc.arrays import Number, divide, minimum
from calc.operators import work as step_work
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly, split_or_replicate
from calc.operators.weight import Weight, vector
from calc.profiles.model import BlockSparseAttention, ChunkedAttention, Heads, SlidingAttention


def local_heads(mixer: Heads, tensor: int) -> tuple[int, int]:
    """Query and key-value heads of one rank; key-value heads are replicated when there are fewer than ranks."""
    return (
        split_evenly(mixer.num_attention_heads, tensor, "attention heads"),
        split_or_replicate(mixer.num_key_value_heads, tensor, "key-value heads"),
    )


def weights(mixer: Heads, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank."""
    heads, kv_heads = local_heads(mixer, tensor)
    d_in = mixer.input_size or hidden_size
    q = heads * mixer.head_dim * (2 if mixer.output_gate == "elementwise" else 1)
    k = kv_heads * mixer.head_dim
    v = 0 if mixer.k_eq_v else kv_heads * mixer.value_dim
    bias_k, bias_v = (k if mixer.k_bias else 0), (v if mixer.v_bias else 0)
    bias_q = q if mixer.q_bias else 0
    found: list[Weight] = []
    if mixer.query_rank:
        found.append(Weight("q_a_proj", "attention", d_in, mixer.query_rank))
        if mixer.query_rank_norm:
            found.append(vector("q_a_norm", mixer.query_rank))
        found.append(Weight("q_b_proj", "attention", mixer.query_rank, q, bias=bias_q))
        if mixer.kv_source == "own":
            found.append(Weight("kv_proj", "attention", d_in, k + v, bias=bias_k + bias_v))
    elif mixer.kv_source == "own":
        found.append(Weight("qkv_proj", "attention", d_in, q + k + v, bias=bias_q + bias_k + bias_v))
    else:
        found.append(Weight("q_proj", "attention", d_in, q, bias=bias_q))
    if mixer.kv_source == "shared" and mixer.kv_weights_stored:
        found.append(Weight("kv_proj", "attention", d_in, k + v, bias=bias_k + bias_v, use="idle"))
    if mixer.output_gate == "head":
        found.append(Weight("head_gate", "attention", d_in, heads))
    found += norm_weights(mixer, heads, kv_heads)
    if mixer.sinks:
        found.append(vector("sinks", heads, "attention"))
    out = heads * mixer.value_dim
    if mixer.output_rank:
        groups = mixer.output_groups
        found.append(Weight("o_a_proj", "attention", out // groups, mixer.output_rank, copies=groups))
        found.append(Weight("o_proj", "attention", groups * mixer.output_rank, hidden_size))
    else:
        found.append(Weight("o_proj", "attention", out, hidden_size, bias=hidden_size if mixer.o_bias else 0))
    return found


def norm_weights(mixer: Heads, heads: int, kv_heads: int) -> list[Weight]:
    """Gains of the query and key norms: one head wide, or as wide as the whole projection."""
    if mixer.qk_norm in ("none", "unweighted"):
        return []
    per = 2 if mixer.qk_norm_bias else 1
    if mixer.qk_norm == "head":
        both = 1 if mixer.kv_source == "shared" and not mixer.kv_weights_stored else 2
        return [vector("qk_norm", both * mixer.head_dim * per)]
    return [vector("qk_norm", (heads + kv_heads) * mixer.head_dim * per)]


def cache_law(mixer: Heads, hidden_size: int, tensor: int) -> CacheLaw | None:
    """Keys and values per stored token; None where the layer reads another layer's cache."""
    if mixer.kv_source == "shared" or not mixer.causal:
        return None
    _, kv_heads = local_heads(mixer, tensor)
    kind, limit = "full", None
    if isinstance(mixer, SlidingAttention):
        kind, limit = "sliding", mixer.window
    elif isinstance(mixer, ChunkedAttention):
        kind, limit = "chunked", mixer.chunk
    return CacheLaw(kind, ((kv_heads, mixer.head_dim),), ((kv_heads, mixer.value_dim),), limit)


def visible(mixer: Heads, work: step_work.Work) -> tuple[Number, Number]:
    """(pairs, keys): visible query-key pairs and distinct keys read, summed over the requests of the step."""
    pairs: Number = 0
    keys: Number = 0
    for group in work.groups:
        new, cached = group.new, group.cached
        if isinstance(mixer, SlidingAttention):
            p, k = step_work.window_pairs(new, cached, mixer.window), step_work.window_keys(new, cached, mixer.window)
        elif isinstance(mixer, ChunkedAttention):
            p, k = step_work.chunk_pairs(new, cached, mixer.chunk), step_work.chunk_keys(new, cached, mixer.chunk)
        elif isinstance(mixer, BlockSparseAttention):
            # Kernels read whole blocks: a selection of blocks costs what a window of as many tokens does.
            reach = mixer.block * mixer.topk_blocks
            p, k = step_work.window_pairs(new, cached, reach), step_work.window_keys(new, cached, reach)
        elif mixer.causal:
            p, k = step_work.causal_pairs(new, cached), cached + new
        else:
            p, k = step_work.bidirectional_pairs(new, cached), cached + new
        pairs = pairs + group.count * p
        keys = keys + group.count * k
    return pairs, keys


def score_bytes(operator: Operator, element_bytes: int = 4) -> Number:
    """Bytes that one call of an attention kernel on one rank would move besides its own if it stored its scores in memory: written,
    read and written by softmax, read for the weighted sum, whatever the mask hides. The requests of the step are alike.

    FlashAttention, arXiv 2205.14135, keeps the scores on chip. ``element_bytes`` 4: they are fp32.
    """
    shape = operator.shape
    return 4 * shape["heads"] * shape["tokens"] * divide(shape["keys"], shape["sequences"]) * element_bytes


def operators(mixer: Heads, ctx: LayerContext) -> list[Operator]:
    """Operators of one attention mixer, from projections to output projection (analytic table rows 2-6)."""
    heads, kv_heads = local_heads(mixer, ctx.sharding.tensor)
    own = mixer.kv_source == "own"
    q, k, v = heads * mixer.head_dim, kv_heads * mixer.head_dim, kv_heads * mixer.value_dim
    cached_elements = (k + v) if own else 0
    token_bytes = vector_bytes(mixer, kv_heads, ctx)
    written = ctx.tokens * token_bytes if own and mixer.causal else 0
    fused_write = not ctx.policy.kv_write
    found: list[Operator] = []
    for weight in weights(mixer, ctx.hidden_size, ctx.sharding.tensor):
        if weight.vector or weight.use == "idle" or weight.name in ("o_proj", "o_a_proj"):
            continue
        makes_keys = weight.name in ("qkv_proj", "kv_proj")
        kept = weight.d_out - (cached_elements if makes_keys and fused_write and mixer.causal else 0)
        found.append(ctx.linear(weight, written=max(0, kept), makes_kv_bytes=written if makes_keys else 0))
    rotated = mixer.positions == "rotary"
    if rotated or mixer.qk_norm != "none":
        width = q + (k if own else 0)
        rotary_dim = mixer.rotary_dim or mixer.head_dim
        vector_flops = (4 * ctx.tokens * width if mixer.qk_norm != "none" else 0) + (
            3 * ctx.tokens * (heads + (kv_heads if own else 0)) * rotary_dim if rotated else 0
        )
        name = "qk_norm_rope" if mixer.qk_norm != "none" and rotated else "rope" if rotated else "qk_norm"
        found.append(ctx.elementwise(name, width, width, vector_flops=vector_flops, moves=ctx.policy.position))
    if own and mixer.causal and not fused_write:
        found.append(ctx.kv_cache_write(k + v, written))
    for part in ctx.parts():
        stored = part.tokens * token_bytes if own and mixer.causal else 0
        found.append(core(mixer, part, *visible(mixer, part.work), token_bytes=token_bytes, stored_bytes=stored))
    found += [ctx.linear(w) for w in weights(mixer, ctx.hidden_size, ctx.sharding.tensor) if w.name in ("o_a_proj", "o_proj")]
    return found


def vector_bytes(mixer: Heads, kv_heads: int, ctx: LayerContext) -> float:
    """Bytes of the keys and values of one token on one rank."""
    law = CacheLaw("full", ((kv_heads, mixer.head_dim),), ((kv_heads, mixer.value_dim),))
    return law.token_bytes(ctx.numbers.keys, ctx.numbers.values)


def core(mixer: Heads, ctx: LayerContext, pairs: Number, keys: Number, *, token_bytes: float, stored_bytes: Number) -> Operator:
    """Scores, softmax and weighted sum as one fused kernel: queries in, output out, keys and values read once per request.

    ``token_bytes`` are those of the keys and values of one token, ``stored_bytes`` what this step adds to the cache.
    Without a causal mask (an encoder) keys and values are activations of this step rather than cache.
    """
    heads, kv_heads = local_heads(mixer, ctx.sharding.tensor)
    width = mixer.head_dim + mixer.value_dim
    return Operator(
        "attention",
        "attention",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {
            "tokens": ctx.tokens,
            "sequences": ctx.work.sequences,
            "pairs": pairs,
            "keys": keys,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": mixer.head_dim,
            "v_head_dim": mixer.value_dim,
        },
        ctx.numbers.compute,
        flops=2 * heads * width * pairs,
        vector_flops=4 * heads * pairs,
        exponentials=heads * pairs,
        weight_bytes=2 * heads if mixer.sinks else 0,
        activation_bytes=(ctx.tokens * heads + (0 if mixer.causal else keys * kv_heads)) * width * ctx.activation,
        kv_read_bytes=keys * token_bytes if mixer.causal else 0,
        new_kv_read_bytes=minimum(keys * token_bytes, stored_bytes),
        stored_kv_bytes=stored_bytes,
        detail={"mask": type(mixer).__struct_config__.tag or "full"},
    )
