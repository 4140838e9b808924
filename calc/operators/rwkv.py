"""RWKV time mixing, versions 5 and 6 (arXiv 2404.05892) and 7 (arXiv 2503.14456), and channel mixing."""

from __future__ import annotations

from calc.arrays import Number
from calc.operators import recurrent
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.delta_rule import delta_flops
from calc.operators.operator import Operator
from calc.operators.sharding import split_columns, split_evenly
from calc.operators.weight import Weight, vector
from calc.profiles.model import ChannelMixing, Rwkv

ROLE = "linear_attention"
#: Matrices of attention_size columns that read the token (receptance, key, value, and the gate where it is not low-rank).
_INPUTS = {5: 4, 6: 4, 7: 3}
#: Token-shift vectors of hidden_size: of r, k, v, g; of the shift itself and w, k, v, r, g; of r, w, k, v, a, g.
_SHIFTS = {5: 4, 6: 6, 7: 6}
#: Vectors of attention_size: decay, bonus; decay, bonus; decay and in-context-rate offsets, two key gains, bonus.
_CHANNELS = {5: 2, 6: 2, 7: 5}
#: Mixed copies of the token that a projection reads.
_READS = {"rkvg_proj": 4, "rkv_proj": 3}


def local_width(mixer: Rwkv, tensor: int) -> int:
    """Channels of one rank; heads are split evenly."""
    return split_evenly(mixer.attention_size // mixer.head_dim, tensor, "heads") * mixer.head_dim


def weights(mixer: Rwkv | ChannelMixing, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank. Token-shift vectors and the low-rank matrices are replicated.

    ``low_rank_parameters`` holds the low-rank matrices; of version 7 also the value-residual offset, which the first layer lacks.
    """
    if isinstance(mixer, ChannelMixing):
        return _channel_weights(mixer, hidden_size, tensor)
    width = local_width(mixer, tensor)
    found = [
        Weight("rkvg_proj" if _INPUTS[mixer.version] == 4 else "rkv_proj", ROLE, hidden_size, _INPUTS[mixer.version] * width),
        vector("time_shift", _SHIFTS[mixer.version] * hidden_size, ROLE),
        vector("time_decay", _CHANNELS[mixer.version] * width, ROLE),
    ]
    if mixer.low_rank_parameters:
        rows = 1 if mixer.low_rank_parameters % hidden_size else hidden_size
        found.append(Weight("low_rank_proj", ROLE, rows, mixer.low_rank_parameters // rows))
    return [*found, vector("group_norm", 2 * width), Weight("output", ROLE, width, hidden_size)]


def _channel_weights(part: ChannelMixing, hidden_size: int, tensor: int) -> list[Weight]:
    width = split_columns(part.intermediate_size, tensor)
    found = [
        vector("channel_shift", part.mix_vectors * hidden_size, "feed_forward"),
        Weight("up_proj", "feed_forward", hidden_size, width),
        Weight("down_proj", "feed_forward", width, hidden_size),
    ]
    if part.receptance:
        found.append(Weight("receptance", "feed_forward", hidden_size, hidden_size))
    return found


def cache_law(mixer: Rwkv, hidden_size: int, tensor: int) -> CacheLaw:
    """A square state per head, split; the last token before time mixing and before channel mixing, whole on every rank."""
    return recurrent.state_law(local_width(mixer, tensor) * mixer.head_dim, 2 * hidden_size)


def operators(mixer: Rwkv | ChannelMixing, ctx: LayerContext) -> list[Operator]:
    """Operators of time mixing, or of channel mixing."""
    return _channel_operators(mixer, ctx) if isinstance(mixer, ChannelMixing) else _time_operators(mixer, ctx)


def _time_operators(mixer: Rwkv, ctx: LayerContext) -> list[Operator]:
    tensor, dim, version = ctx.sharding.tensor, mixer.head_dim, mixer.version
    held = [w for w in weights(mixer, ctx.hidden_size, tensor) if not w.vector]
    width = local_width(mixer, tensor)
    heads = width // dim

    def chunked(q: Number) -> Number:
        return heads * (delta_flops(dim, dim, q) if version == 7 else 4 * q * dim + 4 * dim**2)

    law = cache_law(mixer, ctx.hidden_size, tensor)
    core = recurrent.core(
        ctx,
        "rwkv_time_mix",
        {"heads": heads, "head_dim": dim, "chunk": mixer.chunk},
        law,
        recurrent.mixing(ctx.work, mixer.chunk, chunked, (9 if version == 7 else 7) * heads * dim**2),
        read=(6 if version == 7 else 4) * width,  # r, k, v, decay; version 7 also the two vectors of the delta rule
        written=width,
        exponentials=ctx.tokens * width,
        vector_elements=_CHANNELS[version] * width,
    )
    return [
        _shift(ctx, "time_shift", _SHIFTS[version]),
        *(ctx.linear(w, read=ctx.hidden_size * _READS.get(w.name, 1)) for w in held[:-1]),
        core,
        recurrent.gated_norm(ctx, width, 2 * width),
        ctx.linear(held[-1]),
    ]


def _shift(ctx: LayerContext, name: str, mixes: int) -> Operator:
    """Mixtures of each token with the one before it; the last token of every sequence is kept."""
    width = ctx.hidden_size
    return Operator(
        name,
        "recurrent",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"tokens": ctx.tokens, "sequences": ctx.work.sequences, "channels": width},
        ctx.numbers.compute,
        vector_flops=3 * mixes * ctx.tokens * width,
        weight_bytes=2 * mixes * width,
        activation_bytes=ctx.tokens * (1 + mixes) * width * ctx.activation if ctx.policy.activation else 0,
        state_bytes=2 * ctx.work.sequences * width * ctx.numbers.convolution_bytes,
    )


def _channel_operators(part: ChannelMixing, ctx: LayerContext) -> list[Operator]:
    held = {w.name: w for w in weights(part, ctx.hidden_size, ctx.sharding.tensor)}
    width = held["down_proj"].d_in
    found = [
        _shift(ctx, "channel_shift", part.mix_vectors),
        ctx.linear(held["up_proj"]),
        ctx.elementwise("activation", width, width, vector_flops=2 * ctx.tokens * width, moves=ctx.policy.activation),
        ctx.linear(held["down_proj"]),
    ]
    if part.receptance:
        size = ctx.hidden_size
        found.append(ctx.linear(held["receptance"]))
        found.append(
            ctx.elementwise(
                "receptance_mul",
                2 * size,
                size,
                vector_flops=5 * ctx.tokens * size,
                exponentials=ctx.tokens * size,
                moves=ctx.policy.activation,
            )
        )
    return found
