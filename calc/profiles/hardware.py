"""The schema of a hardware profile: datasheet facts of one unit of account, with sources and doubts.

All rates are dense. GB is 10^9 bytes except ``memory_capacity_gb`` (the vendor's marketing figure). Links are per direction.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from calc.profiles.schema import Count, Dimension, Identifier, Positive, Source, Strict, Text
from calc.units import GIGA, MIB, TERA

#: A figure of a datasheet in its unit (10^12 operations/s, GB/s, GB, MiB, W, MHz). A millionth of any is below every machine; smaller ones
#: are typing errors whose times would overflow.
Figure = Annotated[float, msgspec.Meta(ge=1e-6, le=1e18)]
SparseType = Literal["tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4"]


class PeakDenseTflops(Strict, frozen=True, kw_only=True):
    """Dense matrix rates in 10^12 operations per second; null where the part has no such path or the figure is unknown.

    16-bit and fp8 rows accumulate in fp32; ``*_acc16`` is the rate with fp16 accumulation where it differs.
    """

    fp64: Figure | None = None
    fp64_matrix: Figure | None = None
    fp32: Figure | None = None
    tf32: Figure | None = None
    fp16: Figure | None = None
    fp16_acc16: Figure | None = None
    bf16: Figure | None = None
    fp8: Figure | None = None
    fp8_acc16: Figure | None = None
    fp6: Figure | None = None
    fp4: Figure | None = None
    int8: Figure | None = None
    int4: Figure | None = None


class Interconnect(Strict, frozen=True, kw_only=True):
    """Links of one device, per direction."""

    scale_up_name: Text | None = None
    scale_up_link_count: Dimension | None = None  # links of this device; count x rate of one link = the per-direction figure
    scale_up_gb_per_s_per_direction: Figure | None = None
    scale_up_gb_per_s_both_directions: Figure | None = None
    scale_up_domain_size: Dimension | None = None
    scale_up_topology: Text | None = None
    pcie_gen: Dimension | None = None
    pcie_lanes: Dimension | None = None
    pcie_gb_per_s_per_direction: Figure | None = None
    host_link_name: Text | None = None
    host_link_gb_per_s_per_direction: Figure | None = None
    scale_out_typical: Text | None = None
    scale_out_gb_per_s_per_direction_per_device: Figure | None = None
    scale_out_attachment: Literal["pcie", "on_die", "separate_lanes"] | None = None  # null: behind the PCIe link of the device

    @property
    def scale_up_bytes_per_s(self) -> float | None:
        """Scale-up fabric of one device, one direction."""
        return _bytes_per_s(self.scale_up_gb_per_s_per_direction)

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """PCIe link of one device, one direction."""
        return _bytes_per_s(self.pcie_gb_per_s_per_direction)

    @property
    def host_link_bytes_per_s(self) -> float | None:
        """Link between one device and its host's memory, one direction: one of its own, else PCIe."""
        return _bytes_per_s(self.host_link_gb_per_s_per_direction) or self.pcie_bytes_per_s

    @property
    def scale_out_bytes_per_s(self) -> float | None:
        """Network of one device, one direction."""
        return _bytes_per_s(self.scale_out_gb_per_s_per_direction_per_device)


def _bytes_per_s(gb_per_s: float | None) -> float | None:
    return None if gb_per_s is None else gb_per_s * GIGA


class Price(Strict, frozen=True, kw_only=True):
    """A price found on a date; never a quote."""

    value: Annotated[float, msgspec.Meta(ge=0)]
    provider: Text | None = None
    instance: Text | None = None
    date: Text | None = None
    source: Text | None = None
    note: Text | None = None


class MeasuredCeiling(Strict, frozen=True, kw_only=True):
    """What somebody reached on this part, and how."""

    metric: Text
    value: Positive
    unit: Text
    conditions: Text
    source: Text


class Parent(Strict, frozen=True, kw_only=True):
    """The larger unit that this one is part of: ``count`` of these make one ``id``."""

    id: Identifier | None
    name: Text
    count: Dimension


class HardwareProfile(Strict, frozen=True, kw_only=True):
    """One accelerator or CPU, as the runtime enumerates it (``unit_of_account``)."""

    id: Identifier
    name: Text
    vendor: Text
    aliases: list[Text] = []
    shared_names: list[Text] = []  # names that drivers report for other parts too: never enough to tell this one
    siblings: list[Identifier] = []  # profiles that carry the same figures on purpose (another form factor of the same part)
    device_class: Literal[
        "datacenter_gpu", "workstation_gpu", "consumer_gpu", "apu", "edge_soc", "asic", "tpu", "cpu", "measured"
    ] = msgspec.field(name="class")
    unit_of_account: Text
    runtime_devices: Dimension | None = None  # devices that the runtime enumerates for this unit; null: one
    parent: Parent | None = None
    form_factor: Text | None = None
    architecture: Text | None = None
    chip: Text | None = None
    isa_target: Text | None = None
    compute_capability: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,2}\.[0-9]{1,2}$")] | None = None  # as CUDA numbers it: 9.0
    release_year: Dimension | None = None
    memory_type: Text | None = None
    memory_capacity_gb: Figure
    memory_options_gb: list[Figure] | None = None
    memory_reported_mib: Figure | None = None
    memory_reported_bytes: Count | None = None
    memory_framework_total_mib: Figure | None = None
    memory_reported_source: Text | None = None
    memory_bus_width_bits: Dimension | None = None
    memory_data_rate_gbit_per_s_per_pin: Figure | None = None
    memory_bandwidth_gb_per_s: Figure | None
    last_level_cache_bytes: Count | None = None
    last_level_cache_kind: Text | None = None
    compute_unit_count: Dimension | None = None
    compute_unit_kind: Text | None = None
    shader_count: Dimension | None = None  # fp32 lanes as printed (CUDA cores, stream processors)
    tensor_core_count: Dimension | None = None
    boost_clock_mhz: Figure | None = None
    tensor_peak_clock_mhz: Figure | None = None
    bf16_or_fp16_dense_flops_per_clock_per_unit: Figure | None = None
    peak_dense_tflops: PeakDenseTflops
    vendor_sheet_quotes_sparse: bool | None = None
    peak_sparse_tflops: dict[SparseType, Figure] | None = None  # as the sheet prints them; never used for predictions
    fp4_formats: list[Text] | Text | None = None
    interconnect: Interconnect = Interconnect()
    tdp_w: Figure | None = None
    tdp_scope: Literal["chip", "module", "board", "soc", "superchip", "socket", "share_of_parent"] | None = None  # what draws tdp_w
    cloud_price_usd_per_hour: Price | None = None
    measured: list[MeasuredCeiling] = []
    sources: list[Source] = []
    doubts: list[Text] = []

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """Memory bandwidth in bytes per second."""
        return _bytes_per_s(self.memory_bandwidth_gb_per_s)

    @property
    def driver_bytes(self) -> int | None:
        """Memory as the driver reports it, to the byte where that is known."""
        return self.memory_reported_bytes or (int(self.memory_reported_mib * MIB) if self.memory_reported_mib else None)

    def dense_peaks(self) -> dict[str, float]:
        """Dense peaks in TFLOPS of the types that the device has."""
        table = self.peak_dense_tflops
        return {n: v for n in table.__struct_fields__ if (v := getattr(table, n)) is not None}

    def ridge_points(self) -> dict[str, float]:
        """FLOP per byte above which a kernel of each type is compute-bound; empty where no bandwidth is known."""
        bandwidth = self.memory_bandwidth_gb_per_s
        return {n: v * 1e3 / bandwidth for n, v in self.dense_peaks().items()} if bandwidth else {}

    def peak_flops_per_s(self, dtype: str) -> float | None:
        """Dense rate in operations per second of a compute dtype, None where the part has none."""
        tflops = getattr(self.peak_dense_tflops, dtype, None)
        return None if tflops is None else tflops * TERA


#: Share of the marketing GiB that drivers report where this part's own figure is unknown: low, expected, high
#: (61 profiles that carry both figures lie in 0.93-1.00).
REPORTED_SHARE = (0.93, 0.98, 1.0)


def faults(hardware: HardwareProfile) -> list[tuple[tuple[str | int, ...], str]]:
    """What the schema cannot say: (path, message) of every contradiction within a hardware profile."""
    mib, exact = hardware.memory_reported_mib, hardware.memory_reported_bytes
    if mib is not None and exact is not None and abs(mib * MIB - exact) > MIB:
        return [(("memory_reported_bytes",), f"{exact:,} bytes contradict memory_reported_mib {mib:g}")]
    return []
