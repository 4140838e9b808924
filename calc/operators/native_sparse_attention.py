"""Native sparse attention, arXiv 2502.11089: three branches per query, over compressed keys, over the best blocks, and over a window.

A compressed key stands for ``compressed_block`` tokens, one every ``stride``; blocks are chosen by the scores of the compressed branch,
which cost nothing more. Reads and FLOP shrink, the main cache does not: any block may be chosen later.
"""

from __future__ import annotations

from dataclasses import replace

from calc.arrays import Number, minimum
from calc.operators import attention
from calc.operators import work as step_work
from calc.operators.cache_law import CacheLaw
from calc.operators.compressed_attention import entries_seen
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.weight import Weight, vector
from calc.profiles.model import NativeSparseAttention

BRANCHES = ("compressed", "selected", "window")


def weights(mixer: NativeSparseAttention, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: those of grouped-query attention, keys and values of the two further branches where each has its own,
    a gate per head and branch, and the compressor as one total, whole on every rank."""
    heads, kv_heads = attention.local_heads(mixer, tensor)
    d_in, width = mixer.input_size or hidden_size, kv_heads * (mixer.head_dim + mixer.value_dim)
    found = attention.weights(mixer, hidden_size, tensor)
    further = [Weight("branch_kv_proj", "attention", d_in, 2 * width)] if mixer.own_keys else []
    further.append(Weight("branch_gate", "attention", d_in, len(BRANCHES) * heads))
    if mixer.compressor_parameters:
        further.append(vector("compressor", mixer.compressor_parameters, "attention"))
    return [*found[:-1], *further, found[-1]]


def cache_law(mixer: NativeSparseAttention, hidden_size: int, tensor: int) -> tuple[CacheLaw, ...]:
    """Keys and values of every token, of every compressed key, and of a window where that branch has its own. The compressor's running
    block (a few tokens per sequence) is not counted."""
    _, kv_heads = attention.local_heads(mixer, tensor)
    keys, values = ((kv_heads, mixer.head_dim),), ((kv_heads, mixer.value_dim),)
    found = (CacheLaw("full", keys, values), CacheLaw("compressed", keys, values, tokens_per_entry=mixer.stride))
    return (*found, CacheLaw("sliding", keys, values, limit=mixer.window)) if mixer.own_keys else found


def seen(mixer: NativeSparseAttention, work: step_work.Work) -> dict[str, tuple[Number, Number]]:
    """(pairs, keys) of each branch, summed over the requests of the step. One query sees c / stride compressed keys, as many tokens as
    the chosen blocks hold, and the window; kernels read whole blocks."""
    found: dict[str, tuple[Number, Number]] = {}
    chosen = mixer.selected_blocks * mixer.block
    for group in work.groups:
        new, cached, n = group.new, group.cached, group.count
        entries = entries_seen(cached + new, mixer.stride) - entries_seen(cached, mixer.stride)
        branches = {
            "compressed": (entries, (cached + new) // mixer.stride),
            "selected": (step_work.window_pairs(new, cached, chosen), step_work.window_keys(new, cached, chosen)),
            "window": (step_work.window_pairs(new, cached, mixer.window), step_work.window_keys(new, cached, mixer.window)),
        }
        for branch, (pairs, keys) in branches.items():
            before = found.get(branch, (0, 0))
            found[branch] = (before[0] + n * pairs, before[1] + n * keys)
    return found


def new_entries(mixer: NativeSparseAttention, work: step_work.Work) -> Number:
    """Compressed keys that complete in a step."""
    made: Number = 0
    for group in work.groups:
        made = made + group.count * ((group.cached + group.new) // mixer.stride - group.cached // mixer.stride)
    return made


def operators(mixer: NativeSparseAttention, ctx: LayerContext) -> list[Operator]:
    """Operators of grouped-query attention; in place of its kernel the compressor and a kernel for each branch."""
    found = [o for o in attention.operators(mixer, ctx) if o.name != "attention"]
    own = {w.name: w for w in weights(mixer, ctx.hidden_size, ctx.sharding.tensor)}
    _, kv_heads = attention.local_heads(mixer, ctx.sharding.tensor)
    each, width = attention.vector_bytes(mixer, kv_heads, ctx), kv_heads * (mixer.head_dim + mixer.value_dim)
    branches: list[Operator] = []
    if mixer.own_keys:
        branches.append(ctx.linear(own["branch_kv_proj"], makes_kv_bytes=ctx.tokens * each))
        if ctx.policy.kv_write:
            branches.append(ctx.kv_cache_write(width, ctx.tokens * each))
    branches += [ctx.linear(own["branch_gate"]), _compress(mixer, ctx, width, each)]
    for part in ctx.parts():
        made, tokens = new_entries(mixer, part.work) * each, part.tokens * each
        stored = {"compressed": made, "selected": tokens, "window": tokens if mixer.own_keys else 0}
        for branch, (pairs, keys) in seen(mixer, part.work).items():
            core = attention.core(mixer, part, pairs, keys, token_bytes=each, stored_bytes=stored[branch])
            new = minimum(keys * each, made if branch == "compressed" else tokens)
            branches.append(replace(core, name=f"attention_{branch}", new_kv_read_bytes=new))
    blended = mixer.num_attention_heads // ctx.sharding.tensor * mixer.value_dim
    branches.append(ctx.elementwise("branch_blend", 3 * blended, blended, vector_flops=5 * ctx.tokens * blended))
    return [*found[:-1], *branches, found[-1]]


def _compress(mixer: NativeSparseAttention, ctx: LayerContext, width: int, each: float) -> Operator:
    """A weighted sum of ``compressed_block`` tokens for each compressed key and value: 2 FLOP a token and element (a linear compressor,
    analytic attention 3.8 of the sources)."""
    made = new_entries(mixer, ctx.work)
    return Operator(
        "compress_kv",
        "elementwise",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"entries": made, "n": width},
        ctx.numbers.compute,
        vector_flops=2 * mixer.compressed_block * width * made,
        weight_bytes=2 * mixer.compressor_parameters,
        activation_bytes=ctx.tokens * width * ctx.activation,
        kv_write_bytes=made * each,
    )
