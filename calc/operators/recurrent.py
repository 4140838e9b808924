"""What recurrent mixers share: the depthwise convolution, the mixing core with its state, and the choice between its two forms.

The state is constant per sequence and crosses memory twice a step, read and written back, where a KV cache is only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calc.arrays import Number, ceil_div, maximum, minimum, where
from calc.operators.cache_law import CacheLaw
from calc.operators.choice import label
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.work import Work

#: Up to this many new tokens per request kernels step through the tokens one by one (decode, verification of drafts); longer runs
#: take the chunked form. flash-linear-attention switches at the same length (fla/layers/gated_deltanet.py).
STEPWISE_TOKENS = 64


def state_law(matrix: int, convolution: int, *, full_precision: bool = False) -> CacheLaw:
    """The cache law of a layer that keeps only a state: elements of the matrix state and of the K - 1 convolution columns."""
    return CacheLaw("state", state_elements=matrix, convolution_elements=convolution, full_state_precision=full_precision)


@dataclass(frozen=True, slots=True)
class Mixing:
    """Arithmetic of a mixing core over a step. ``chunk_states`` counts the intermediate states that the chunked form writes."""

    flops: Number
    vector_flops: Number
    chunk_states: Number
    form: str


def mixing(
    work: Work,
    chunk: int,
    chunked: Callable[[Number], Number],
    stepwise: Number,
    *,
    chunked_vector: Callable[[Number], Number] = lambda q: 0,
) -> Mixing:
    """Tensor and vector FLOP of all requests.

    ``chunked(q)`` and ``stepwise`` are FLOP per token: the chunked form works on q = min(chunk, new tokens) tokens at a time on the
    matrix units, the stepwise form on the vector units.
    """
    flops: Number = 0
    vector_flops: Number = 0
    states: Number = 0
    flags = []
    for group in work.groups:
        tokens = group.count * group.new
        q = maximum(minimum(chunk, group.new), 1)
        single = group.new <= STEPWISE_TOKENS
        flags.append(single)
        flops = flops + where(single, 0, tokens * chunked(q))
        vector_flops = vector_flops + where(single, tokens * stepwise, tokens * chunked_vector(q))
        states = states + where(single, 0, group.count * ceil_div(group.new, chunk))
    return Mixing(flops, vector_flops, states, label(flags, "stepwise", "chunked"))


def core(
    ctx: LayerContext,
    name: str,
    shape: dict[str, Number],
    law: CacheLaw,
    done: Mixing,
    *,
    read: int,
    written: int,
    exponentials: Number = 0,
    vector_elements: int = 0,
    writes_chunk_states: bool = False,
) -> Operator:
    """The mixing kernel: ``read`` and ``written`` activation elements per token, every sequence's matrix state read and written.

    ``vector_elements`` are small weights it reads (decays, gains). Kernels that materialise the state of every chunk write and read
    it once more: traffic of the form, not compulsory.
    """
    per_element = 4 if law.full_state_precision else ctx.numbers.state_bytes
    chunk_bytes = 2 * done.chunk_states * law.state_elements * ctx.activation if writes_chunk_states else 0
    return Operator(
        name,
        "recurrent",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"tokens": ctx.tokens, "sequences": ctx.work.sequences, **shape},
        ctx.numbers.compute,
        flops=done.flops,
        vector_flops=done.vector_flops,
        exponentials=exponentials,
        weight_bytes=2 * vector_elements,
        activation_bytes=ctx.tokens * (read + written) * ctx.activation + chunk_bytes,
        state_bytes=2 * ctx.work.sequences * law.state_elements * per_element,
        detail={"form": done.form},
    )


def convolution(
    ctx: LayerContext,
    channels: int,
    kernel: int,
    *,
    bias: bool = False,
    read: int | None = None,
    vector_flops: Number | None = None,
) -> Operator:
    """Causal depthwise convolution over ``kernel`` tokens: K - 1 columns of every channel are kept per sequence."""
    moved = ctx.tokens * ((channels if read is None else read) + channels) * ctx.activation
    return Operator(
        "causal_conv1d",
        "recurrent",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"tokens": ctx.tokens, "sequences": ctx.work.sequences, "channels": channels, "kernel": kernel},
        ctx.numbers.compute,
        vector_flops=2 * kernel * ctx.tokens * channels if vector_flops is None else vector_flops,
        weight_bytes=2 * channels * (kernel + bias),
        activation_bytes=moved if ctx.policy.activation else 0,
        state_bytes=2 * ctx.work.sequences * channels * (kernel - 1) * ctx.numbers.convolution_bytes,
    )


def gated_norm(ctx: LayerContext, width: int, gains: int) -> Operator:
    """Normalisation of the output times a gate: reads both, writes one; ``gains`` learned elements."""
    return ctx.elementwise(
        "gated_norm",
        2 * width,
        width,
        vector_flops=6 * ctx.tokens * width,
        exponentials=ctx.tokens * width,
        weight_bytes=2 * gains,
        moves=ctx.policy.activation,
    )
