"""One step of an explanation, checked as it is made, and how it looks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calc.report.table import Column, Table, terminal_width
from calc.units import format_bytes, format_flops, format_number, format_seconds, format_traffic

#: How a value is written, by its unit.
_FORMS: dict[str, Callable[[float], str]] = {
    "s": format_seconds,
    "B": format_traffic,
    "GiB": format_bytes,
    "FLOP": format_flops,
    "FLOP/s": lambda v: f"{format_flops(v)}/s",
    "B/s": lambda v: f"{format_traffic(v)}/s",
    "": lambda v: format_number(v, 6),
}
_FUNCTIONS = {"max": max, "min": min, "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt}
_TOLERANCE = 1e-9


def shown(value: float, unit: str) -> str:
    """A value with its unit."""
    form = _FORMS.get(unit)
    return form(value) if form else f"{format_number(value, 6)} {unit}"


@dataclass(frozen=True)
class Value:
    """What is put in for a symbol: ``source`` is a line of a profile, a law of an engine, an option or another step."""

    symbol: str
    value: float
    unit: str = ""
    source: str = ""


@dataclass(frozen=True)
class Step:
    """``name`` = formula of values = ``result``. ``computed_by`` names the function; ``evidence`` says how sure it is."""

    name: str
    formula: str
    values: tuple[Value, ...]
    result: float
    unit: str = ""
    computed_by: str = ""
    evidence: str = ""
    terms: tuple[tuple[str, float], ...] = field(default=())  # of a sum

    def __post_init__(self) -> None:
        if self.terms:
            found = sum(v for _, v in self.terms)
            holds = math.isclose(found, self.result, rel_tol=_TOLERANCE)
        else:
            holds = gives(self.formula, self.values, self.result)
        if not holds:
            raise AssertionError(f"{self.name}: {self.formula} does not give {self.result}")


def evaluate(text: str, values: tuple[Value, ...]) -> float:
    """The value of a formula. Formulas are constants of this program, never input."""
    names: dict[str, Any] = {v.symbol: v.value for v in values}
    return float(eval(text, {"__builtins__": {}}, _FUNCTIONS | names))


def gives(text: str, values: tuple[Value, ...], result: float) -> bool:
    """Whether a formula gives a value, up to rounding."""
    return math.isclose(evaluate(text, values), result, rel_tol=_TOLERANCE)


def total(name: str, terms: list[tuple[str, float]], result: float, unit: str, *, most: int = 5, **rest: str) -> Step:
    """A sum, its largest terms one by one and the others together."""
    ordered = sorted(terms, key=lambda t: -abs(t[1]))
    kept = ordered[:most]
    if len(ordered) > most:
        kept.append((f"{len(ordered) - most} others", sum(v for _, v in ordered[most:])))
    return Step(name, rest.pop("formula", "sum"), (), result, unit, terms=tuple(kept), **rest)


@dataclass(frozen=True)
class Section:
    """Steps that belong together, and the documents that their laws rest on."""

    title: str
    steps: tuple[Step, ...]
    sources: tuple[str, ...] = ()


def lines(step: Step) -> list[str]:
    """A step over several lines."""
    sure = f"   [{step.evidence}]" if step.evidence else ""
    by = f"   {step.computed_by}" if step.computed_by else ""
    found = [f"{step.name} = {shown(step.result, step.unit)}{sure}", f"    = {step.formula}{by}"]
    found += [f"      {label}: {shown(value, step.unit)}" for label, value in step.terms]
    width = max((len(v.symbol) for v in step.values), default=0)
    for value in step.values:
        source = f"   {value.source}" if value.source else ""
        found.append(f"      {value.symbol.ljust(width)} = {shown(value.value, value.unit)}{source}")
    return found


def tables(sections: list[Section]) -> list[Table]:
    """Sections as tables of lines, for a page."""
    width = terminal_width()
    found = []
    for section in sections:
        texts = [line for step in section.steps for line in lines(step)] + [f"source: {text}" for text in section.sources]
        rows = [
            [line] for text in texts for line in textwrap.wrap(text, width, subsequent_indent="          ", break_on_hyphens=False)
        ]
        if section.steps:
            found.append(Table((Column(""),), rows, section.title))
    return found


def records(sections: list[Section]) -> list[dict[str, Any]]:
    """Sections for JSON, values unrounded."""
    return [
        {
            "section": section.title,
            "name": step.name,
            "value": step.result,
            "unit": step.unit.replace("GiB", "B") or None,
            "formula": step.formula,
            "values": [
                {"symbol": v.symbol, "value": v.value, "unit": v.unit or None, "source": v.source or None} for v in step.values
            ],
            "terms": [{"term": label, "value": value} for label, value in step.terms],
            "computed_by": step.computed_by or None,
            "evidence": step.evidence or None,
        }
        for section in sections
        for step in section.steps
    ]
