"""A step as bars: which operations take its time, and which causes. Part of the report's page."""

from __future__ import annotations

from html import escape
from itertools import accumulate
from typing import Any

from calc.report import svg
from calc.report.measured.scope import PARTS, base_words
from calc.report.svg import LEFT, WIDTH
from calc.units import format_seconds

_ROW, _BAR = 34, 24
_SMALL_SHARE = 0.015


def composition(record: dict[str, Any]) -> str | None:
    """Each step as two bars, measured and predicted, by operation."""
    steps = [s for s in record["steps"] if s["measured_s"]]
    if not steps:
        return None
    parts: list[str] = []
    y = 8.0
    for step in steps:
        longest = max(step["measured_s"], sum(p["predicted_s"] for p in step["parts"]))
        order = sorted(step["parts"], key=lambda p: -p["measured_s"])
        parts.append(f'<text x="{LEFT + 20}" y="{y + 10}" class="label">{step["phase"]}, one step of all layers</text>')
        y += 18
        for key, name in (("measured_s", "measured"), ("predicted_s", "predicted")):
            total = sum(p[key] for p in order)
            parts.append(f'<text x="{LEFT + 14}" y="{y + 16}" text-anchor="end">{name}</text>')
            parts += _segments(order, key, total, longest, y)
            y += _ROW
        y += 10
    return svg.wrap("step composition", int(y), parts)


def _segments(order: list[dict[str, Any]], key: str, total: float, longest: float, y: float) -> list[str]:
    """One bar; operations too small to see are drawn together as the last piece."""
    found, at, room = [], float(LEFT + 20), WIDTH - LEFT - 20 - 90
    big = [p for p in order if max(p["measured_s"], p["predicted_s"]) > _SMALL_SHARE * longest]
    rest = sum(p[key] for p in order if p not in big)
    pieces = [(p["operation"], p[key]) for p in big] + ([("others", rest)] if rest else [])
    for index, (name, seconds) in enumerate(pieces):
        width = room * seconds / longest
        share = f"{100 * seconds / total:.1f} %" if total else ""
        found.append(
            f'<rect class="piece p{index % 6}" x="{at:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{_BAR}">'
            f"<title>{escape(name)}: {format_seconds(seconds)}, {share}</title></rect>"
        )
        text = name if width > 7.5 * len(name) else ""
        if text:
            found.append(
                f'<text x="{at + width / 2:.1f}" y="{y + 16:.1f}" text-anchor="middle" class="inside">{escape(text)}</text>'
            )
        at += width
    found.append(f'<text x="{at + 6:.1f}" y="{y + 16:.1f}">{format_seconds(total)}</text>')
    return found


def gaps(record: dict[str, Any]) -> str | None:
    """Each step's measured time as a row of bars: where the last one ends, the next cause begins."""
    steps = [s for s in record["steps"] if s["gap"]]
    if not steps:
        return None
    parts: list[str] = []
    y, left, room = 8.0, LEFT + 170, WIDTH - LEFT - 170 - 150
    for step in steps:
        parts.append(f'<text x="{left}" y="{y + 10}" class="label">{step["phase"]}, one step of all layers</text>')
        y += 20
        total = step["measured_s"]
        ends = list(accumulate(step["gap"].values()))
        scale = room / max(total, *ends)
        for (name, seconds), end in zip(step["gap"].items(), ends, strict=True):
            words, css = PARTS[name]
            if not seconds:
                continue
            words = base_words(record) if name == "base_s" else words
            low, high = sorted((end - seconds, end))
            css = "less" if seconds < 0 and name != "unexplained_s" else css
            share = f"{format_seconds(abs(seconds))}, {100 * seconds / total:.1f} %"
            parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(words)}</text>')
            parts.append(
                f'<rect class="{css}" x="{left + max(low, 0.0) * scale:.1f}" y="{y}" height="15" '
                f'width="{max((high - max(low, 0.0)) * scale, 1.0):.1f}"><title>{escape(words)}: {share}</title></rect>'
            )
            parts.append(
                f'<text x="{left + max(high, 0.0) * scale + 6:.1f}" y="{y + 12}">{"-" if seconds < 0 else ""}{share}</text>'
            )
            y += 19
        parts.append(f'<text x="{left}" y="{y + 12}" class="label">measured {format_seconds(total)}</text>')
        y += 34
    return svg.wrap("the measured time by cause", int(y), parts)
