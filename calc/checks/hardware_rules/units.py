"""Compute units: shaders per unit and full dies (C10), the unit of account (C15)."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.finding import Problem
from calc.checks.hardware_rules.device import LOWEST_SHARE_OF_BOOST, Device
from calc.checks.registry import rule

_UNITS = "compute_unit_count"
#: Figures that grow with the number of devices in a package.
ADDITIVE = ("compute_unit_count", "memory_capacity_gb", "memory_bandwidth_gb_per_s", "memory_bus_width_bits", "tdp_w")


def devices(device: Device) -> int:
    """Devices that the runtime shows for this unit of account."""
    return device.profile.runtime_devices or 1


def exceeds_one_device(device: Device) -> bool:
    """Whether the units are more than one device of the architecture has."""
    family, units = device.family, device.profile.compute_unit_count
    return bool(family and family.units_per_device and units and units > family.units_per_device * devices(device))


@rule(
    "C10", "error", "hardware", "units",
    sentence="Units fit the die and the shaders: fp32 lanes per unit are the architecture's, units at most those of the full "
    "die.",
    arithmetic="shader_count / compute_unit_count and tensor_core_count / compute_unit_count are those of the architecture (64 "
    "or 128 shaders, 4 or 8 tensor cores on NVIDIA); fp32 TFLOPS = units x fp32 rate x a clock of 0.8 to 1.03 of the "
    "boost; on RDNA twice that means that the probe counted work-group processors.",
    example="L4 with 7424 shaders and 60 SM: 7424 / 60 = 123.7, not 128: the part has 58 SM.",
)  # fmt: skip
def units_fit(device: Device) -> Iterator[Problem]:
    """C10."""
    profile, family, units = device.profile, device.family, device.profile.compute_unit_count
    if units is None:
        return
    if device.chip and device.chip.full_units and units > device.chip.full_units and not exceeds_one_device(device):
        yield Problem(
            (_UNITS,),
            f"{units} units; the full {profile.chip} has {device.chip.full_units}",
            expected=device.chip.full_units,
            found=units,
            ratio=units / device.chip.full_units,
            cause="a larger sibling's row, or two dies counted on one",
            remedy="enter the units enabled on this part",
        )
        return
    if family is None:
        return
    for name, per_unit in (("shader_count", family.shaders_per_unit), ("tensor_core_count", family.tensor_cores_per_unit)):
        count = getattr(profile, name)
        if count and per_unit and count != units * per_unit:
            yield Problem(
                (_UNITS,),
                f"{name} {count} / {units} units = {count / units:.4g} per unit; {family.id} has {per_unit}",
                expected=round(count / per_unit),
                found=units,
                ratio=units * per_unit / count,
                cause="the units of the full die, or of another part",
                remedy="check units and lanes against the driver's multi_processor_count",
                refuses=(_UNITS, name),
            )
            return
    yield from _fp32_row(device)


def _fp32_row(device: Device) -> Iterator[Problem]:
    family, boost, fp32 = device.family, device.profile.boost_clock_mhz, device.peak("fp32")
    units = device.profile.compute_unit_count
    if family is None or not family.fp32_rate or not boost or not fp32 or not units or exceeds_one_device(device):
        return
    ratio = fp32 * 1e6 / (units * family.fp32_rate) / boost
    if LOWEST_SHARE_OF_BOOST * 0.98 <= ratio <= 1.03:
        return
    expected = units * family.fp32_rate * boost / 1e6
    halved = family.workgroup_processors and abs(ratio - 2) < 0.1
    tensor_agrees = device.anchor is not None and device.is_plausible(device.anchor.clock)
    yield Problem(
        (_UNITS,) if halved else ("peak_dense_tflops", "fp32"),
        f"fp32 {fp32:g} TFLOPS would need {ratio * family.fp32_rate / 2:.4g} lanes per unit at {boost:g} MHz; "
        f"{family.id} has {family.fp32_rate / 2:g}",
        expected=units * 2 if halved else round(expected, 2),
        found=units if halved else fp32,
        ratio=0.5 if halved else ratio,
        cause="work-group processors counted for compute units" if halved else "a matrix rate, another part's row, or wrong units",
        remedy="RDNA compute units = 2 x torch's multi_processor_count"
        if halved
        else "fp32 is the vector rate: units x lanes x 2 x clock",
        refuses=("peak_dense_tflops.fp32",) if tensor_agrees else (_UNITS, "peak_dense_tflops.fp32"),
    )


@rule(
    "C15", "error", "hardware", "units",
    sentence="A profile describes one unit of account: what the runtime enumerates, or a package that says how many devices it "
    "shows.",
    arithmetic="units at most those of one device x runtime_devices; a package of the architecture states runtime_devices or has "
    "a parent; memory stacks are those of all dies when the units are; across files, parent = count x child for every "
    "additive figure.",
    example="MI250X with 220 CU and 383 TFLOPS as one device: torch shows two GCDs of 110 CU and 191.5 TFLOPS.",
)  # fmt: skip
def unit_of_account(device: Device) -> Iterator[Problem]:
    """C15 within one file."""
    profile, family, chip = device.profile, device.family, device.chip
    units = profile.compute_unit_count
    everything = (*ADDITIVE, *(f"peak_dense_tflops.{name}" for name in profile.peak_dense_tflops.__struct_fields__))
    if family and family.units_per_device and units and exceeds_one_device(device):
        one = family.units_per_device
        yield Problem(
            (_UNITS,),
            f"{units} units on {devices(device)} device(s); one {family.id} device has at most {one}",
            expected=one * devices(device),
            found=units,
            ratio=units / (one * devices(device)),
            cause="the whole card where the runtime shows each die as a device",
            remedy="describe one device and name the card as parent, or state runtime_devices",
            refuses=everything,
        )
    elif family and family.devices_per_package and profile.parent is None and profile.runtime_devices != family.devices_per_package:
        yield Problem(
            ("unit_of_account",),
            f"one {family.id} package shows {family.devices_per_package} devices; runtime_devices says {devices(device)}",
            expected=family.devices_per_package,
            found=devices(device),
            ratio=devices(device) / family.devices_per_package,
            cause="package and device taken for one",
            remedy=f"state runtime_devices: {family.devices_per_package}, or describe one device and name the package as parent",
        )
    elif chip and chip.dies > 1 and chip.full_units and units and chip.hbm_stacks and profile.memory_bus_width_bits:
        whole = min(chip.hbm_stacks) * 1024
        if units > chip.full_units / chip.dies and profile.memory_bus_width_bits * chip.dies <= whole:
            yield Problem(
                ("memory_bus_width_bits",),
                f"memory of one die ({profile.memory_bus_width_bits} bit) beside the units of {chip.dies} ({units})",
                expected=whole,
                found=profile.memory_bus_width_bits,
                ratio=profile.memory_bus_width_bits / whole,
                cause="one die's memory, two dies' units",
                remedy="enter the memory of the whole device",
                refuses=everything,
            )
