"""The dense feed-forward network: gated or plain (analytic table rows 8-10)."""

from __future__ import annotations

from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_columns
from calc.operators.weight import Weight, vector
from calc.profiles.model import DenseFeedForward


def weights(part: DenseFeedForward, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: up projections by columns, down projection by rows."""
    return matrices(
        part.input_size or hidden_size,
        hidden_size,
        split_columns(part.intermediate_size, tensor),
        gated=part.gated,
        bias=part.bias,
        role="feed_forward",
    ) + ([vector("activation_scalars", part.scalars)] if part.scalars else [])


def matrices(d_in: int, d_out: int, width: int, *, gated: bool, bias: bool, role: str, prefix: str = "") -> list[Weight]:
    """Up (and gate) and down matrices of one feed-forward network."""
    up = (2 if gated else 1) * width
    name = "gate_up_proj" if gated else "up_proj"
    return [
        Weight(prefix + name, role, d_in, up, bias=up if bias else 0),
        Weight(prefix + "down_proj", role, width, d_out, bias=d_out if bias else 0),
    ]


def operators(part: DenseFeedForward, ctx: LayerContext) -> list[Operator]:
    """Up projection, activation, down projection."""
    up, down = weights(part, ctx.hidden_size, ctx.sharding.tensor)[:2]
    return [ctx.linear(up), activation(ctx, up.d_out, down.d_in), ctx.linear(down)]


def activation(ctx: LayerContext, read: int, written: int, name: str | None = None) -> Operator:
    """The non-linearity (times the gate): about 5 vector FLOP and one exponential an element."""
    return ctx.elementwise(
        name or ("act_and_mul" if read > written else "activation"),
        read,
        written,
        vector_flops=5 * ctx.tokens * written,
        exponentials=ctx.tokens * written,
        moves=ctx.policy.activation,
    )
