"""State-space mixers: Mamba (arXiv 2312.00752) and Mamba-2 (state space duality, arXiv 2405.21060)."""

from __future__ import annotations

from calc.arrays import Number
from calc.operators import recurrent
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly, split_or_replicate
from calc.operators.weight import Weight, vector
from calc.profiles.model import Mamba1, Mamba2

ROLE = "linear_attention"


def weights(mixer: Mamba1 | Mamba2, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: inner channels and heads are split; groups are replicated when fewer than ranks."""
    return _weights1(mixer, hidden_size, tensor) if isinstance(mixer, Mamba1) else _weights2(mixer, hidden_size, tensor)


def _weights1(mixer: Mamba1, hidden_size: int, tensor: int) -> list[Weight]:
    inner = split_evenly(mixer.inner_size, tensor, "inner channels")
    rank, state = mixer.dt_rank, mixer.state_size
    bias_in, bias_out = (2 * inner, hidden_size) if mixer.projection_bias else (0, 0)
    found = [
        Weight("in_proj", ROLE, hidden_size, 2 * inner, bias=bias_in),
        vector("conv1d", inner * (mixer.conv_kernel + mixer.conv_bias), ROLE),
        Weight("x_proj", ROLE, inner, rank + 2 * state),
        Weight("dt_proj", ROLE, rank, inner, bias=inner),
        vector("a_d", inner * state + inner, ROLE),
    ]
    if mixer.parameter_norms:
        found.append(vector("dt_b_c_norms", rank + 2 * state))
    return [*found, Weight("out_proj", ROLE, inner, hidden_size, bias=bias_out)]


def local_heads(mixer: Mamba2, tensor: int) -> tuple[int, int]:
    """(heads, groups) of one rank."""
    heads = split_evenly(mixer.num_heads, tensor, "state-space heads")
    return heads, split_or_replicate(mixer.num_groups, tensor, "state-space groups")


def _weights2(mixer: Mamba2, hidden_size: int, tensor: int) -> list[Weight]:
    heads, groups = local_heads(mixer, tensor)
    inner, mixed = heads * mixer.head_dim, 2 * groups * mixer.state_size
    wide = 2 * inner + mixed + heads
    bias_in, bias_out = (wide, hidden_size) if mixer.projection_bias else (0, 0)
    found = [
        Weight("in_proj", ROLE, hidden_size, wide, bias=bias_in),
        vector("conv1d", (inner + mixed) * (mixer.conv_kernel + mixer.conv_bias), ROLE),
        vector("a_dt_d", 3 * heads, ROLE),
    ]
    if mixer.gated_norm:
        found.append(vector("gated_norm", inner))
    return [*found, Weight("out_proj", ROLE, inner, hidden_size, bias=bias_out)]


def cache_law(mixer: Mamba1 | Mamba2, hidden_size: int, tensor: int) -> CacheLaw:
    """Matrix state and convolution columns of one rank."""
    if isinstance(mixer, Mamba1):
        inner = split_evenly(mixer.inner_size, tensor, "inner channels")
        return recurrent.state_law(inner * mixer.state_size, inner * (mixer.conv_kernel - 1))
    heads, groups = local_heads(mixer, tensor)
    channels = heads * mixer.head_dim + 2 * groups * mixer.state_size
    return recurrent.state_law(heads * mixer.head_dim * mixer.state_size, channels * (mixer.conv_kernel - 1))


def operators(mixer: Mamba1 | Mamba2, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer: input projection, convolution, scan, gate, output projection."""
    return _operators1(mixer, ctx) if isinstance(mixer, Mamba1) else _operators2(mixer, ctx)


def _operators1(mixer: Mamba1, ctx: LayerContext) -> list[Operator]:
    tensor, state, rank = ctx.sharding.tensor, mixer.state_size, mixer.dt_rank
    held = {w.name: w for w in weights(mixer, ctx.hidden_size, tensor)}
    inner = held["out_proj"].d_in
    found = [
        ctx.linear(held["in_proj"]),
        recurrent.convolution(ctx, inner, mixer.conv_kernel, bias=mixer.conv_bias),
        ctx.linear(held["x_proj"]),
    ]
    if tensor > 1:  # every channel needs the sums over all of them: dt, B and C
        found.append(ctx.all_reduce(ctx.count, rank + 2 * state))
    if mixer.parameter_norms:
        width = rank + 2 * state
        found.append(
            ctx.elementwise(
                "dt_b_c_norms", width, width, vector_flops=4 * ctx.tokens * width, weight_bytes=2 * width, moves=ctx.policy.norm
            )
        )
    found.append(ctx.linear(held["dt_proj"]))
    # A scan, not a matrix product, in prefill as in decode: vector units throughout.
    scan = recurrent.Mixing(0, 7 * ctx.tokens * inner * state, 0, "scan")
    found.append(
        recurrent.core(
            ctx,
            "selective_scan",
            {"inner": inner, "state": state},
            cache_law(mixer, ctx.hidden_size, tensor),
            scan,
            read=3 * inner + 2 * state,
            written=inner,
            exponentials=ctx.tokens * inner * state,
            vector_elements=held["a_d"].elements,
        )
    )
    return [*found, ctx.linear(held["out_proj"])]


def _operators2(mixer: Mamba2, ctx: LayerContext) -> list[Operator]:
    tensor, width, state = ctx.sharding.tensor, mixer.head_dim, mixer.state_size
    held = {w.name: w for w in weights(mixer, ctx.hidden_size, tensor)}
    heads, groups = local_heads(mixer, tensor)
    inner, mixed = heads * width, 2 * groups * state
    matrix = heads * width * state

    def chunked(q: Number) -> Number:
        return 2 * q * state * groups + 2 * q * inner + 4 * matrix + 2 * matrix / q

    core = recurrent.core(
        ctx,
        "ssd_scan",
        {"heads": heads, "head_dim": width, "state": state, "groups": groups, "chunk": mixer.chunk},
        cache_law(mixer, ctx.hidden_size, tensor),
        recurrent.mixing(ctx.work, mixer.chunk, chunked, 5 * matrix),
        read=inner + mixed + heads,
        written=inner,
        exponentials=ctx.tokens * heads,
        vector_elements=3 * heads,
        writes_chunk_states=True,
    )
    return [
        ctx.linear(held["in_proj"]),
        recurrent.convolution(ctx, inner + mixed, mixer.conv_kernel, bias=mixer.conv_bias),
        core,
        recurrent.gated_norm(ctx, inner, inner) if mixer.gated_norm else _gate(ctx, inner),
        ctx.linear(held["out_proj"]),
    ]


def _gate(ctx: LayerContext, width: int) -> Operator:
    work_done = 5 * ctx.tokens * width
    return ctx.elementwise(
        "gate", 2 * width, width, vector_flops=work_done, exponentials=ctx.tokens * width, moves=ctx.policy.activation
    )
