"""Verdicts on scenarios as table, records, JUnit and GitHub annotations; and the text of a file with found values put in."""

from __future__ import annotations

import re
from typing import Any

from calc.report import ci
from calc.report.table import Column, Page, Table
from calc.serving.scenario import Verdict
from calc.units import format_count, format_like


def shown(verdict: Verdict) -> str:
    """What was found, in the unit of the limit."""
    value = verdict.found
    if value is None or isinstance(value, (bool, str)):
        return "not answered" if value is None else str(value)
    return format_like(value, verdict.limit)


def rows(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """One record per expectation."""
    return [
        {
            "scenario": v.scenario, "expectation": v.key, "path": v.path, "wanted": v.wanted, "found": v.found, "holds": v.holds,
            "place": v.place,
        }
        for v in verdicts
    ]  # fmt: skip


def page(verdicts: list[Verdict]) -> Page:
    """Broken expectations first."""
    broken = sum(not v.holds for v in verdicts)
    scenarios = len({v.scenario for v in verdicts})
    judged = f"{format_count(len(verdicts), 'expectation')} of {format_count(scenarios, 'scenario')}"
    headline = [f"{judged}: " + (f"{broken} broken" if broken else "all hold")]
    columns = (
        Column(""),
        Column("scenario"),
        Column("expectation"),
        Column("wanted"),
        Column("found", right=True),
        Column("place", priority=1),
    )
    ordered = sorted(verdicts, key=lambda v: v.holds)
    lines = [["ok" if v.holds else "BROKEN", v.scenario, v.key, v.wanted, shown(v), v.place] for v in ordered]
    return Page(headline, [Table(columns, lines)])


def junit(verdicts: list[Verdict]) -> str:
    """JUnit XML: a test case per expectation."""
    cases = []
    for v in verdicts:
        failure = ci.Failure("broken expectation", f"{v.path}: wanted {v.wanted}, found {shown(v)}", v.place)
        cases.append(ci.Case(v.scenario, v.key, () if v.holds else (failure,)))
    return ci.junit("roofcast run", cases)


def github(verdicts: list[Verdict]) -> str:
    """GitHub annotations of broken expectations, and a line that counts."""
    annotations = []
    for v in (v for v in verdicts if not v.holds):
        file, line, column = v.place.rsplit(":", 2)
        text = f"{v.scenario}: {v.path}: wanted {v.wanted}, found {shown(v)}"
        annotations.append(ci.Annotation("error", file, int(line), int(column), "roofcast run", text))
    return ci.github(annotations) + f"{format_count(len(verdicts), 'expectation')}, {len(annotations)} broken\n"


def updated(text: str, verdicts: list[Verdict]) -> tuple[str, list[str], list[str]]:
    """(new text, changes made, broken ones that were left): found numbers in place of broken limits. Only a single limit written on
    the line of its key is replaced; everything else is left to a person."""
    lines = text.splitlines(keepends=True)
    changes, kept = [], []
    for v in verdicts:
        if v.holds:
            continue
        line = lines[v.line - 1]
        pattern = re.compile(
            rf"({re.escape(v.key)}\s*:\s*(?:\{{\s*(?:at_least|at_most|equals)\s*:\s*)?)([-+0-9.eE]+[A-Za-zµ%]*|true|false)(?=\s*[}},\s#]|$)"
        )
        single = len(v.wanted.split(", ")) == 1
        if v.found is None or not single or not pattern.search(line):
            kept.append(f"{v.place}: {v.key}: wanted {v.wanted}, found {shown(v)}")
            continue
        found = str(v.found).lower() if isinstance(v.found, bool) else repr(v.found)
        lines[v.line - 1] = pattern.sub(lambda m, f=found: m[1] + f, line, count=1)  # type: ignore[misc]
        changes.append(f"{v.place}: {v.key}: {v.wanted} -> {found}")
    return "".join(lines), changes, kept
