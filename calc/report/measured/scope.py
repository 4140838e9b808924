"""What a report is about: which operators were measured, on which ceilings, and by which causes their time is split."""

from __future__ import annotations

from typing import Any

from calc.report.table import Column, Table
from calc.units import format_flops, format_percent, format_seconds, format_traffic

#: Parts of the measured time in words, in the order in which they are charged.
PARTS = {
    "base_s": ("at datasheet rates", "base"),
    "bandwidth_s": ("bandwidth below the datasheet's", "more"),
    "compute_s": ("compute rate below the datasheet's", "more"),
    "tile_s": ("tiles that are not full", "more"),
    "wave_s": ("last wave not full", "more"),
    "launch_s": ("launches", "more"),
    "unexplained_s": ("unexplained", "rest"),
}


def base_words(record: dict[str, Any]) -> str:
    """What the first part of the measured time is."""
    return PARTS["base_s"][0] if record["datasheet"] else "at the ceilings measured here"


def causes(record: dict[str, Any]) -> Table:
    """The measured time of each step by cause; nothing where a row has no split."""
    steps = [s for s in record["steps"] if s["gap"]]
    columns = [Column("measured time of a step, by cause")]
    rows = [[base_words(record) if name == "base_s" else words] for name, (words, _) in PARTS.items()]
    for step in steps:
        columns += [Column(step["phase"], right=True), Column("", right=True)]
        for row, seconds in zip(rows, step["gap"].values(), strict=True):
            sign = "-" if seconds < 0 else ""
            row += [sign + format_seconds(abs(seconds)), format_percent(seconds / step["measured_s"])]
    known = [r for r, name in zip(rows, PARTS, strict=True) if any(s["gap"][name] for s in steps)]
    return Table(tuple(columns), known)


def rate(value: float | None, unit: str) -> str:
    """A ceiling with its unit."""
    if value is None:
        return "-"
    if unit == "s":
        return format_seconds(value)
    return (format_flops(value, 3) if unit.startswith("flop") else format_traffic(value, 3)) + "/s"


SCOPE = ("phase", "class", "operators", "measured", "judged", "what is missing, and why")


def scope(record: dict[str, Any]) -> list[list[str]]:
    """What of each step was measured, and what was not: by phase and class."""
    found = []
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in record["rows"]:
        key = (row["phase"], row["class"])
        part = reasons.setdefault(key, [])
        if row["measured_s"] is None or row["status"] == "unreliable":
            why = row["note"] or row["status"]
            part.append(f"{row['operation']}: {why}")
    for (phase, op_class), missing in reasons.items():
        own = [r for r in record["rows"] if (r["phase"], r["class"]) == (phase, op_class)]
        counts = (len(own), sum(r["measured_s"] is not None for r in own), sum(r["counts"] for r in own))
        found.append([phase, op_class, *map(str, counts), "; ".join(dict.fromkeys(missing)) or "-"])
    return found


CEILINGS = ("ceiling", "dtype", "measured", "datasheet", "status", "kernel")
#: Ceilings that are no rate of the device's own memory or units.
_HOST = ("host_to_device", "device_to_host")


def ceilings(record: dict[str, Any]) -> list[list[str]]:
    """What the device reached, beside its datasheet."""
    sheet = record["datasheet"] or {}
    found = []
    for c in record["ceilings"]:
        limit = None
        if c["name"].startswith("matmul"):
            limit = sheet.get("peak_flops_per_s", {}).get(c["dtype"])
        elif c["unit"] == "byte/s" and c["name"] not in _HOST:
            limit = sheet.get("bandwidth_bytes_per_s")
        name = c["name"].replace("_", " ")
        found.append([name, c["dtype"], rate(c["value"], c["unit"]), rate(limit, c["unit"]), c["status"], str(c["kernel"])])
    return found
