"""A start-up log against the prediction, as a page and as records."""

from __future__ import annotations

from typing import Any

from calc.memory.engines.logs import StartUpLog
from calc.report import memory_terms
from calc.report.estimate import title
from calc.report.table import Column, Page, Table
from calc.serving.deployment import Deployment
from calc.serving.reconcile import Line, Reconciliation
from calc.units import format_bytes

_NAMES = memory_terms.FULL | {
    "kv_cache": "KV cache", "kv_tokens": "KV cache, tokens", "max_concurrency": "concurrency", "blocks": "blocks",
    "block_tokens": "block, tokens", "kv_keys": "keys", "kv_values": "values", "consumed": "consumed in all",
    "free": "free for the cache", "free_before": "free before loading", "free_after": "free after loading",
    "peak_torch": "weights + activation peak",
}  # fmt: skip


def page(deployment: Deployment, log: StartUpLog, result: Reconciliation) -> Page:
    """Verdict, terms, what follows from the printed cache, contradictions."""
    headline = [title(deployment), f"{log.engine}, {log.lines:,} lines read: {result.verdict}"]
    tables = [_table("term", result.lines)]
    if result.follows:
        tables.append(_table("from the printed cache", result.follows))
    notes = [f"contradiction: {text}" for text in result.contradictions]
    if log.truncated:
        notes.append("only the beginning of the log was read")
    return Page(headline, tables, notes, deployment.warnings)


def _table(header: str, lines: tuple[Line, ...]) -> Table:
    columns = (
        Column(header),
        Column("predicted", right=True),
        Column("printed", right=True),
        Column("difference", right=True),
        Column("range", right=True, priority=1),
        Column("line", right=True, priority=2),
    )
    return Table(columns, [_row(line) for line in lines])


def _row(line: Line) -> list[str]:
    def shown(value: float | None) -> str:
        if value is None:
            return "-"
        if line.unit == "bytes":
            return format_bytes(round(value)) if value >= 0 else "-" + format_bytes(round(-value))
        return f"{value:,.2f}" if line.unit == "x" else f"{value:,.0f}"

    spread = f"{shown(line.low)} - {shown(line.high)}" if line.low is not None and line.low != line.high else ""
    difference = line.difference
    share = f" ({difference / line.printed:+.1%})" if difference is not None and line.printed else ""
    name = _NAMES.get(line.name, line.name.replace("_", " "))
    return [name, shown(line.predicted), shown(line.printed), shown(difference) + share, spread, str(line.line)]


def record(log: StartUpLog, result: Reconciliation, overrides: dict[str, Any]) -> dict[str, Any]:
    """``results`` of ``reconcile``."""
    return {
        "engine": log.engine,
        "lines_read": log.lines,
        "truncated": log.truncated,
        "verdict": result.verdict,
        "gap_bytes": result.gap_bytes,
        "explained_by": result.explained_by,
        "figures": [_record(line) for line in result.lines],
        "from_printed_cache": [_record(line) for line in result.follows],
        "printed": [{"name": f.name, "value": f.value, "unit": f.unit, "line": f.line, "rank": f.rank} for f in log.figures],
        "contradictions": list(result.contradictions),
        "overrides": overrides,
    }


def _record(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "unit": line.unit,
        "predicted": line.predicted,
        "low": line.low,
        "high": line.high,
        "printed": line.printed,
        "difference": line.difference,
        "line": line.line,
    }


def rows(result: Reconciliation) -> list[dict[str, object]]:
    """One row a figure."""
    return [dict(_record(line)) for line in result.lines]
