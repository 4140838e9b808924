"""Fusion policies: which small operators are kernels of their own, and so move activations through memory."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import UnknownNameError


@dataclass(frozen=True, slots=True)
class FusionPolicy:
    """A named set of flags; a True flag means the operator reads and writes memory on its own."""

    name: str
    norm: bool  # normalisation with the residual addition
    position: bool  # rotary embedding and query-key norms
    kv_write: bool
    activation: bool  # the non-linearity between up and down projection


#: Residual-add fused with norm; rotary, KV write and activation each a kernel; attention fused: 44 d elements a token in an MHA
#: layer with an ungated 4 d feed-forward network.
SEPARATE = FusionPolicy("separate", True, True, True, True)
#: Only matrix products and attention move activations: 20 d elements a token in that layer.
FUSED = FusionPolicy("fused", False, False, False, False)
POLICIES = {p.name: p for p in (SEPARATE, FUSED)}


def policy(name: str) -> FusionPolicy:
    """A fusion policy by name."""
    try:
        return POLICIES[name]
    except KeyError:
        raise UnknownNameError(f"unknown fusion policy {name!r}", "known: " + ", ".join(POLICIES)) from None
