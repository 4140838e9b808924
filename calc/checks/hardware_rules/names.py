"""Names: known device names (C17). Uniqueness across files (C16) is a library rule."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.architectures import DeviceName, tables
from calc.checks.finding import Problem
from calc.checks.hardware_rules.device import Device
from calc.checks.registry import rule
from calc.profiles.catalog import fold

_MEMORY_TOLERANCE = 0.1


@rule(
    "C17", "error", "hardware", "identity",
    sentence="A name that drivers report stands in the profile of the part that reports it.",
    arithmetic="device_names of architectures.yaml: the name's part and its memory; the profile may not be another known part, "
    "and memory_capacity_gb is within 10 % of that part's. Names match exactly after folding case and spaces.",
    example="NVIDIA L40S as an alias of l40, or NVIDIA GH200 480GB on 480 GB: 480 is the CPU's memory.",
)  # fmt: skip
def device_names(device: Device) -> Iterator[Problem]:
    """C17."""
    profile = device.profile
    known = {fold(name): (name, part) for name, part in tables().device_names.items()}
    ids = {part.id for part in tables().device_names.values()}
    for index, alias in enumerate(profile.aliases):
        name, part = known.get(fold(alias), (alias, None))
        if part is None:
            continue
        if profile.id in ids and profile.id != part.id:
            yield _wrong(index, name, part, f"{name} is what {part.id} reports, not {profile.id}", part.id, profile.id)
        elif abs(profile.memory_capacity_gb / part.memory_gb - 1) > _MEMORY_TOLERANCE:
            message = f"{name} reports {part.memory_gb:g} GB; this profile has {profile.memory_capacity_gb:g}"
            yield _wrong(index, name, part, message, part.memory_gb, profile.memory_capacity_gb)


def _wrong(index: int, name: str, part: DeviceName, message: str, expected: str | float, found: str | float) -> Problem:
    ratio = found / expected if isinstance(found, float) and isinstance(expected, (int, float)) else None
    return Problem(
        ("aliases", index),
        message,
        expected=expected,
        found=found,
        ratio=ratio,
        cause="matched as a substring, or a capacity read from the device name",
        remedy=f"move the alias to {part.id}" if ratio is None else "enter the memory that the driver reports",
        refuses=("memory_capacity_gb",) if ratio is not None else (f"name {fold(name)}",),
    )
