"""Recurrent mixers of one layer from its tensors: Mamba 1 and 2, gated delta rules, RWKV 6 and 7, short convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from calc.profiles.importers.gguf.stack import Stack
from calc.profiles.importers.gguf.tensor_list import Group
from calc.profiles.importers.gguf.tensor_types import Tensor
from calc.profiles.model import (
    ChannelMixing,
    GatedDeltaNet,
    KimiDeltaAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Rwkv,
    ShortConvolution,
)

ROLE = "linear_attention"
_MARKS = {
    "ssm_conv1d_q.weight": "kimi_delta",
    "ssm_x.weight": "mamba1",
    "ssm_ba.weight": "gated_delta",
    "ssm_beta.weight": "gated_delta",
    "ssm_in.weight": "mamba2",
    "time_mix_key.weight": "rwkv",
    "shortconv.conv.weight": "short_convolution",
}


def recurrent(stack: Stack, layer: Group, index: int) -> Mixer | None:
    """The recurrent mixer of a layer, or None; its tensors are taken."""
    kind = next((_MARKS[name] for name in _MARKS if name in layer), None)
    if kind == "rwkv":
        return rwkv(stack, layer, is_first=index == 0)
    return _READERS[kind](stack, layer) if kind else None


def _expect(layer: Group, tensor: Tensor, width: int, what: str) -> None:
    if tensor.d_out != width:
        raise layer.ledger.fault(tensor, f"has {tensor.d_out:,} columns; {what} make {width:,}")


def mamba1(stack: Stack, layer: Group) -> Mamba1:
    """Sizes from the tensors; Jamba normalises dt, B and C with weights."""
    into, conv = layer.need("ssm_in.weight", ROLE), layer.need("ssm_conv1d.weight", ROLE)
    inner = conv.d_out
    _expect(layer, into, 2 * inner, "two inner widths")
    dt, decay = layer.need("ssm_dt.weight", ROLE), layer.need("ssm_a", ROLE)
    mixed = layer.need("ssm_x.weight", ROLE)
    _expect(layer, mixed, dt.d_in + 2 * decay.d_in, "the rank of dt and two states")
    layer.bias("ssm_dt", ROLE, inner)
    layer.need("ssm_d", ROLE)
    norms = [layer.take(f"ssm_{part}_norm.weight", "norm") for part in ("dt", "b", "c")]
    found = Mamba1(
        inner_size=inner,
        state_size=decay.d_in,
        dt_rank=dt.d_in,
        conv_kernel=conv.d_in,
        conv_bias=layer.bias("ssm_conv1d", ROLE, inner),
        projection_bias=layer.bias("ssm_in", ROLE, into.d_out),
        parameter_norms=all(norms),
    )
    layer.need("ssm_out.weight", ROLE)
    layer.bias("ssm_out", ROLE, stack.hidden_size)
    stack.config.ignore(
        "ssm.inner_size", "ssm.state_size", "ssm.conv_kernel", "ssm.time_step_rank", "ssm.group_count", "ssm.dt_b_c_rms"
    )
    return found


def mamba2(stack: Stack, layer: Group) -> Mamba2:
    """Heads are counted by the decay, groups by the metadata."""
    c = stack.config
    into, conv = layer.need("ssm_in.weight", ROLE), layer.need("ssm_conv1d.weight", ROLE)
    out, decay = layer.need("ssm_out.weight", ROLE), layer.need("ssm_a", ROLE)
    inner, heads, state, groups = out.d_in, decay.elements, c.integer("ssm.state_size"), c.integer("ssm.group_count", default=1)
    if inner % heads or heads % groups:
        raise c.fault("ssm.group_count", f"{groups:,} groups and {heads:,} heads do not share the inner width {inner:,} evenly")
    mixed = 2 * groups * state
    _expect(layer, conv, inner + mixed, "inner width and two states a group")
    _expect(layer, into, 2 * inner + mixed + heads, "inner width, states and heads")
    layer.bias("ssm_dt", ROLE, heads)
    layer.need("ssm_d", ROLE)
    c.ignore("ssm.inner_size", "ssm.conv_kernel", "ssm.time_step_rank")
    found = Mamba2(
        num_heads=heads,
        head_dim=inner // heads,
        state_size=state,
        num_groups=groups,
        conv_kernel=conv.d_in,
        conv_bias=layer.bias("ssm_conv1d", ROLE, conv.d_out),
        projection_bias=layer.bias("ssm_in", ROLE, into.d_out),
        gated_norm=layer.take("ssm_norm.weight", "norm") is not None,
    )
    layer.bias("ssm_out", ROLE, stack.hidden_size)
    return found


def gated_delta(stack: Stack, layer: Group) -> GatedDeltaNet:
    """Qwen3-Next and 3.5. Newer files keep the output gate and the two scalars a head in tensors of their own."""
    c = stack.config
    conv, out = layer.need("ssm_conv1d.weight", ROLE), layer.need("ssm_out.weight", ROLE)
    key_dim, keys = c.integer("ssm.state_size"), c.integer("ssm.group_count")
    heads, values = c.integer("ssm.time_step_rank"), out.d_in
    c.ignore("ssm.inner_size", "ssm.conv_kernel", "full_attention_interval")
    if values % heads or heads % keys:
        raise c.fault(
            "ssm.time_step_rank", f"{heads:,} value heads do not share {keys:,} key heads and the width {values:,} evenly"
        )
    _expect(layer, conv, 2 * keys * key_dim + values, "keys, queries and values")
    whole = layer.take("ssm_in.weight", ROLE)
    if whole:
        _expect(layer, whole, conv.d_out + values, "keys, queries, values and gate")
    else:
        _expect(layer, layer.need("attn_qkv.weight", ROLE), conv.d_out, "keys, queries and values")
        _expect(layer, layer.need("attn_gate.weight", ROLE), values, "values")
    both = layer.take("ssm_ba.weight", ROLE)
    scalars = [both] if both else [layer.need("ssm_beta.weight", ROLE), layer.need("ssm_alpha.weight", ROLE)]
    for tensor in scalars:
        _expect(layer, tensor, 2 * heads // len(scalars), "heads")
    layer.need("ssm_a", ROLE)
    layer.bias("ssm_dt", ROLE, heads)
    layer.need("ssm_norm.weight", "norm")
    return GatedDeltaNet(
        num_key_heads=keys,
        num_value_heads=heads,
        key_head_dim=key_dim,
        value_head_dim=values // heads,
        conv_kernel=conv.d_in,
    )


def kimi_delta(stack: Stack, layer: Group) -> KimiDeltaAttention:
    """Kimi delta attention: three convolutions, gates of low rank."""
    convs = [layer.need(f"ssm_conv1d_{letter}.weight", ROLE) for letter in "qkv"]
    projections = [layer.need(f"attn_{letter}.weight", ROLE) for letter in "qkv"]
    beta, norm = layer.need("ssm_beta.weight", ROLE), layer.need("ssm_norm.weight", "norm")
    heads, head_dim = beta.d_out, norm.elements
    for tensor in projections:
        _expect(layer, tensor, heads * head_dim, "heads and head size")
    decay, _ = layer.need("ssm_f_a.weight", ROLE), layer.need("ssm_f_b.weight", ROLE)
    gate, _ = layer.need("ssm_g_a.weight", ROLE), layer.need("ssm_g_b.weight", ROLE)
    layer.need("ssm_a", ROLE)
    layer.bias("ssm_dt", ROLE, heads * head_dim)
    layer.need("attn_output.weight", ROLE)
    stack.config.ignore("kda.head_dim", "ssm.conv_kernel")
    return KimiDeltaAttention(
        num_heads=heads,
        head_dim=head_dim,
        conv_kernel=convs[0].d_in,
        decay_gate_rank=decay.d_out,
        output_gate_rank=gate.d_out,
    )


def short_convolution(stack: Stack, layer: Group) -> ShortConvolution:
    """LFM2."""
    conv = layer.need("shortconv.conv.weight", ROLE)
    _expect(layer, layer.need("shortconv.in_proj.weight", ROLE), 3 * stack.hidden_size, "two gates and a value")
    layer.need("shortconv.out_proj.weight", ROLE)
    stack.config.ignore("shortconv.l_cache")
    biased = [layer.bias(f"shortconv.{name}", ROLE, width * stack.hidden_size) for name, width in _SHORT.items()]
    return ShortConvolution(conv_kernel=conv.d_in, bias=all(biased))


_SHORT = {"conv": 1, "in_proj": 3, "out_proj": 1}


def rwkv(stack: Stack, layer: Group, *, is_first: bool) -> Rwkv:
    """Time mixing of version 6 (a decay of low rank) or 7 (a delta rule); the low-rank matrices count as one total."""
    version: Literal[6, 7] = 7 if "time_mix_w0.weight" in layer else 6
    taken: dict[str, Tensor] = {}
    for name in [n for n in layer.left if n.startswith("time_mix_")]:
        part = name.removeprefix("time_mix_").removesuffix(".weight")
        unused = "what the first layer never reads" if is_first and part in _RESIDUAL else None
        tensor = layer.take(name, "norm" if part.startswith("ln.") or part == "ln" else ROLE, beyond=unused)
        if tensor and not unused:
            taken[part] = tensor
    for part in ("key", "value", "receptance", "output"):
        if part not in taken:
            layer.need(f"time_mix_{part}.weight", ROLE)
    c = stack.config
    c.ignore("time_mix_extra_dim", "time_decay_extra_dim", "rescale_every_n_layers", "token_shift_count", "attention.head_count")
    c.ignore(*(f"attention.{part}_lora_rank" for part in ("decay", "iclr", "value_residual_mix", "gate")))
    return Rwkv(
        version=version,
        attention_size=taken["key"].d_out,
        head_dim=c.integer("wkv.head_size"),
        low_rank_parameters=sum(t.elements for part, t in taken.items() if part in _LOW_RANK[version]),
    )


#: The value residual of version 7: there is no earlier layer that the first could take a value from.
_RESIDUAL = ("v0", "v1", "v2")
_LOW_RANK = {
    6: ("w1", "w2", "decay_w1", "decay_w2"),
    7: ("w1", "w2", "a1", "a2", "g1", "g2", *_RESIDUAL),
}


def channel_mixing(layer: Group) -> ChannelMixing | None:
    """RWKV's feed-forward part."""
    role = "feed_forward"
    up = layer.take("channel_mix_key.weight", role)
    if up is None:
        return None
    layer.need("channel_mix_value.weight", role)
    vectors = [layer.take(f"channel_mix_lerp_{letter}.weight", role) for letter in "kr"]
    receptance = layer.take("channel_mix_receptance.weight", role)
    return ChannelMixing(
        intermediate_size=up.d_out, receptance=receptance is not None, mix_vectors=sum(1 for vector in vectors if vector)
    )


_READERS: dict[str, Callable[[Stack, Group], Mixer]] = {
    "mamba1": mamba1,
    "mamba2": mamba2,
    "gated_delta": gated_delta,
    "kimi_delta": kimi_delta,
    "short_convolution": short_convolution,
}
