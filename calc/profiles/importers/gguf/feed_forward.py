"""Feed-forward parts of one layer from its tensors: dense, routed experts (stacked or one by one), shared experts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from calc.profiles.importers.gguf.recurrent import channel_mixing
from calc.profiles.importers.gguf.stack import Stack
from calc.profiles.importers.gguf.tensor_list import Group
from calc.profiles.importers.gguf.tensor_types import Tensor
from calc.profiles.model import DenseFeedForward, Experts, Extra, FeedForward, SharedExperts

#: Early files of mixtures hold each expert's matrices as tensors of their own.
_ONE_BY_ONE = re.compile(r"ffn_(gate|up|down)\.(\d{1,5})\.weight")


@dataclass(frozen=True, slots=True)
class Widths:
    """The matrices of one network: its width, and whether a gate stands beside or within the up projection."""

    inner: int
    gated: bool
    biased: bool


def feed_forwards(stack: Stack, layer: Group) -> tuple[list[FeedForward], list[Extra]]:
    """(parts of a layer, weights beside them that no part describes); their tensors are taken."""
    mixing = channel_mixing(layer)
    if mixing:
        return [mixing], []
    parts: list[FeedForward] = []
    extras: list[Extra] = []
    if "ffn_down.weight" in layer:
        width = _network(layer, "", "feed_forward", extras)
        parts.append(DenseFeedForward(intermediate_size=width.inner, gated=width.gated, bias=width.biased))
    if "ffn_gate_inp.weight" in layer:
        parts.append(_experts(stack, layer, extras))
    return parts, extras


def _network(layer: Group, suffix: str, role: str, extras: list[Extra]) -> Widths:
    """Up, down and, where there is one, gate. A bias on some of the matrices only is a vector of its own."""
    down = layer.need(f"ffn_down{suffix}.weight", role)
    fused = layer.take(f"ffn_gate_up{suffix}.weight", role)
    up = fused or layer.need(f"ffn_up{suffix}.weight", role)
    gate = layer.take(f"ffn_gate{suffix}.weight", role)
    inner = down.d_in
    twice = up.d_out == 2 * inner and gate is None
    if (up.d_out != inner and not twice) or (gate is not None and gate.d_out != inner):
        raise layer.ledger.fault(up, f"has {up.d_out:,} columns beside a down projection of {inner:,} rows")
    names = [("ffn_gate_up" if fused else "ffn_up", up.d_out), ("ffn_down", down.d_out)]
    if gate:
        names.append(("ffn_gate", inner))
    there = [(f"{name}{suffix}", width * down.copies) for name, width in names if f"{name}{suffix}.bias" in layer]
    biased = len(there) == len(names) and role != "shared_experts"  # whose part knows no bias
    for name, width in there:
        layer.bias(name, role if biased else "extras", width)
        if not biased:
            extras.append(Extra(name=f"{name}_bias", elements=width, kind="vector"))
    return Widths(inner, twice or gate is not None, biased)


def _experts(stack: Stack, layer: Group, extras: list[Extra]) -> Experts:
    c = stack.config
    router = layer.need("ffn_gate_inp.weight", "router")
    number = router.d_out
    chosen = c.integer("expert_used_count", maximum=1 << 20)
    if chosen > number:
        raise c.fault("expert_used_count", f"is {chosen:,}; the router scores {number:,} experts")
    stated = c.optional("expert_count")
    if stated is not None and stated != number:
        raise c.fault("expert_count", f"is {stated:,}; the router scores {number:,} experts")
    c.ignore(
        "expert_feed_forward_length",
        "expert_shared_count",
        "leading_dense_block_count",
        "interleave_moe_layer_step",
        "moe_latent_size",
    )
    _gather(layer, number)
    width = _network(layer, "_exps", "experts", extras)
    down, up = (layer.take(f"ffn_latent_{way}.weight", "feed_forward") for way in ("down", "up"))
    correction = layer.bias("exp_probs_b", "router", number) or layer.take("exp_probs_b.weight", "router") is not None
    return Experts(
        num_experts=number,
        num_experts_per_token=chosen,
        intermediate_size=width.inner,
        gated=width.gated,
        bias=width.biased,
        router_bias=layer.bias("ffn_gate_inp", "router", number),
        correction_bias=correction,
        latent_size=down.d_out if down and up else None,
        shared=_shared(stack, layer, extras),
    )


def _gather(layer: Group, number: int) -> None:
    """Experts as single tensors become one stacked tensor of the same elements and bytes."""
    found: dict[str, list[Tensor]] = {}
    for name in list(layer.left):
        match = _ONE_BY_ONE.fullmatch(name)
        if match:
            found.setdefault(match[1], []).append(layer.left.pop(name))
    for part, tensors in found.items():
        first = tensors[0]
        if len(tensors) != number or any((t.shape, t.type) != (first.shape, first.type) for t in tensors):
            raise layer.ledger.fault(first, f"and its like are {len(tensors):,}; {number:,} equal ones are expected")
        layer.left[f"ffn_{part}_exps.weight"] = Tensor(first.name, first.type, (*first.shape, number), first.offset)


def _shared(stack: Stack, layer: Group, extras: list[Extra]) -> SharedExperts | None:
    """Experts that every token passes, as one network of their joint width."""
    if "ffn_down_shexp.weight" not in layer:
        return None
    width = _network(layer, "_shexp", "shared_experts", extras)
    gate = layer.take("ffn_gate_inp_shexp.weight", "shared_experts")
    stack.config.ignore("expert_shared_feed_forward_length")
    return SharedExperts(intermediate_size=width.inner, gated=width.gated, gate=gate is not None)
