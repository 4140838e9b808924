"""Delta-rule mixers: Gated DeltaNet (arXiv 2412.06464) and Kimi delta attention (arXiv 2510.26692)."""

from __future__ import annotations

from calc.arrays import Number
from calc.operators import recurrent
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly
from calc.operators.weight import Weight, vector
from calc.profiles.model import GatedDeltaNet, KimiDeltaAttention

ROLE = "linear_attention"


def weights(mixer: GatedDeltaNet | KimiDeltaAttention, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: everything that spreads over heads is split."""
    if isinstance(mixer, GatedDeltaNet):
        return _gated_weights(mixer, hidden_size, tensor)
    return _kimi_weights(mixer, hidden_size, tensor)


def local_widths(mixer: GatedDeltaNet, tensor: int) -> tuple[int, int, int]:
    """(key width, value width, value heads) of one rank."""
    key_heads = split_evenly(mixer.num_key_heads, tensor, "key heads")
    heads = split_evenly(mixer.num_value_heads, tensor, "value heads")
    return key_heads * mixer.key_head_dim, heads * mixer.value_head_dim, heads


def _gated_weights(mixer: GatedDeltaNet, hidden_size: int, tensor: int) -> list[Weight]:
    keys, values, heads = local_widths(mixer, tensor)
    qkvz = 2 * keys + 2 * values
    inputs = (
        [Weight("in_proj_qkvz", ROLE, hidden_size, qkvz), Weight("in_proj_ba", ROLE, hidden_size, 2 * heads)]
        if mixer.separate_gates
        else [Weight("in_proj_qkvz_ba", ROLE, hidden_size, qkvz + 2 * heads)]
    )
    return [
        *inputs,
        vector("conv1d", (2 * keys + values) * mixer.conv_kernel, ROLE),
        vector("a_dt", 2 * heads, ROLE),
        vector("gated_norm", mixer.value_head_dim),
        Weight("out_proj", ROLE, values, hidden_size),
    ]


def _kimi_weights(mixer: KimiDeltaAttention, hidden_size: int, tensor: int) -> list[Weight]:
    heads = split_evenly(mixer.num_heads, tensor, "heads")
    width = heads * mixer.head_dim
    return [
        Weight("qkv_proj", ROLE, hidden_size, 3 * width),
        vector("conv1d", 3 * width * mixer.conv_kernel, ROLE),
        *_gate("f", hidden_size, mixer.decay_gate_rank, width),
        vector("a_dt", width + heads, ROLE),
        Weight("b_proj", ROLE, hidden_size, heads),
        *_gate("g", hidden_size, mixer.output_gate_rank, width),
        vector("gated_norm", mixer.head_dim),
        Weight("o_proj", ROLE, width, hidden_size),
    ]


def _gate(name: str, hidden_size: int, rank: int | None, width: int) -> list[Weight]:
    """A gate as one matrix, or through a low rank whose first factor is replicated."""
    if rank is None:
        return [Weight(f"{name}_proj", ROLE, hidden_size, width)]
    return [Weight(f"{name}_a_proj", ROLE, hidden_size, rank), Weight(f"{name}_b_proj", ROLE, rank, width)]


def cache_law(mixer: GatedDeltaNet | KimiDeltaAttention, hidden_size: int, tensor: int) -> CacheLaw:
    """Matrix state per value head and K - 1 columns of the query, key and value convolutions. Kimi's state is always fp32."""
    columns = mixer.conv_kernel - 1
    if isinstance(mixer, GatedDeltaNet):
        keys, values, heads = local_widths(mixer, tensor)
        return recurrent.state_law(heads * mixer.key_head_dim * mixer.value_head_dim, (2 * keys + values) * columns)
    width = split_evenly(mixer.num_heads, tensor, "heads") * mixer.head_dim
    return recurrent.state_law(width * mixer.head_dim, 3 * width * columns, full_precision=True)


def delta_flops(key_dim: int, value_dim: int, q: Number) -> Number:
    """Tensor FLOP per token and value head of the chunked delta rule: products within a chunk of ``q`` tokens, the triangular
    inverse, and the state's update and read-out."""
    return 2 * q * (3 * key_dim + 2 * value_dim) + 6 * key_dim * value_dim + q * q / 3


def operators(mixer: GatedDeltaNet | KimiDeltaAttention, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer: projections and gates, convolution, delta rule, gated norm, output projection."""
    return _gated_operators(mixer, ctx) if isinstance(mixer, GatedDeltaNet) else _kimi_operators(mixer, ctx)


def _gated_operators(mixer: GatedDeltaNet, ctx: LayerContext) -> list[Operator]:
    tensor = ctx.sharding.tensor
    held = [w for w in weights(mixer, ctx.hidden_size, tensor) if not w.vector]
    keys, values, heads = local_widths(mixer, tensor)
    dk, dv = mixer.key_head_dim, mixer.value_head_dim

    def chunked(q: Number) -> Number:
        return heads * delta_flops(dk, dv, q)

    core = recurrent.core(
        ctx,
        "gated_delta_rule",
        {"heads": heads, "key_heads": keys // dk, "key_head_dim": dk, "value_head_dim": dv, "chunk": mixer.chunk},
        cache_law(mixer, ctx.hidden_size, tensor),
        recurrent.mixing(ctx.work, mixer.chunk, chunked, 7 * heads * dk * dv),
        read=2 * keys + values + 2 * heads,
        written=values,
        exponentials=2 * ctx.tokens * heads,
        vector_elements=2 * heads,
        writes_chunk_states=True,
    )
    return [
        *(ctx.linear(w) for w in held[:-1]),
        recurrent.convolution(ctx, 2 * keys + values, mixer.conv_kernel),
        core,
        recurrent.gated_norm(ctx, values, dv),
        ctx.linear(held[-1]),
    ]


def _kimi_operators(mixer: KimiDeltaAttention, ctx: LayerContext) -> list[Operator]:
    tensor, width = ctx.sharding.tensor, mixer.head_dim
    held = [w for w in weights(mixer, ctx.hidden_size, tensor) if not w.vector]
    inner = held[-1].d_in
    heads = inner // width

    def chunked(q: Number) -> Number:
        return heads * delta_flops(width, width, q)

    def decay(q: Number) -> Number:  # the decay differs by channel: applied on the vector units
        return 4 * q * inner

    core = recurrent.core(
        ctx,
        "kimi_delta_rule",
        {"heads": heads, "key_heads": heads, "key_head_dim": width, "value_head_dim": width, "chunk": mixer.chunk},
        cache_law(mixer, ctx.hidden_size, tensor),
        recurrent.mixing(ctx.work, mixer.chunk, chunked, 7 * inner * width, chunked_vector=decay),
        read=4 * inner + heads,
        written=inner,
        exponentials=ctx.tokens * (inner + heads),
        vector_elements=inner + heads,
        writes_chunk_states=True,
    )
    return [
        *(ctx.linear(w) for w in held[:-1]),
        recurrent.convolution(ctx, 3 * inner, mixer.conv_kernel),
        core,
        recurrent.gated_norm(ctx, inner, width),
        ctx.linear(held[-1]),
    ]
