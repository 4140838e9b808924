"""Tokens on their way to whole experts on other ranks and back (wide expert parallelism): two all-to-alls in place of an all-reduce.

DeepSeek-V3 arXiv 2412.19437 section 3.2 and DeepEP: fp8 with scales on the way there where the experts multiply in fp8, 16 bit back.
vLLM `model_executor/models/deepseek_v2.py`: the tensor-parallel ranks of a group share its tokens out first and gather them afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from calc.arrays import Number
from calc.operators.context import LayerContext
from calc.operators.operator import Collective, Operator
from calc.operators.token_copies import SCALE_BLOCK, TokenCopies, copy_bytes, destinations
from calc.operators.work import Requests, Work
from calc.profiles.model import Experts


def own_share(ctx: LayerContext) -> LayerContext:
    """What one rank does of the mixture's own work (router, shared experts): all tokens of its group, or its share of them where
    tokens travel. The share is the mean: a group's tokens differ by one at most."""
    tensor = ctx.sharding.tensor
    if not ctx.sharding.is_wide or tensor == 1:
        return ctx
    tokens = ctx.tokens
    each: Number = tokens // tensor if isinstance(tokens, int) and tokens % tensor == 0 else tokens / tensor
    return replace(ctx, work=Work(ctx.work.phase, (Requests(each, 1, 0, 0),)))


def all_to_all(part: Experts, ctx: LayerContext, width: int) -> tuple[list[Operator], list[Operator]]:
    """(there, back) for a rank's own tokens of ``width`` elements; nothing where experts stay within the group. Steps with prompts go
    by kernels that relay copies inside a host, pure decode steps by kernels for low latency."""
    if not ctx.sharding.is_wide:
        return [], []
    in_fp8 = ctx.numbers.compute_for("experts") == "fp8"
    there = copy_bytes(width, 1, scale_block=SCALE_BLOCK) if in_fp8 else copy_bytes(width, ctx.activation)
    return [_sent("dispatch", part, ctx, there)], [_sent("combine", part, ctx, copy_bytes(width, ctx.activation))]


def _sent(name: str, part: Experts, ctx: LayerContext, bytes_per_copy: int) -> Operator:
    ranks = ctx.sharding.expert_ranks
    relayed = ctx.work.phase != "decode"
    copies = TokenCopies(part.num_experts, part.num_experts_per_token, ctx.tokens * bytes_per_copy, relayed, part.zero_experts)
    found = ctx.collective(name, Collective("all-to-all", ranks, copies.message_bytes(ranks), copies), ctx.count)
    per_token = destinations(part.num_experts, part.num_experts_per_token, ranks, part.zero_experts)
    way = "one a host, relayed inside" if relayed else "straight to each rank"
    return replace(
        found,
        shape=found.shape | {"tokens": ctx.tokens, "bytes_per_copy": bytes_per_copy},
        detail={"ranks_per_token": per_token, "copies": way},
    )


def gathered(group: LayerContext) -> list[Operator]:
    """The tokens of a tensor-parallel group, whole on each of its ranks again."""
    tensor = group.sharding.tensor
    if not group.sharding.is_wide or tensor == 1:
        return []
    message = group.tokens * group.hidden_size * group.activation
    return [group.collective("all_gather", Collective("all-gather", tensor, message), group.count)]
