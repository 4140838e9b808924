"""Measured against predicted as one picture in a file: the roofline, and below it predicted over measured. The charts are the page's."""

from __future__ import annotations

import textwrap
from html import escape
from typing import Any

from calc.errors import UsageError
from calc.report.measured import charts, summary
from calc.report.measured.style import THEMES, drawn_in
from calc.report.pictures import draw
from calc.report.pictures.theme import FONT
from calc.report.svg import HEIGHT, WIDTH

_EDGE, _LINE, _LETTERS = 24, 17, 128  # pixels around, pixels and letters of a line of caption


def svg(record: dict[str, Any], theme: str = "light") -> str:
    """The picture as SVG that needs no other file. Raises UsageError where nothing was measured that could be drawn."""
    panels = [
        (charts.roofline(record), f"Roofline. {charts.ROOFLINE}"),
        (charts.agreement(record, legend=True), f"Predicted over measured. {charts.AGREEMENT}"),
    ]
    drawn = [(picture, caption) for picture, caption in panels if picture is not None]
    if not drawn:
        raise UsageError("there is nothing to draw: no operator has a measured and a predicted time", "measure again")
    parts = [f'<text x="{_EDGE}" y="{_EDGE + 14}" class="head">{escape(summary.title(record))}</text>']
    y = _EDGE + 20
    y = _words(parts, [*summary.sums(record), f"{record['basis']['kind']}: {record['basis']['words']}."], y)
    for picture, caption in drawn:
        parts.append(picture.replace("<svg ", f'<svg x="{_EDGE}" y="{y + 10}" width="{WIDTH}" height="{HEIGHT}" ', 1))
        y = _words(parts, [f"{caption} Error bars: {summary.rounds_text(record)}."], y + 10 + HEIGHT) + 10
    width, height = WIDTH + 2 * _EDGE, y + _EDGE - 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{escape(FONT)}"><style>{drawn_in(theme)}</style>'
        f'<rect width="{width}" height="{height}" fill="{THEMES[theme]["ground"]}"/>{"".join(parts)}</svg>\n'
    )


def png(record: dict[str, Any], theme: str = "light") -> bytes:
    """The same as pixels. Needs vl-convert (extra ``plot``)."""
    convert = draw.converter()
    return bytes(convert.svg_to_png(svg(record, theme), scale=draw.SCALE))


def _words(parts: list[str], sentences: list[str], y: int) -> int:
    """Lines of text below each other; the height where they end."""
    for sentence in sentences:
        for line in textwrap.wrap(sentence, _LETTERS):
            y += _LINE
            parts.append(f'<text x="{_EDGE}" y="{y}">{escape(line)}</text>')
    return y
