"""Plausible bands: ridge point (C11), measured against peak (C18), per watt (C20)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from calc.checks.architectures import tables
from calc.checks.finding import Problem
from calc.checks.hardware_rules.device import Device
from calc.checks.registry import rule

_BANDWIDTH = "memory_bandwidth_gb_per_s"
_LEAST_SHARE = 0.2
_METRIC = re.compile(r"(?:matmul|gemm|mma)_(?P<dtype>[a-z]+\d+)")


@rule(
    "C11", "warning", "hardware", "bands",
    sentence="The ridge point in 16 bit lies between 5 and 600 FLOP per byte (edge 5 to 1000, CPU 1 to 400).",
    arithmetic="ridge = 16-bit TFLOPS x 1000 / GB/s.",
    example="A GPU with 989 TFLOPS and 335 GB/s: 989 x 1000 / 335 = 2952 FLOP per byte: a digit is missing.",
)  # fmt: skip
def ridge(device: Device) -> Iterator[Problem]:
    """C11."""
    peak, bandwidth = device.peak_16bit, device.profile.memory_bandwidth_gb_per_s
    band = tables().ridge_bands.get(device.profile.device_class)
    if peak is None or not bandwidth or band is None:
        return
    field, tflops = peak
    point = tflops * 1000 / bandwidth
    if not band[0] <= point <= band[1]:
        yield Problem(
            (_BANDWIDTH,),
            f"ridge {point:.4g} FLOP/byte from {tflops:g} TFLOPS and {bandwidth:g} GB/s; "
            f"{device.profile.device_class} has {band[0]:g} to {band[1]:g}",
            expected=f"{band[0]:g} to {band[1]:g}",
            found=round(point, 2),
            ratio=point / (band[1] if point > band[1] else band[0]),
            cause="a wrong unit, or one of the two from another part",
            remedy="check both operands",
            rests_on=(field, _BANDWIDTH),
        )


@rule(
    "C18", "error", "hardware", "bands",
    sentence="What was measured is at most the peak of the same dtype, and at least a fifth of it.",
    arithmetic="share = measured / peak_dense_tflops[dtype], or / memory_bandwidth_gb_per_s. Above 1 the peak (or the unit) is "
    "wrong.",
    example="MI355X with MI350X's 2300 as bf16 peak and 2400 measured: 104 %.",
)  # fmt: skip
def measured(device: Device) -> Iterator[Problem]:
    """C18."""
    for index, ceiling in enumerate(device.profile.measured):
        if ceiling.metric == "memory_bandwidth":
            field, peak, unit = _BANDWIDTH, device.profile.memory_bandwidth_gb_per_s, "GB/s"
        else:
            matched = _METRIC.fullmatch(ceiling.metric)
            dtype = matched["dtype"] if matched else ""
            if dtype not in device.profile.peak_dense_tflops.__struct_fields__:
                continue
            field, peak, unit = f"peak_dense_tflops.{dtype}", device.peak(dtype), "TFLOPS"
        if peak is None or ceiling.unit not in (unit, "TOPS" if unit == "TFLOPS" else unit):
            continue
        share = ceiling.value / peak
        if _LEAST_SHARE <= share <= 1:
            continue
        yield Problem(
            ("measured", index, "value"),
            f"{ceiling.metric} {ceiling.value:g} {unit} is {share:.1%} of the {peak:g} stated",
            expected=f"{_LEAST_SHARE * peak:.4g} to {peak:g}",
            found=ceiling.value,
            ratio=share,
            cause="the peak is too low or of another part, or the unit differs"
            if share > 1
            else "the peak is too high (sparse?), or the run was not at its best",
            remedy="mend the peak or the unit; a slow run needs an ignore with its reason",
            rests_on=(field,),
        )


@rule(
    "C20", "warning", "hardware", "bands",
    sentence="Performance per watt is plausible, and it is said what the watts belong to.",
    arithmetic="0.02 to 3 TFLOPS (16 bit) per W and 0.5 to 25 GB/s per W; tdp_scope is chip, module, board, soc, superchip, "
    "socket or share_of_parent.",
    example="A 72 W card with 3350 GB/s: 46.5 GB/s per W: the bandwidth is another part's.",
)  # fmt: skip
def per_watt(device: Device) -> Iterator[Problem]:
    """C20."""
    profile, bands = device.profile, tables().watt_bands
    watts = profile.tdp_w
    if not watts:
        return
    if profile.tdp_scope is None:
        yield Problem(
            ("tdp_w",),
            f"{watts:g} W of what? tdp_scope is not stated",
            expected="tdp_scope",
            found=None,
            cause="a superchip's watts include its CPU, a card's those of all its devices",
            remedy="state tdp_scope",
            refuses=("tdp_scope",),
        )
    values = [(profile.memory_bandwidth_gb_per_s, _BANDWIDTH, "GB/s", bands.gb_per_s_per_w)]
    if device.peak_16bit:
        values.append((device.peak_16bit[1], device.peak_16bit[0], "TFLOPS", bands.tflops_16bit_per_w))
    for value, field, unit, band in values:
        if not value or band[0] <= value / watts <= band[1]:
            continue
        ratio = value / watts
        yield Problem(
            ("tdp_w",),
            f"{value:g} {unit} at {watts:g} W are {ratio:.3g} {unit} per W",
            expected=f"{band[0]:g} to {band[1]:g} {unit} per W",
            found=round(ratio, 4),
            ratio=ratio / (band[1] if ratio > band[1] else band[0]),
            cause="watts and figure belong to different units (card, die, superchip)",
            remedy="enter both for one unit of account",
            rests_on=(field, "tdp_w"),
        )
