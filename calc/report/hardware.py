"""One device as a page: peaks with their ridge points, memory, links, power, price, and what each figure rests on."""

from __future__ import annotations

from typing import Any

import msgspec

from calc.profiles.hardware import REPORTED_SHARE, HardwareProfile
from calc.report.table import Column, Page, Table
from calc.units import format_bytes, format_number


def record(profile: HardwareProfile) -> dict[str, Any]:
    """The profile's facts with ridge points."""
    facts: dict[str, Any] = msgspec.to_builtins(profile)
    facts["ridge_points"] = profile.ridge_points()
    return facts


def page(profile: HardwareProfile) -> Page:
    """One device on one screen."""
    ridges = profile.ridge_points()
    headline = [
        f"{profile.name} ({profile.id})",
        " ".join(w for w in (profile.vendor, profile.architecture, profile.device_class.replace("_", " ")) if w)
        + f"; one unit = {profile.unit_of_account}",
    ]
    peaks = Table(
        (Column("dense peak"), Column("TFLOPS", right=True), Column("ridge FLOP/B", right=True), Column("rests on", priority=1)),
        [
            [name, format_number(v, 5), format_number(ridges.get(name)), _origin(profile, name)]
            for name, v in profile.dense_peaks().items()
        ],
    )
    notes = [f"doubt: {d}" for d in profile.doubts]
    notes += [f"measured: {m.metric} {format_number(m.value, 4)} {m.unit} ({m.conditions})" for m in profile.measured]
    return Page(headline, [peaks, Table((Column(""), Column("")), _facts(profile))], notes)


def _origin(profile: HardwareProfile, field: str) -> str:
    found = [s for s in profile.sources if field in s.fields or any(f.startswith("all") for f in s.fields)]
    if not found:
        return "no source"
    first = found[0].url.removeprefix("https://").split("/")
    return "/".join(first[:3])[:40] + (f" +{len(found) - 1}" if len(found) > 1 else "")


def _facts(profile: HardwareProfile) -> list[list[str]]:
    wires, price = profile.interconnect, profile.cloud_price_usd_per_hour
    reported = profile.driver_bytes
    low, _, high = REPORTED_SHARE
    known = format_bytes(reported) if reported else f"not known: {low:g} to {high:g} of {profile.memory_capacity_gb:g} GiB assumed"
    rows = [
        ["memory", f"{profile.memory_capacity_gb:g} GB {profile.memory_type or ''}".strip()],
        ["  reported by the driver", known],
        ["bandwidth", f"{format_number(profile.memory_bandwidth_gb_per_s)} GB/s"],
        ["last-level cache", f"{format_bytes(profile.last_level_cache_bytes)} {profile.last_level_cache_kind or ''}".strip()],
    ]
    if wires.scale_up_gb_per_s_per_direction:
        rows.append(
            [
                "scale-up link",
                f"{wires.scale_up_name}: {wires.scale_up_gb_per_s_per_direction:g} GB/s per direction, domain {wires.scale_up_domain_size}",
            ]
        )
    if wires.pcie_gb_per_s_per_direction:
        rows.append(["PCIe", f"gen {wires.pcie_gen} x{wires.pcie_lanes}: {wires.pcie_gb_per_s_per_direction:g} GB/s per direction"])
    if wires.scale_out_gb_per_s_per_direction_per_device:
        rows.append(["scale-out", f"{wires.scale_out_gb_per_s_per_direction_per_device:g} GB/s per direction and device"])
    if profile.tdp_w:
        rows.append(["power", f"{profile.tdp_w:g} W"])
    if price:
        rows.append(["price", f"{price.value:g} USD/h ({price.provider}, {price.date})"])
    rows.append(["aliases", ", ".join(profile.aliases) or "-"])
    return rows


def detected_page(record: dict[str, Any], hint: str | None) -> Page:
    """What the local device is called, and what describes it."""
    several = f"{record['count']} x " if record["count"] > 1 else ""
    memory = f", {format_bytes(record['memory_bytes'])}" if record["memory_bytes"] else ""
    headline = [f"{several}{record['name']} ({record['kind']}{memory}), told by {record['told_by']}"]
    if record["profile"]:
        return Page([*headline, f"profile: {record['profile']}"])
    notes = ["No profile carries this name, and none is guessed.", *([hint] if hint else [])]
    notes.append(
        "`roofcast hardware detect --measure -o my-device.yaml` writes a profile of what it reaches; use it by its path or --profiles-dir."
    )
    return Page(headline, [], notes)
