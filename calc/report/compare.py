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
    "rate": lambda v: format_number(v, 4),
    "count": lambda v: format_number(v, 4),
}


def record(comparison: Comparison) -> dict[str, Any]:
    """``results`` of ``compare``."""
    return {
        "pairs": [{"name": p.name, "one": p.one, "two": p.two, "ratio": p.ratio} for p in comparison.pairs],
        "moved_most": [{"where": m.where, "name": m.name, "one": m.one, "two": m.two} for m in comparison.moved],
    }


def rows(comparison: Comparison) -> list[dict[str, object]]:
    """One record per result."""
    return [{"name": p.name, "one": p.one, "two": p.two, "ratio": p.ratio} for p in comparison.pairs]


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
    notes += [f"warning [{code}]: {message}" for code, message in dict.fromkeys(warnings)]
    return Page([f"A: {title(one)}", f"B: {title(two)}"], [Table(columns, lines)], notes)
