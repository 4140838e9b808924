"""Memory: bandwidth (C7), geometry (C8), reported capacity (C9)."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.architectures import tables
from calc.checks.finding import Problem
from calc.checks.hardware_rules.device import Device
from calc.checks.registry import rule
from calc.units import GIB, GIGA, MIB

_BUS, _RATE, _BANDWIDTH = "memory_bus_width_bits", "memory_data_rate_gbit_per_s_per_pin", "memory_bandwidth_gb_per_s"
_BANDWIDTH_TOLERANCE = 0.025  # sheets round to two digits (900 for 898, 3700 for 3686)
_FACTORS = (
    (1.074, 0.012, "GiB/s taken for GB/s and converted, or the other way round"),
    (0.931, 0.012, "GB/s taken for GiB/s"),
    (2.0, 0.05, "both dies, both directions, or double data rate counted twice"),
    (0.5, 0.05, "one die or GCD of two"),
    (8.0, 0.05, "bits for bytes"),
    (0.125, 0.05, "bytes for bits"),
    (1.12, 0.02, "a sibling on the same chip with faster memory"),
)


def _factor(ratio: float, default: str) -> str:
    return next((cause for factor, tolerance, cause in _FACTORS if abs(ratio / factor - 1) <= tolerance), default)


@rule(
    "C7", "error", "hardware", "memory",
    sentence="Memory bandwidth is bus width x data rate per pin / 8 within 2.5 %.",
    arithmetic="GB/s = bits x Gbit/s / 8. Ratio 1.074 or 0.931: GiB against GB; 2: both dies, or double data rate counted twice; "
    "1.12 between siblings on one chip: the other's memory clock.",
    example="H100 SXM with 3598 GB/s: 5120 x 5.24 / 8 = 3354, ratio 1.073: 3350 was read as GiB/s.",
)  # fmt: skip
def bandwidth(device: Device) -> Iterator[Problem]:
    """C7."""
    profile = device.profile
    bus, rate, found = profile.memory_bus_width_bits, profile.memory_data_rate_gbit_per_s_per_pin, profile.memory_bandwidth_gb_per_s
    if not bus or not rate or not found:
        return
    expected = bus * rate / 8
    ratio = found / expected
    if abs(ratio - 1) > _BANDWIDTH_TOLERANCE:
        yield Problem(
            (_BANDWIDTH,),
            f"{found:g} GB/s; {bus} bit x {rate:g} Gbit/s / 8 = {expected:.4g} GB/s",
            expected=round(expected, 1),
            found=found,
            ratio=ratio,
            cause=_factor(ratio, "another part's figure"),
            remedy="enter the vendor's GB/s (10^9) of this part, or mend bus width and data rate",
            refuses=(_BANDWIDTH, _RATE),
            rests_on=(_BUS,),
        )


@rule(
    "C8", "warning", "hardware", "memory",
    sentence="The bus is whole stacks or chips, as many as the package carries, and they can hold the capacity.",
    arithmetic="1024 bit per HBM stack (512 where one is halved), 32 per GDDR chip and LPDDR channel, 64 per DDR channel; stacks "
    "x the largest stack of the generation >= capacity (HBM2 8 GB, HBM2e 16, HBM3 24, HBM3e 36; GDDR6 4 in clamshell, "
    "GDDR7 6).",
    example="H100 NVL with a bus of 6016 bit: six stacks make 6144, and 6016 / 1024 = 5.875.",
)  # fmt: skip
def geometry(device: Device) -> Iterator[Problem]:
    """C8."""
    profile, kind, bus = device.profile, device.memory_type, device.profile.memory_bus_width_bits
    if kind is None or not bus:
        return
    step = kind.halved_width_bits or kind.width_bits
    places = bus / kind.width_bits
    stacks = device.chip.hbm_stacks if device.chip and kind.unit == "stack" else None
    if bus % step or (stacks and -(-bus // kind.width_bits) not in stacks):
        nearest = (
            min((s * kind.width_bits for s in stacks), key=lambda w: abs(w - bus)) if stacks else round(places) * kind.width_bits
        )
        yield Problem(
            (_BUS,),
            f"{bus} bit are {places:.4g} {kind.unit}s of {kind.width_bits} bit {kind.starts}"
            + (f"; {profile.chip} carries {_list(stacks)}" if stacks else ""),
            expected=nearest,
            found=bus,
            ratio=bus / nearest if nearest else None,
            cause="another part's bus, or a controller's figure with a channel switched off",
            remedy="enter the width that the driver or the sheet gives for all stacks",
            refuses=(_BUS, _RATE),
        )
    elif kind.max_gb and profile.memory_capacity_gb > places * kind.max_gb * 1.001:
        yield Problem(
            ("memory_capacity_gb",),
            f"{profile.memory_capacity_gb:g} GB on {places:.4g} {kind.unit}s; {kind.starts} holds at most {kind.max_gb:g} GB each",
            expected=places * kind.max_gb,
            found=profile.memory_capacity_gb,
            ratio=profile.memory_capacity_gb / (places * kind.max_gb),
            cause="a sibling's capacity, the whole card's, or CPU memory in the device name",
            remedy="enter the capacity of one unit of account",
        )


def _list(stacks: list[int]) -> str:
    return str(stacks[0]) if len(stacks) == 1 else f"{min(stacks)} to {max(stacks)}"


@rule(
    "C9", "error", "hardware", "memory",
    sentence="Memory that the driver reports is 0.93 to 1.01 of the marketing GiB, 15/16 where ECC is kept in it, and never "
    "decimal GB.",
    arithmetic="share = reported bytes / (memory_capacity_gb x 2^30); 0.93132 exactly is 10^9 / 2^30. Data-centre cards with "
    "GDDR6 show 0.9375 +- 0.75 %. What a framework sees is 0 to 2.5 % below the driver's total. Of several options "
    "the largest is stated.",
    example="L4 with 24576 MiB: the driver shows 23034 MiB (0.9373), because ECC takes 1/16 of GDDR6.",
)  # fmt: skip
def reported(device: Device) -> Iterator[Problem]:
    """C9."""
    profile = device.profile
    options, capacity = profile.memory_options_gb, profile.memory_capacity_gb
    if options and capacity != max(options):
        yield Problem(
            ("memory_capacity_gb",),
            f"{capacity:g} GB; the options are {', '.join(f'{o:g}' for o in options)}",
            expected=max(options),
            found=capacity,
            ratio=capacity / max(options),
            cause="one of the options",
            remedy="state the largest option; --gpu-memory chooses another",
        )
        return
    field = "memory_reported_bytes" if profile.memory_reported_bytes else "memory_reported_mib"
    mib = (profile.memory_reported_bytes or 0) / MIB or profile.memory_reported_mib
    if mib:
        yield from _share(device, field, mib * MIB)
    seen = profile.memory_framework_total_mib
    total = mib or (None if seen is None else capacity * 1024)
    lowest = 0.975 if mib else 0.93
    if seen and total and not lowest * total - 1 <= seen <= total + 1:
        yield Problem(
            ("memory_framework_total_mib",),
            f"a framework sees {seen:g} MiB of {total:.0f} MiB",
            expected=round(total),
            found=seen,
            ratio=seen / total,
            cause="free memory, or another part's figure",
            remedy="enter torch's total_memory of an idle device",
            rests_on=("memory_capacity_gb", field),
        )


def _share(device: Device, field: str, found: float) -> Iterator[Problem]:
    profile, ecc = device.profile, tables().inline_ecc
    marketing = profile.memory_capacity_gb * GIB
    share = found / marketing
    keeps_ecc = (
        (profile.memory_type or "").upper().startswith(ecc.memory_type)
        and profile.vendor == ecc.vendor
        and profile.device_class == ecc.device_class
    )
    expected = ecc.share if keeps_ecc else 1.0
    if abs(share - GIGA / GIB) < 0.0004 and not keeps_ecc:
        cause = "decimal GB"
    elif keeps_ecc and abs(share / ecc.share - 1) > 0.0075:
        cause = "read with ECC off: drivers of these cards keep 1/16 for it" if share > ecc.share else "another part's figure"
    elif not 0.93 - 0.0015 <= share <= 1.01:
        cause = "another part's figure, free memory instead of total, or CPU memory from the device name"
    else:
        return
    yield Problem(
        (field,),
        f"{found / MIB:,.0f} MiB are {share:.4f} of {profile.memory_capacity_gb:g} GiB",
        expected=round(marketing * expected) if field.endswith("bytes") else round(marketing * expected / MIB),
        found=int(found) if field.endswith("bytes") else found / MIB,
        ratio=share / expected,
        cause=cause,
        remedy="enter the total that nvidia-smi or rocm-smi prints",
        refuses=(field, "memory_reported_mib", "memory_reported_bytes"),
        rests_on=("memory_capacity_gb",),
    )
