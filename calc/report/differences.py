"""Two runs against each other, as a page of text and as one HTML page that needs no network. Reads plain records."""

from __future__ import annotations

from html import escape
from typing import Any

from calc.report import svg
from calc.report.measured.html_page import table
from calc.report.measured.style import SCRIPT, STYLE
from calc.report.svg import TOP, Chart
from calc.report.table import Column, Page, Table
from calc.units import format_count, format_seconds

_CHANGED = ("what differs", "first", "second")
_HEADERS = ("case", "operation", "phase", "first", "second", "second/first", "verdict", "status")
_STYLES = {"SAME": "dot s0", "FASTER": "less", "SLOWER": "more", "UNCLEAR": "dot weak"}
_SHAPES = {"SAME": "circle", "FASTER": "down", "SLOWER": "triangle", "UNCLEAR": "diamond"}
RULE = "SAME, FASTER, SLOWER only where the 95 % intervals between rounds allow it, and beyond 1 %; UNCLEAR otherwise."


def words(record: dict[str, Any]) -> list[str]:
    """What the verdicts mean, and what only one run holds."""
    notes = [RULE]
    for key, name in (("only_first", "first"), ("only_second", "second")):
        if record[key]:
            notes.append(f"only in the {name} run: {len(record[key])} cases, e.g. {record[key][0]}")
    if not record["environment"]:
        notes.append("environment and settings are the same")
    return notes


def rows(record: dict[str, Any]) -> list[dict[str, object]]:
    """One flat record per case that both runs hold."""
    return [
        {k: v for k, v in r.items() if not isinstance(v, (list, tuple))} | {"status": "/".join(r["status"])} for r in record["rows"]
    ]


def page(record: dict[str, Any]) -> Page:
    """Two runs: what differs about them first."""
    counts = record["counts"]
    headline = ["second run against the first: " + ", ".join(f"{n} {v}" for v, n in counts.items())]
    headline += [
        f"{s['phase']}: {format_seconds(s['first_s'])} and {format_seconds(s['second_s'])}, {s['verdict']} ({s['ratio']:.3f}; "
        f"sum of {format_count(s['cases'], 'operator')})"
        for s in record["steps"]
        if s["ratio"]
    ]
    changed = [[str(c["key"]), _text(c["first"]), _text(c["second"])] for c in record["environment"]]
    columns = tuple(Column(h) for h in _CHANGED)
    compared = [
        [
            r["operation"], r["phase"], format_seconds(r["first_s"]), format_seconds(r["second_s"]),
            f"{r['ratio']:.3f}" if r["ratio"] else "-", r["verdict"], r["case_id"],
        ]
        for r in record["rows"]
    ]  # fmt: skip
    names = (
        Column("operation"), Column("phase"), Column("first", right=True), Column("second", right=True),
        Column("second/first", right=True), Column("verdict"), Column("case", priority=1),
    )  # fmt: skip
    notes = words(record)
    return Page(headline, [t for t in (Table(columns, changed), Table(names, compared)) if t.rows], notes)


def _text(value: object) -> str:
    return "-" if value is None else str(value)[:60]


def html(record: dict[str, Any], names: tuple[str, str]) -> str:
    """The page as text; ``names`` are the files."""
    title = f"{names[1]} against {names[0]}"
    cards = "".join(
        f'<div class="card"><h3>{escape(s["phase"])} step: {escape(s["verdict"])}</h3><p class="big">{s["ratio"]:.3f}</p>'
        f"<p>first {format_seconds(s['first_s'])}<br>second {format_seconds(s['second_s'])}<br>{s['cases']} operators</p></div>"
        for s in record["steps"]
        if s["ratio"]
    )
    counts = ", ".join(f"{n} {v}" for v, n in record["counts"].items())
    changed = [[str(c["key"]), _text(c["first"]), _text(c["second"])] for c in record["environment"]]
    rows = [
        [
            r["case_id"], r["operation"], r["phase"], (r["first_s"], format_seconds(r["first_s"])),
            (r["second_s"], format_seconds(r["second_s"])), (r["ratio"], f"{r['ratio']:.3f}" if r["ratio"] else "-"), r["verdict"],
            "/".join(r["status"]),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    picture = chart(record)
    figure = f"<figure><h2>Second over first</h2>{picture}<figcaption>{escape(_CAPTION)}</figcaption></figure>" if picture else ""
    differs = f"<h2>What differs about the runs</h2>{table(_CHANGED, changed)}" if changed else ""
    said = "".join(f"<li>{escape(w)}</li>" for w in words(record))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main><h1>{escape(title)}</h1>"
        f'<p class="said">{len(rows)} cases are in both runs: {counts}.</p><div class="cards">{cards}</div><ul>{said}</ul>'
        f"{differs}{figure}<h2>Every case</h2>{table(_HEADERS, rows)}</main><script>{SCRIPT}</script></body></html>\n"
    )


_CAPTION = (
    "One mark per case: up, slower; down, faster; circle, the same; faint, unclear. Bars: from the 95 % intervals of both. "
    "The pointer tells figures."
)


def chart(record: dict[str, Any]) -> str | None:
    """Ratio of the second run's time to the first's over the first's, with what the intervals of both allow."""
    rows = [r for r in record["rows"] if r["ratio"]]
    if not rows:
        return None
    far = min(32.0, max(1.1, *(1.1 * r["ratio"] for r in rows), *(1.1 / r["ratio"] for r in rows)))
    x, y = svg.axes(
        svg.span([r["first_s"] for r in rows], 2), (1 / far, far), ("first run, time of one call in s", "second / first")
    )
    drawn = Chart("second over first", x, y)
    drawn.line([(x.low, 1.0), (x.high, 1.0)], "solid")
    drawn.text(x.start + 6, TOP + 14, "above 1: the second run is slower", "label")
    for r in rows:
        if r["first_interval_s"] and r["second_interval_s"]:
            low, high = r["second_interval_s"][0] / r["first_interval_s"][1], r["second_interval_s"][1] / r["first_interval_s"][0]
            drawn.bar(r["first_s"], low, high, "error" + (" weak" if r["verdict"] == "UNCLEAR" else ""))
        tip = (
            f"{r['case_id']}\n{format_seconds(r['first_s'])} and {format_seconds(r['second_s'])}: {r['ratio']:.3f}, {r['verdict']}"
        )
        drawn.marker(r["first_s"], r["ratio"], _SHAPES[r["verdict"]], _STYLES[r["verdict"]], tip)
    return drawn.svg()
