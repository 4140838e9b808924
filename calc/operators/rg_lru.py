"""Real-gated linear recurrent unit of Griffin and RecurrentGemma (arXiv 2402.19427)."""

from __future__ import annotations

from calc.operators import recurrent
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly
from calc.operators.weight import Weight, vector
from calc.profiles.model import RgLru

ROLE = "linear_attention"


def local_shape(mixer: RgLru, tensor: int) -> tuple[int, int]:
    """(channels, blocks) of one rank; the gates are block-diagonal, a block per head."""
    blocks = split_evenly(mixer.num_heads, tensor, "gate blocks")
    return blocks * (mixer.width // mixer.num_heads), blocks


def weights(mixer: RgLru, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: two input branches, convolution, two block-diagonal gates, the recurrence, output."""
    width, blocks = local_shape(mixer, tensor)
    block = width // blocks
    return [
        Weight("linear_xy", ROLE, hidden_size, 2 * width, bias=2 * width),
        vector("conv1d", width * (mixer.conv_kernel + 1), ROLE),
        Weight("gates", ROLE, block, block, copies=2 * blocks, bias=block),
        vector("recurrent_param", width, ROLE),
        Weight("out_proj", ROLE, width, hidden_size, bias=hidden_size),
    ]


def cache_law(mixer: RgLru, hidden_size: int, tensor: int) -> CacheLaw:
    """One fp32 value per channel and the K - 1 convolution columns."""
    width, _ = local_shape(mixer, tensor)
    return recurrent.state_law(width, width * (mixer.conv_kernel - 1), full_precision=True)


def operators(mixer: RgLru, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer: two branches, convolution, gates, recurrence, product of the branches, output projection."""
    tensor = ctx.sharding.tensor
    held = {w.name: w for w in weights(mixer, ctx.hidden_size, tensor)}
    width, _ = local_shape(mixer, tensor)
    # An element-wise recurrence whatever the number of tokens.
    scan = recurrent.Mixing(0, 10 * ctx.tokens * width, 0, "scan")
    law = cache_law(mixer, ctx.hidden_size, tensor)
    return [
        ctx.linear(held["linear_xy"]),
        recurrent.convolution(ctx, width, mixer.conv_kernel, bias=True),
        ctx.linear(held["gates"], read=width),  # both gates read the same channels
        recurrent.core(
            ctx,
            "rg_lru",
            {"width": width},
            law,
            scan,
            read=3 * width,
            written=width,
            exponentials=3 * ctx.tokens * width,
            vector_elements=width,
        ),
        ctx.elementwise(
            "branch_mul",
            2 * width,
            width,
            vector_flops=5 * ctx.tokens * width,
            exponentials=ctx.tokens * width,
            moves=ctx.policy.activation,
        ),
        ctx.linear(held["out_proj"]),
    ]
