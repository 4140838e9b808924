"""Linear attention with decay: lightning attention (MiniMax-01, arXiv 2501.08313)."""

from __future__ import annotations

from calc.arrays import Number
from calc.operators import recurrent
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly
from calc.operators.weight import Weight, vector
from calc.profiles.model import LightningAttention

ROLE = "linear_attention"


def weights(mixer: LightningAttention, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank, split by heads."""
    width = split_evenly(mixer.num_heads, tensor, "heads") * mixer.head_dim
    return [
        Weight("qkv_proj", ROLE, hidden_size, 3 * width),
        Weight("output_gate", ROLE, hidden_size, width),
        vector("norm", width),
        Weight("out_proj", ROLE, width, hidden_size),
    ]


def cache_law(mixer: LightningAttention, hidden_size: int, tensor: int) -> CacheLaw:
    """One square state per head, no convolution."""
    return recurrent.state_law(split_evenly(mixer.num_heads, tensor, "heads") * mixer.head_dim**2, 0)


def operators(mixer: LightningAttention, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer: projections, linear attention, gated norm, output projection."""
    tensor, width = ctx.sharding.tensor, mixer.head_dim
    qkv, gate, _, out = weights(mixer, ctx.hidden_size, tensor)
    heads = out.d_in // width

    def chunked(q: Number) -> Number:  # all pairs of a chunk: the causal half is not skipped
        return heads * (4 * q * width + 4 * width**2)

    core = recurrent.core(
        ctx,
        "lightning_attention",
        {"heads": heads, "head_dim": width, "chunk": mixer.chunk},
        cache_law(mixer, ctx.hidden_size, tensor),
        recurrent.mixing(ctx.work, mixer.chunk, chunked, 5 * heads * width**2),
        read=3 * out.d_in,
        written=out.d_in,
    )
    return [ctx.linear(qkv), core, ctx.linear(gate), recurrent.gated_norm(ctx, out.d_in, out.d_in), ctx.linear(out)]
