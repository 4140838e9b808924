"""Measured against predicted as a page: per phase the sums, then operator by operator. Reads the plain record of a run."""

from __future__ import annotations

from typing import Any

from calc.report.measured.scope import rate
from calc.report.measured.summary import signed
from calc.report.table import Column, Page, Table
from calc.units import format_bytes, format_count, format_flops, format_number, format_percent, format_seconds

_COLUMNS = (
    Column("operator"),
    Column("calls", right=True),
    Column("shape", priority=4),
    Column("bound"),
    Column("measured", right=True),
    Column("95 %", right=True, priority=3),
    Column("predicted", right=True),
    Column("error", right=True),
    Column("verdict"),
    Column("share", right=True, priority=1),
    Column("reached", right=True, priority=2),
)


def record(facts: dict[str, Any]) -> dict[str, Any]:
    """``results`` of ``measure``: everything but the raw samples, which the run file holds."""
    kept = (
        "environment",
        "settings",
        "monitor",
        "ceilings",
        "phases",
        "rows",
        "not_measured",
        "noisy",
        "duration_s",
        "output",
        "interrupted",
    )
    return {key: facts[key] for key in kept}


def rows(facts: dict[str, Any]) -> list[dict[str, object]]:
    """One record per operator."""
    return [{k: v for k, v in row.items() if not isinstance(v, (dict, tuple, list))} for row in facts["rows"]]


def page(name: str, facts: dict[str, Any]) -> Page:
    """The answer of a run: the phases first."""
    environment, settings = facts["environment"], facts["settings"]
    device = environment.get("device", {})
    headline = [
        f"{name} measured on {device.get('name', 'this device')} in {settings.get('dtype')}",
        "error = predicted / measured - 1; predicted from the ceilings measured in this run",
    ]
    headline += [f"noisy: {reason}" for reason in facts["noisy"]]
    tables = [_ceilings(facts["ceilings"]), _phases(facts["phases"])]
    tables += [_operators(phase["phase"], facts["rows"]) for phase in facts["phases"]]
    notes = [
        f"Batch {settings.get('batch_size')}, prompt {settings.get('input_len')}, context {settings.get('context_len')}; "
        f"{format_count(settings.get('rounds_finished', 0), 'round')} in {format_seconds(facts['duration_s'])}. "
        "Sums of kernels: no scheduler, no sampling, no network front end."
    ]
    notes.append(_watched(facts["monitor"], facts["cases"]))
    if facts["not_measured"]:
        notes.append("not measured: " + "; ".join(facts["not_measured"]))
    notes += [f"{p['phase']}: unreliable: {', '.join(p['unreliable'])}" for p in facts["phases"] if p["unreliable"]]
    warnings = [(w["code"], w["message"]) for w in facts["warnings"] if w["message"] not in facts["noisy"]]
    warnings += _advice(facts["cases"], {w["code"] for w in facts["warnings"]})
    if facts.get("output"):
        notes.append(f"run file: {facts['output']}")
    return Page(headline, tables, notes, warnings)


def _watched(monitor: Any, cases: Any) -> str:
    """Who watched what, and the cases that a power limit held."""
    words = {"sm_clock_hz": "clock", "temperature_c": "temperature", "power_w": "power"}
    unseen = [word for name, word in words.items() if name not in monitor["watched"]]
    line = f"Watched by {monitor['source']}" if monitor["watched"] else "Nobody watched the device"
    line += f"; unmonitored: {', '.join(unseen)}." if unseen else "."
    limited = [c["case"]["id"] for c in cases if "power_limited" in c["labels"]]
    return line + (f" Power limited: {', '.join(limited)}." if limited else "")


def _advice(cases: Any, said: set[str]) -> list[tuple[str, str]]:
    """Each warning of the cases once, with the number of cases that have it: what helps one helps all. What was ``said`` of the run
    is not said again."""
    found: dict[str, list[Any]] = {}
    for case in cases:
        for warning in case["warnings"]:
            found.setdefault(warning["code"], []).append((case["case"]["id"], warning["message"]))
    for code in said:
        found.pop(code, None)
    return [
        (code, f"{hits[0][0]}: {hits[0][1]}" + (f" (and {len(hits) - 1} more)" if len(hits) > 1 else ""))
        for code, hits in found.items()
    ]


def _ceilings(ceilings: Any) -> Table:
    columns = (
        Column("ceiling"),
        Column("dtype"),
        Column("reached", right=True),
        Column("95 %", right=True, priority=2),
        Column("status"),
    )
    found = [[c["name"].replace("_", " "), c["dtype"], rate(c["value"], c["unit"]), _interval(c), c["status"]] for c in ceilings]
    return Table(columns, found)


def _interval(ceiling: Any) -> str:
    ends = ceiling.get("interval")
    return f"{rate(ends[0], ceiling['unit'])} - {rate(ends[1], ceiling['unit'])}" if ends else "no interval"


def _phases(phases: Any) -> Table:
    columns = (
        Column("phase"),
        Column("bound"),
        Column("measured", right=True),
        Column("predicted", right=True),
        Column("error", right=True),
        Column("FLOP/s", right=True),
        Column("bytes/s", right=True),
        Column("FLOP/B", right=True, priority=2),
        Column("datasheet", right=True, priority=1),
    )
    found = [
        [
            p["phase"],
            p["bound"] or "-",
            format_seconds(p["measured_s"]),
            format_seconds(p["predicted_s"]),
            signed(p["error"]) + (" (unreliable)" if p["unreliable"] else ""),
            rate(p["flops_per_s"], "flop/s"),
            rate(p["bytes_per_s"], "byte/s"),
            format_number(p["arithmetic_intensity"], 3) if p["arithmetic_intensity"] is not None else "-",
            format_seconds(p["datasheet_s"]),
        ]
        for p in phases
    ]
    return Table(columns, found, "one step, all layers")


def _operators(phase: str, found: Any) -> Table:
    return Table(_COLUMNS, [_operator(r) for r in found if r["phase"] == phase], f"{phase}, one call of each operator")


def _operator(row: Any) -> list[str]:
    interval = row["interval_s"]
    compute = row["bound"] == "compute"
    return [
        row["operation"],
        f"{row['count']:,}",
        "x".join(str(v) for v in row["shape"].values() if isinstance(v, (int, float)))[:32],
        row["bound"] or "-",
        format_seconds(row["measured_s"]),
        f"{format_seconds(interval[0])} - {format_seconds(interval[1])}" if interval else "-",
        format_seconds(row["predicted_s"]),
        signed(row["error"]),
        row["verdict"],
        format_percent(row["share"], 3) if row["share"] is not None else "-",
        rate(row["flops_per_s"], "flop/s") if compute else rate(row["bytes_per_s"], "byte/s"),
    ]


def list_page(name: str, cases: list[dict[str, Any]], not_measured: list[str]) -> Page:
    """``measure --list``."""
    columns = (
        Column("case"),
        Column("calls", right=True, priority=3),
        Column("FLOP", right=True, priority=1),
        Column("bytes", right=True, priority=2),
    )
    lines = [
        [c["id"], str(c["calls"]), format_flops(c["flops"], 3) if c["flops"] else "-", format_bytes(c["bytes"], 3)] for c in cases
    ]
    return Page(
        [f"{name}: {format_count(len(cases), 'case')}"], [Table(columns, lines)], [f"not measured: {n}" for n in not_measured]
    )
