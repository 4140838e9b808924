"""Links: scale-up (C12), PCIe (C13), scale-out (C14)."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.architectures import tables
from calc.checks.finding import Problem
from calc.checks.hardware_rules.device import Device
from calc.checks.registry import rule
from calc.profiles.hardware import Interconnect

_UP, _BOTH, _DOMAIN = "scale_up_gb_per_s_per_direction", "scale_up_gb_per_s_both_directions", "scale_up_domain_size"
_PCIE, _OUT = "pcie_gb_per_s_per_direction", "scale_out_gb_per_s_per_direction_per_device"
_TOLERANCE = 0.025
_BRIDGE_DOMAIN = 4  # NVLink bridges join two cards, H200 NVL's four; AMD's bridges up to four


def _field(name: str) -> str:
    return f"interconnect.{name}"


def _link_rate(device: Device) -> float | None:
    """GB/s per direction of one scale-up link: of the chip, of the NVLink generation, of the architecture."""
    name = device.profile.interconnect.scale_up_name or ""
    generations = tables().nvlink_gb_per_s_per_direction
    if name.upper().startswith("NVLINK"):
        if device.chip and device.chip.link_gb_per_s_per_direction:
            return device.chip.link_gb_per_s_per_direction
        return next((rate for generation, rate in generations.items() if name.upper().startswith(generation.upper())), None)
    if device.chip and device.chip.link_gb_per_s_per_direction:
        return device.chip.link_gb_per_s_per_direction
    return device.family.link_gb_per_s_per_direction if device.family else None


@rule(
    "C12", "error", "hardware", "links",
    sentence="Scale-up figures agree: both directions are twice one, one direction is links x rate, and a domain of one has no "
    "link.",
    arithmetic="per direction = scale_up_link_count x the rate of one link (NVLink 2, 3 and 4: 25 GB/s; GA102 bridges 14.06; "
    "NVLink 5: 50); without a count, a whole number of links. Scale-up is below memory bandwidth; a bridge joins at "
    "most 4.",
    example="H100 SXM with 900 per direction: 18 links x 25 GB/s = 450; 900 is the total of both directions.",
)  # fmt: skip
def scale_up(device: Device) -> Iterator[Problem]:
    """C12."""
    link = device.profile.interconnect
    one, both, domain = (getattr(link, name) for name in (_UP, _BOTH, _DOMAIN))
    if one and both and abs(both / one / 2 - 1) > 0.001:
        yield Problem(
            ("interconnect", _BOTH),
            f"both directions {both:g}, one direction {one:g} GB/s",
            expected=2 * one,
            found=both,
            ratio=both / (2 * one),
            cause="swapped, or the total entered twice",
            remedy="one direction is half of the marketing total",
            refuses=(_field(_UP), _field(_BOTH)),
        )
        return
    if one:
        yield from _link_count(device, link, one)
    if domain and (domain == 1) != (one is None):
        yield Problem(
            ("interconnect", _DOMAIN),
            f"a scale-up domain of {domain} " + ("beside a link" if domain == 1 else "without a link"),
            found=domain,
            cause="PCIe counted as a scale-up link" if one is None else "the link of another form factor",
            remedy="domain 1 if and only if there is no scale-up link",
            rests_on=(_field(_UP),),
        )
    bridged = "bridge" in f"{link.scale_up_name or ''} {link.scale_up_topology or ''}".lower()
    if domain and bridged and domain > _BRIDGE_DOMAIN:
        yield Problem(
            ("interconnect", _DOMAIN),
            f"a bridge joins at most {_BRIDGE_DOMAIN} cards, not {domain}",
            expected=_BRIDGE_DOMAIN,
            found=domain,
            ratio=domain / _BRIDGE_DOMAIN,
            cause="the whole node taken for the bridged pair",
            remedy="enter the cards that one bridge joins",
        )


def _link_count(device: Device, link: Interconnect, one: float) -> Iterator[Problem]:
    rate, count = _link_rate(device), link.scale_up_link_count
    bandwidth = device.profile.memory_bandwidth_gb_per_s
    links = count or (rate and max(1, round(one / rate)))
    if rate and links and abs(one / (links * rate) - 1) > _TOLERANCE:
        ratio = one / (links * rate)
        yield Problem(
            ("interconnect", _UP),
            f"{one:g} GB/s per direction; {links} links x {rate:g} GB/s = {links * rate:g}",
            expected=links * rate,
            found=one,
            ratio=ratio,
            cause="both directions" if abs(ratio - 2) < 0.05 else "one link" if one <= 2 * rate else "another part's links",
            remedy="enter links x rate of one link and direction",
            refuses=(_field(_UP), _field(_BOTH)),
        )
    elif bandwidth and one >= bandwidth:
        yield Problem(
            ("interconnect", _UP),
            f"scale-up {one:g} GB/s is not below memory bandwidth {bandwidth:g} GB/s",
            expected=f"< {bandwidth:g}",
            found=one,
            ratio=one / bandwidth,
            cause="the whole domain's total, or Gb/s",
            remedy="enter GB/s of one device in one direction",
            rests_on=("memory_bandwidth_gb_per_s",),
        )


@rule(
    "C13", "error", "hardware", "links",
    sentence="PCIe GB/s per direction is that of the generation times the lanes.",
    arithmetic="x16: Gen3 15.75, Gen4 31.5, Gen5 63, Gen6 121 GB/s per direction; 2.5 % of tolerance.",
    example="B200 with 128 GB/s at Gen5 x16: the table says 63; 128 counts both directions.",
)  # fmt: skip
def pcie(device: Device) -> Iterator[Problem]:
    """C13."""
    link = device.profile.interconnect
    found = link.pcie_gb_per_s_per_direction
    per_lane = tables().pcie_gb_per_s_per_lane.get(str(link.pcie_gen))
    if not found or not per_lane or not link.pcie_lanes:
        return
    expected = per_lane * link.pcie_lanes
    ratio = found / expected
    if abs(ratio - 1) > _TOLERANCE:
        yield Problem(
            ("interconnect", _PCIE),
            f"{found:g} GB/s; PCIe Gen{link.pcie_gen} x{link.pcie_lanes} carries {expected:.4g} GB/s per direction",
            expected=round(expected, 2),
            found=found,
            ratio=ratio,
            cause="both directions, or the next generation" if abs(ratio - 2) < 0.1 else "another generation or lane count",
            remedy="enter one direction of the link the part runs at",
        )


@rule(
    "C14", "error", "hardware", "links",
    sentence="Scale-out per device is in GB/s and passes the part's own PCIe link, unless the NIC has another way in.",
    arithmetic="GB/s <= PCIe GB/s x 1.025, unless scale_out_attachment is on_die (Gaudi's Ethernet) or separate_lanes (GB10). "
    "Eight times a NIC's GB/s (12.5, 25, 50, 100) is its Gb/s.",
    example="H100 with 400: PCIe Gen5 x16 carries 63 GB/s, and 400 / 8 = 50 GB/s is one NDR port: 400 is in Gb/s.",
)  # fmt: skip
def scale_out(device: Device) -> Iterator[Problem]:
    """C14."""
    link = device.profile.interconnect
    found, limit = link.scale_out_gb_per_s_per_direction_per_device, link.pcie_gb_per_s_per_direction
    if not found:
        return
    nics = [rate / 8 for rate in tables().network_gbit_per_s]
    in_gbit = any(abs(found / 8 / nic - 1) < 0.01 for nic in nics)
    free = link.scale_out_attachment in ("on_die", "separate_lanes")
    beyond_pcie = limit is not None and found > limit * (1 + _TOLERANCE) and not free
    if not beyond_pcie and not (in_gbit and found > 2 * max(n for n in nics if n <= 100)):
        return
    yield Problem(
        ("interconnect", _OUT),
        f"{found:g} GB/s per device"
        + (f" is more than its PCIe link carries ({limit:g} GB/s)" if beyond_pcie else " is more than any NIC carries"),
        expected=found / 8 if in_gbit else f"<= {limit:g}",
        found=found,
        ratio=8.0 if in_gbit else found / (limit or found),
        cause="Gb/s entered as GB/s" if in_gbit else "the node's NICs counted for one device",
        remedy="divide Gb/s by 8 and by the devices that share the NIC; state scale_out_attachment where the NIC is not behind PCIe",
        rests_on=(_field(_PCIE),),
    )
