"""The tables that hardware rules hold profiles to, read once from ``architectures.yaml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from calc.profiles import reader
from calc.profiles.catalog import fold
from calc.profiles.hardware import HardwareProfile
from calc.profiles.schema import Dimension, Positive, Strict, Text

Rate = Positive | Annotated[list[Positive], msgspec.Meta(min_length=2, max_length=2)] | Literal["any"]


class Match(Strict, frozen=True, kw_only=True):
    """Which profiles a family covers: every key given must hold. An isa target may end in ``*``."""

    isa_target: list[Text] | None = None
    architecture: list[Text] | None = None
    device_class: list[Text] | None = None
    names: list[Text] | None = None


class Family(Strict, frozen=True, kw_only=True):
    """Dense operations per clock and unit by dtype, and what else parts of one architecture share."""

    id: Text
    match: Match
    rates: dict[Text, Rate]
    relative: bool = False
    matrix_units: Dimension | None = None  # instead of compute_unit_count
    matrix_clock_mhz: Positive | None = None  # where profiles carry no clock
    fp32_rate: Positive | None = None
    fp64_share_of_fp32: Positive | None = None
    shaders_per_unit: Dimension | None = None
    tensor_cores_per_unit: Dimension | None = None
    sparse_factor: dict[Text, Positive]
    link_gb_per_s_per_direction: Positive | None = None
    units_per_device: Dimension | None = None
    devices_per_package: Dimension | None = None
    workgroup_processors: bool = False
    sources: list[Text]

    def sparse(self, dtype: str) -> float:
        """How much faster than dense the sheet's sparse figure is; 1: no sparse mode."""
        return self.sparse_factor.get(dtype, self.sparse_factor["all"])


class Chip(Strict, frozen=True, kw_only=True):
    """One die or package."""

    full_units: Dimension | None = None
    boost_mhz: list[Positive] | None = None
    hbm_stacks: list[Dimension] | None = None
    dies: Dimension = 1
    link_gb_per_s_per_direction: Positive | None = None


class MemoryType(Strict, frozen=True, kw_only=True):
    """Geometry of a memory technology."""

    starts: Text
    width_bits: Dimension
    halved_width_bits: Dimension | None = None
    max_gb: Positive | None
    unit: Literal["stack", "chip", "channel"]


class InlineEcc(Strict, frozen=True, kw_only=True):
    """Parts whose driver reports the memory without the ECC bits kept in it."""

    memory_type: Text
    vendor: Text
    device_class: Text
    share: Positive


class WattBands(Strict, frozen=True, kw_only=True):
    """Plausible performance per watt."""

    tflops_16bit_per_w: list[Positive]
    gb_per_s_per_w: list[Positive]


class Succession(Strict, frozen=True, kw_only=True):
    """Parts of one class, oldest first; figures do not fall but for the exceptions."""

    parts: list[Text]
    exceptions: dict[Text, list[Text]] = msgspec.field(default_factory=dict)


class DeviceName(Strict, frozen=True, kw_only=True):
    """The part that a driver's device name belongs to."""

    id: Text
    memory_gb: Positive


class Tables(Strict, frozen=True, kw_only=True):
    """All of ``architectures.yaml``."""

    families: list[Family]
    chips: dict[Text, Chip]
    memory_types: list[MemoryType]
    inline_ecc: InlineEcc
    nvlink_gb_per_s_per_direction: dict[Text, Positive]
    pcie_gb_per_s_per_lane: dict[Text, Positive]
    network_gbit_per_s: list[Positive]
    ridge_bands: dict[Text, list[Positive]]
    watt_bands: WattBands
    successions: list[Succession]
    device_names: dict[Text, DeviceName]
    copied_tables: list[list[Text]]


@cache
def tables() -> Tables:
    """The tables, parsed once."""
    path = Path(__file__).with_name("architectures.yaml")
    return reader.convert(reader.parse_yaml(reader.read_bytes(path), path.name), Tables)


def isa_target(profile: HardwareProfile) -> str | None:
    """The ISA target, else the one that the compute capability implies (8.6 → sm_86)."""
    if profile.isa_target:
        return profile.isa_target.lower()
    capability = profile.compute_capability
    return "sm_" + capability.replace(".", "") if capability else None


def family_of(profile: HardwareProfile) -> Family | None:
    """The architecture family of a profile, None where the tables know none: its rules are then silent."""
    known = {fold(name): part.id for name, part in tables().device_names.items()}
    names = {fold(profile.id), fold(profile.name)}
    # A known part under another part's name keeps its own rates: C17 refuses the name.
    is_known = profile.id in known.values()
    names |= {fold(n) for n in profile.aliases if not is_known or known.get(fold(n), profile.id) == profile.id}
    return next((f for f in tables().families if _matches(f.match, profile, names)), None)


def _matches(match: Match, profile: HardwareProfile, names: set[str]) -> bool:
    target = isa_target(profile)
    if match.isa_target is not None and (target is None or not any(_same(target, wanted) for wanted in match.isa_target)):
        return False
    if match.architecture is not None and profile.architecture not in match.architecture:
        return False
    if match.device_class is not None and profile.device_class not in match.device_class:
        return False
    return match.names is None or any(fold(n) in names for n in match.names)


def _same(target: str, wanted: str) -> bool:
    return target.startswith(wanted[:-1]) if wanted.endswith("*") else target == wanted


def chip_of(profile: HardwareProfile) -> Chip | None:
    """The chip of a profile, where the tables know it."""
    return tables().chips.get(profile.chip) if profile.chip else None


def memory_type_of(profile: HardwareProfile) -> MemoryType | None:
    """The memory technology of a profile, by the start of its name."""
    kind = (profile.memory_type or "").upper()
    return next((m for m in tables().memory_types if kind.startswith(m.starts.upper())), None)
