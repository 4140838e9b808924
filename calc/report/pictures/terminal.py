"""Draws a picture in a terminal: points and lines by plotille (extra ``plot``), bars and shares as text. No colour is needed."""

from __future__ import annotations

import math
import sys
import textwrap
from types import ModuleType

from calc.errors import UsageError
from calc.report.pictures.draw import INSTALL
from calc.report.pictures.picture import Axis, Bars, Chart, Picture, Series, Stack
from calc.units import format_number

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_HEIGHT = 18


def plotter() -> ModuleType:
    """plotille, or a UsageError that says how to install it."""
    try:
        import plotille
    except ImportError:
        raise UsageError("pictures in the terminal need plotille", INSTALL) from None
    module: ModuleType = plotille
    return module


def text(picture: Picture, width: int) -> str:
    """All panels, at most ``width`` columns wide."""
    parts = []
    for panel in picture.panels:
        if isinstance(panel, Chart):
            parts.append(_chart(panel, width))
        elif isinstance(panel, Bars):
            parts.append(_bars(panel, width))
        else:
            parts.append(_stack(panel, width))
    return "\n".join(parts)


def _block() -> str:
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"


def _on(axis: Axis, value: float) -> float:
    return math.log10(value) if axis.log else value


def _ticks(axis: Axis) -> object:
    def form(low: float, high: float) -> str:
        return format_number(10**low if axis.log else low, 3).rjust(8)

    return form


def _chart(chart: Chart, width: int) -> str:
    plotille = plotter()
    figure = plotille.Figure()
    figure.width, figure.height = max(30, width - 24), _HEIGHT
    figure.color_mode, figure.with_colors, figure.origin = "names", False, False
    figure.x_label, figure.y_label = "", ""
    figure.x_ticks_fkt, figure.y_ticks_fkt = _ticks(chart.x), _ticks(chart.y)
    xs = [_on(chart.x, m.x) for s in chart.series for m in s.marks] + [_on(chart.x, r.value) for r in chart.rules if r.axis == "x"]
    ys = [_on(chart.y, m.y) for s in chart.series for m in s.marks] + [_on(chart.y, r.value) for r in chart.rules if r.axis == "y"]
    ys += [_on(chart.y, v) for b in chart.bands for v in (*b.low, *b.high)]
    across, down = _limits(xs, chart.x.log), _limits(ys, chart.y.log)
    figure.set_x_limits(*across)
    figure.set_y_limits(*down)
    letters = {s.name: _LETTERS[i % 26] for i, s in enumerate(s for s in chart.series if not s.ceiling)}
    for band in chart.bands:
        for side in (band.low, band.high):
            figure.plot([_on(chart.x, v) for v in band.x], [_on(chart.y, v) for v in side])
    for series in chart.series:
        x, y = [_on(chart.x, m.x) for m in series.marks], [_on(chart.y, m.y) for m in series.marks]
        if series.line or series.ceiling:
            figure.plot(x, y)
        if series.points and not series.ceiling:
            _letters(figure, series, x, y, letters[series.name])
    for rule in chart.rules:
        at = _on(chart.x if rule.axis == "x" else chart.y, rule.value)
        figure.plot(*(([at, at], down) if rule.axis == "x" else (across, [at, at])))
    drawn = figure.show(legend=False).replace(" ()", "").replace("    ()     ^", "           ^")
    caption = f"{chart.y.title} over {chart.x.title}" + (", both logarithmic" if chart.x.log and chart.y.log else "")
    lines = [line for text in (chart.title, caption) for line in textwrap.wrap(text, width)]
    lines += ["\n".join(line.rstrip() for line in drawn.splitlines())]
    lines += [f"  {letter}: {name}" for name, letter in letters.items()]
    lines += [f"  line: {s.name}" for s in chart.series if s.ceiling]
    lines += [f"  between two lines: {b.name}" for b in chart.bands]
    lines += [f"  {'vertical' if r.axis == 'x' else 'horizontal'} line: {r.label}" for r in chart.rules]
    return "\n".join(lines) + "\n"


def _letters(figure: object, series: Series, x: list[float], y: list[float], letter: str) -> None:
    mark = letter.upper() if series.large else letter
    figure.text(x, y, [mark] * len(x))  # type: ignore[attr-defined]


def _limits(values: list[float], log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    return (low - 0.04 * span if log or low < 0 else min(0.0, low)), high + 0.05 * span


def _bars(bars: Bars, width: int) -> str:
    block = _block()
    names, figures = max(len(b.label) for b in bars.bars), max(len(b.text) for b in bars.bars)
    room = max(10, width - names - figures - 2)
    most = max(b.value for b in bars.bars) or 1.0
    lines = [f"{b.label.ljust(names)} {b.text.rjust(figures)} {block * round(room * b.value / most)}".rstrip() for b in bars.bars]
    return "\n".join([bars.title, *lines]) + "\n"


def _stack(stack: Stack, width: int) -> str:
    block = _block()
    total = sum(s.value for s in stack.shares) or 1.0
    names, figures = max(len(s.name) for s in stack.shares), max(len(s.text) for s in stack.shares)
    room = max(10, width - names - figures - 4)
    lines = [stack.title]
    start = 0.0
    for share in stack.shares:
        before, after = round(room * start / total), round(room * (start + share.value) / total)
        filled = ("." if share.name == "free" else block) * (after - before)
        lines.append(f"{share.name.ljust(names)} {share.text.rjust(figures)} {' ' * before}{filled}".rstrip())
        start += share.value
    for rule in stack.limits:
        at = names + figures + 2 + round(room * min(rule.value / total, 1.0))
        right = at + 3 + len(rule.label) <= width
        lines.append(f"{' ' * at}^ {rule.label}" if right else f"{rule.label} ^".rjust(at + 1))
    return "\n".join(lines) + "\n"
