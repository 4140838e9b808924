"""Time of a collective: bytes over a link in one direction, and the latency of a message.

Thakur, Rabenseifner, Gropp 2005; NCCL documentation (ring, tree, in-switch reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, minimum
from calc.operators.operator import Collective
from calc.profiles.hardware import HardwareProfile


@dataclass(frozen=True, slots=True)
class Link:
    """What joins the ranks: bytes per second in one direction, and whether the switch reduces (NVLink SHARP)."""

    name: str
    bandwidth: float
    reduces_in_switch: bool = False


def link(hardware: HardwareProfile, ranks: int) -> Link | None:
    """The link that ``ranks`` devices talk over: the scale-up fabric inside its domain, the network beyond, PCIe where there is none.

    None for a single rank, or where the profile knows no link at all.
    """
    if ranks <= 1:
        return None
    wires = hardware.interconnect
    domain = wires.scale_up_domain_size or 1
    if wires.scale_up_gb_per_s_per_direction and ranks <= domain:
        return Link(
            wires.scale_up_name or "scale-up link",
            wires.scale_up_gb_per_s_per_direction * 1e9,
            _reduces_in_switch(wires.scale_up_name, wires.scale_up_topology),
        )
    if ranks > max(domain, 8) and wires.scale_out_gb_per_s_per_direction_per_device:
        return Link("network", wires.scale_out_gb_per_s_per_direction_per_device * 1e9)
    if wires.pcie_gb_per_s_per_direction:
        return Link("PCIe", wires.pcie_gb_per_s_per_direction * 1e9)
    if wires.scale_out_gb_per_s_per_direction_per_device:
        return Link("network", wires.scale_out_gb_per_s_per_direction_per_device * 1e9)
    return None


def _reduces_in_switch(name: str | None, topology: str | None) -> bool:
    """NVSwitch reduces since the third generation, that is with NVLink 4 and later."""
    generation = (name or "").removeprefix("NVLink ").split(" ")[0]
    return "switch" in (topology or "").lower() and generation in ("4", "5", "6")


def transfer_s(collective: Collective | None, wires: Link | None) -> Number:
    """Seconds that the bytes of one rank need on the link (ring or direct algorithm), without latency."""
    if collective is None or wires is None:
        return 0.0
    return collective.bytes_per_rank / wires.bandwidth


def floor_s(collective: Collective | None, wires: Link | None) -> Number:
    """The cheapest algorithm that the link allows, without latency: nothing beats it."""
    if collective is None or wires is None:
        return 0.0
    seconds = transfer_s(collective, wires)
    if collective.kind == "all-reduce" and wires.reduces_in_switch:
        in_switch = (1 + 1 / collective.ranks) * collective.message_bytes / wires.bandwidth
        return minimum(seconds, in_switch)
    return seconds
