"""Two deployments side by side as a page and records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calc.report.estimate import title
from calc.report.table import Column, Page, Table
from calc.serving.compare import Comparison
from calc.serving.deployment import Deployment
from calc.units import format_bytes, format_flops, format_number, format_seconds, format_traffic

_FORMS: dict[str, Callable[[float | None], str]] = {
    "seconds": format_seconds,
    "bytes": format_bytes,
    "traffic": format_traffic,
    "flops": format_flops,
    "tokens_per_s": lambda v: format_number(v, 4),
    "intensity": lambda v: format_number(v, 4),
    "requests": lambda v: format_number(v, 4),
    "tokens": lambda v: "unbounded" if v is None else format_number(v, 4),
}
_UNITS = {"seconds": "s", "traffic": "bytes", "flops": "FLOP", "intensity": "FLOP/byte", "tokens_per_s": "tokens/s"}


def _unit(kind: str) -> str:
    return _UNITS.get(kind, kind)


def record(comparison: Comparison) -> dict[str, Any]:
    """``results`` of ``compare``."""
    return {
        "pairs": rows(comparison),
        "moved_most": [
            {"where": m.where, "name": m.name, "unit": _unit(m.kind), "one": m.one, "two": m.two} for m in comparison.moved
        ],
    }


def rows(comparison: Comparison) -> list[dict[str, object]]:
    """One record per result."""
    return [{"name": p.name, "unit": _unit(p.kind), "one": p.one, "two": p.two, "ratio": p.ratio} for p in comparison.pairs]


def page(one: Deployment, two: Deployment, comparison: Comparison, warnings: tuple[tuple[str, str], ...]) -> Page:
    """The answer in one table."""
    lines = [
        [p.name, _FORMS[p.kind](p.one), _FORMS[p.kind](p.two), "-" if p.ratio is None else f"{p.ratio:.3g}x"]
        for p in comparison.pairs
    ]
    columns = (Column(""), Column("A", right=True), Column("B", right=True), Column("B / A", right=True))
    notes = [
        f"moved most in {m.where}: {m.name.replace('_', ' ')} {_FORMS[m.kind](m.one)} -> {_FORMS[m.kind](m.two)}"
        for m in comparison.moved
    ]
    return Page([f"A: {title(one)}", f"B: {title(two)}"], [Table(columns, lines)], notes, warnings)
