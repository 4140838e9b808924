"""Decode context parallelism: the ranks of a tensor-parallel group that would hold the same keys and values share the tokens out.

Each rank gathers the queries of its group, attends to its own part of the tokens, and the partial outputs are weighted by their
log-sum-exp and reduced to the heads of each rank (vLLM ``--decode-context-parallel-size``; analytic_times 6.7 of the sources). A prompt
attends to its own keys where they are made; those of cached tokens are gathered first.
"""

from __future__ import annotations

from dataclasses import replace

from calc.arrays import Number
from calc.errors import UsageError
from calc.operators.context import LayerContext
from calc.operators.operator import Collective, Operator
from calc.operators.sharding import Sharding, divisors
from calc.profiles.model import Heads, ModelProfile

_PARTIAL_BYTES = 4  # partial outputs and their log-sum-exp are fp32


def check(model: ModelProfile, sharding: Sharding) -> None:
    """Raise UsageError where there are fewer copies of the keys and values than ranks that would share them: tensor parallel size over
    key-value heads (all ranks for one latent vector)."""
    ranks = sharding.decode_context
    if ranks == 1:
        return
    for kind in model.layer_kinds.values():
        for mixer in kind.mixers:
            if not isinstance(mixer, Heads):
                continue
            heads, tensor = mixer.num_key_value_heads, sharding.tensor
            copies = max(1, tensor // heads)
            if copies % ranks:
                fitting = ", ".join(map(str, divisors(copies)))
                raise UsageError(
                    f"decode context parallel size {ranks} does not divide the {copies} copies that tensor parallel size {tensor} "
                    f"makes of {heads} key-value heads",
                    f"sizes that do: {fitting}; {heads * ranks} tensor-parallel ranks make {ranks} copies",
                )


def part_of(total: Number, ranks: int) -> Number:
    """The share of one rank, whole where it divides."""
    return total // ranks if isinstance(total, int) and total % ranks == 0 else total / ranks


def shared_out(operators: list[Operator], ctx: LayerContext) -> list[Operator]:
    """The operators of a mixer when ``decode_context`` ranks share the cached tokens: each writes and reads its part of them. (An
    indexer's scores are still counted whole on every rank.)"""
    ranks = ctx.sharding.decode_context
    if ranks == 1:
        return operators
    found: list[Operator] = []
    for operator in operators:
        if not _decodes(operator, ctx):
            found += _prompting(operator, ctx, ranks)
        elif operator.op_class == "attention" and "v_head_dim" in operator.shape:
            found += _decoding(operator, ctx, ranks)
        else:
            found.append(_divided(operator, ranks))
    return found


def _decodes(operator: Operator, ctx: LayerContext) -> bool:
    """Whether an operator serves one new token a request. Kernels of a mixed step that depend on lengths run for each kind apart."""
    if ctx.work.phase != "mixed":
        return ctx.work.phase == "decode"
    same = operator.shape.get("tokens", 0) == operator.shape.get("sequences", 1)
    return same if isinstance(same, bool) else bool(same.all())


def _divided(operator: Operator, ranks: int) -> Operator:
    """The part of one rank of what is read and written of the cache."""
    return replace(
        operator,
        kv_read_bytes=part_of(operator.kv_read_bytes, ranks),
        kv_write_bytes=part_of(operator.kv_write_bytes, ranks),
        new_kv_read_bytes=part_of(operator.new_kv_read_bytes, ranks),
        stored_kv_bytes=part_of(operator.stored_kv_bytes, ranks),
    )


def _decoding(operator: Operator, ctx: LayerContext, ranks: int) -> list[Operator]:
    """Queries of all heads of the group against a part of the keys: as many products, ``ranks`` times the queries and outputs."""
    shape = dict(operator.shape)
    heads, rows = shape["heads"] * ranks, shape["tokens"]
    shape |= {"heads": heads, "pairs": part_of(shape["pairs"], ranks), "keys": part_of(shape["keys"], ranks)}
    core = replace(_divided(operator, ranks), shape=shape, activation_bytes=operator.activation_bytes * ranks)
    queries = rows * heads * shape["head_dim"] * ctx.activation
    outputs = rows * heads * shape["v_head_dim"] * _PARTIAL_BYTES
    weights = rows * heads * ranks * _PARTIAL_BYTES
    return [
        ctx.collective("query_all_gather", Collective("all-gather", ranks, queries), ctx.count),
        core,
        ctx.collective("log_sum_exp_all_gather", Collective("all-gather", ranks, weights), ctx.count),
        ctx.collective("output_reduce_scatter", Collective("reduce-scatter", ranks, outputs), ctx.count),
    ]


def _prompting(operator: Operator, ctx: LayerContext, ranks: int) -> list[Operator]:
    """A prompt reads its own keys as they are made, of which each rank keeps its part, and those of cached tokens from all ranks."""
    cached = operator.kv_read_bytes - operator.new_kv_read_bytes
    own = replace(_divided(operator, ranks), new_kv_read_bytes=operator.new_kv_read_bytes)
    own = replace(own, kv_read_bytes=operator.new_kv_read_bytes + part_of(cached, ranks))
    if isinstance(cached, (int, float)) and cached <= 0:
        return [own]
    return [ctx.collective("cache_all_gather", Collective("all-gather", ranks, cached), ctx.count), own]
