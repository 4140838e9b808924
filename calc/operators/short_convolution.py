"""Gated short convolution (LFM2): input projection to two gates and a value, a depthwise convolution, output projection."""

from __future__ import annotations

from calc.operators import recurrent
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly
from calc.operators.weight import Weight, vector
from calc.profiles.model import ShortConvolution

ROLE = "linear_attention"


def weights(mixer: ShortConvolution, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank, split by channels."""
    width = split_evenly(hidden_size, tensor, "channels")
    return [
        Weight("in_proj", ROLE, hidden_size, 3 * width, bias=3 * width if mixer.bias else 0),
        vector("conv1d", width * (mixer.conv_kernel + mixer.bias), ROLE),
        Weight("out_proj", ROLE, width, hidden_size, bias=hidden_size if mixer.bias else 0),
    ]


def cache_law(mixer: ShortConvolution, hidden_size: int, tensor: int) -> CacheLaw:
    """The K - 1 convolution columns of one rank's channels."""
    return recurrent.state_law(0, split_evenly(hidden_size, tensor, "channels") * (mixer.conv_kernel - 1))


def operators(mixer: ShortConvolution, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer; both gates are folded into the convolution kernel."""
    first, _, last = weights(mixer, ctx.hidden_size, ctx.sharding.tensor)
    width, kernel = last.d_in, mixer.conv_kernel
    convolution = recurrent.convolution(
        ctx, width, kernel, bias=mixer.bias, read=3 * width, vector_flops=(2 * kernel + 2) * ctx.tokens * width
    )
    return [ctx.linear(first), convolution, ctx.linear(last)]
