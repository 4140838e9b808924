"""Mixture of experts: router, routed experts as grouped matrix products, shared experts, latent and zero-computation variants.

Whole experts dealt out over data-parallel ranks: tokens travel (``dispatch``), and the ranks of one tensor-parallel group share their
tokens out before it, so that the shared experts lie whole on every rank (vLLM's sequence-parallel mixture).
"""

from __future__ import annotations

from calc.arrays import Number, divide
from calc.operators import dispatch, feed_forward
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.routing import distinct_experts
from calc.operators.sharding import deal_out, split_columns
from calc.operators.weight import Weight, vector
from calc.profiles.model import Experts


def weights(part: Experts, hidden_size: int, tensor: int, *, expert_ranks: int = 1) -> list[Weight]:
    """Weight tensors of one rank. Tensor parallelism splits every expert's width, expert parallelism deals out whole experts to
    ``expert_ranks``; the router and the latent projections are replicated, the shared experts where these are more than ``tensor``."""
    scored = part.num_experts + part.zero_experts
    found = [Weight("router", "router", hidden_size, scored, bias=scored if part.router_bias else 0)]
    if part.correction_bias:
        found.append(vector("router_correction_bias", scored, "router"))
    if part.latent_size:
        found.append(Weight("latent_down_proj", "feed_forward", hidden_size, part.latent_size))
    found += expert_weights(part, hidden_size, tensor, expert_ranks=expert_ranks)
    if part.latent_size:
        found.append(Weight("latent_up_proj", "feed_forward", part.latent_size, hidden_size))
    if part.shared:
        found += feed_forward.matrices(
            hidden_size,
            hidden_size,
            split_columns(part.shared.intermediate_size, 1 if expert_ranks > tensor else tensor),
            gated=part.shared.gated,
            bias=False,
            role="shared_experts",
            prefix="shared_",
        )
        if part.shared.gate:
            found.append(Weight("shared_gate", "shared_experts", hidden_size, 1))
    return found


def expert_weights(part: Experts, hidden_size: int, tensor: int, *, expert_ranks: int = 1) -> list[Weight]:
    """Up (and gate) and down matrices of the routed experts, ``copies`` of them on one rank."""
    whole = expert_ranks > 1
    copies = deal_out(part.num_experts, expert_ranks)
    width = part.intermediate_size if whole else split_columns(part.intermediate_size, tensor)
    size = part.latent_size or hidden_size
    up, down = feed_forward.matrices(size, size, width, gated=part.gated, bias=part.bias, role="experts", prefix="experts_")
    return [
        Weight(up.name, up.role, up.d_in, up.d_out, copies=copies, bias=up.bias),
        Weight(down.name, down.role, down.d_in, down.d_out, copies=copies, bias=down.bias),
    ]


def operators(part: Experts, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixture: router, permute, grouped products, combine, and the shared experts; where experts lie on data-parallel
    ranks, the way there and back."""
    group, ctx = ctx, dispatch.own_share(ctx)
    held = {w.name: w for w in weights(part, ctx.hidden_size, ctx.sharding.tensor, expert_ranks=ctx.sharding.expert_ranks)}
    found = _router(part, ctx, held["router"])
    if part.latent_size:
        found.append(ctx.linear(held["latent_down_proj"]))
    found += _routed(part, ctx)
    if part.latent_size:
        found.append(ctx.linear(held["latent_up_proj"]))
    if part.shared:
        up = held["shared_gate_up_proj" if part.shared.gated else "shared_up_proj"]
        down = held["shared_down_proj"]
        found += [ctx.linear(up), feed_forward.activation(ctx, up.d_out, down.d_in, "shared_activation"), ctx.linear(down)]
        if part.shared.gate:
            found.append(ctx.linear(held["shared_gate"]))
    return found + dispatch.gathered(group)


def _router(part: Experts, ctx: LayerContext, weight: Weight) -> list[Operator]:
    """Scores of all experts, whole on every rank, and the choice of the best. A hash router takes the choice from a table of token
    ids but still weighs the chosen experts by their scores."""
    scored = weight.d_out
    choice = ctx.elementwise(
        "router_topk",
        scored,
        2 * part.num_experts_per_token,
        vector_flops=4 * ctx.tokens * scored,
        exponentials=ctx.tokens * scored,
        weight_bytes=2 * scored if part.correction_bias else 0,
        moves=ctx.policy.activation,
    )
    return [ctx.linear(weight), choice]


def computing_per_token(part: Experts) -> float:
    """Experts per token that compute: with zero-computation experts only their share of the scored ones, on average."""
    if not part.zero_experts:
        return part.num_experts_per_token
    return part.num_experts_per_token * part.num_experts / (part.num_experts + part.zero_experts)


def active_experts(part: Experts, tokens: Number, skew: float = 0.0) -> Number:
    """Expected number of distinct computing experts that a step hits."""
    return distinct_experts(part.num_experts, computing_per_token(part), tokens, skew)


def _routed(part: Experts, ctx: LayerContext) -> list[Operator]:
    """Permute tokens to their experts, two grouped products with the activation between, combine with the router's weights.

    Under expert parallelism a rank holds whole experts and its share of the copies of all tokens; otherwise a slice of every expert.
    """
    share = ctx.sharding.expert_ranks
    up, down = expert_weights(part, ctx.hidden_size, ctx.sharding.tensor, expert_ranks=share)
    rows = ctx.routed_tokens * computing_per_token(part) / share
    active = active_experts(part, ctx.routed_tokens, ctx.routing_skew) / share
    size, width = up.d_in, down.d_in
    copied = rows * size * ctx.activation
    through = ctx.tokens * size * ctx.activation
    there, back = dispatch.all_to_all(part, ctx, size)
    return [
        *there,
        _moved("moe_permute", ctx, rows, size, through + copied),
        _grouped(up, ctx, rows, active),
        ctx.elementwise(
            "experts_activation",
            up.d_out,
            width,
            vector_flops=5 * rows * width,
            exponentials=rows * width,
            tokens=rows,
            moves=ctx.policy.activation,
        ),
        _grouped(down, ctx, rows, active),
        *back,
        _moved("moe_combine", ctx, rows, size, through + copied, vector_flops=2 * rows * size),
    ]


def _grouped(weight: Weight, ctx: LayerContext, rows: Number, active: Number) -> Operator:
    """One product per active expert: of the ``copies`` experts on the rank only those that a token hits are read."""
    number_format = ctx.numbers.weight(weight.role)
    each = Weight(weight.name, weight.role, weight.d_in, weight.d_out, bias=weight.bias)
    return Operator(
        weight.name,
        "experts",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {
            "experts": weight.copies,
            "active": active,
            "m": divide(rows, active),  # rows per active expert
            "n": weight.d_out,
            "k": weight.d_in,
        },
        ctx.numbers.compute_for(weight.role),
        flops=2 * rows * weight.d_in * weight.d_out,
        weight_bytes=active * each.bytes(number_format),
        activation_bytes=rows * (weight.d_in + weight.d_out) * ctx.activation,
        weight_format=number_format.name,
    )


def _moved(name: str, ctx: LayerContext, rows: Number, size: int, moved: Number, *, vector_flops: Number = 0) -> Operator:
    """A copy between the order of tokens and the order of experts; fused kernels gather while they load."""
    return Operator(
        name,
        "elementwise",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"m": rows, "n": size},
        ctx.numbers.compute,
        vector_flops=vector_flops,
        activation_bytes=moved if ctx.policy.activation else 0,
    )
