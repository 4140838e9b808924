"""Where the text beside marks goes: each at its mark, moved up or down as little as possible until none overlaps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from calc.report.pictures.picture import Axis, Chart, Mark

_LINE, _LETTER, _GAP, _MARK = 15.0, 6.4, 10.0, 6.0


@dataclass(frozen=True)
class Label:
    """A text at a mark (data coordinates) with its offset in pixels; ``quiet`` texts belong to ceilings."""

    x: float
    y: float
    text: str
    align: str
    dx: float
    dy: float
    quiet: bool


def _pixel(value: float, axis: Axis, extent: tuple[float, float], size: float) -> float:
    low = axis.low if axis.low is not None else extent[0]
    high = axis.high if axis.high is not None else extent[1]
    if axis.log:
        value, low, high = (math.log(max(v, 1e-300)) for v in (value, low, high))
    return (value - low) / ((high - low) or 1.0) * size


Box = tuple[float, float, float]  # left, right, middle; a line of text high


def placed(chart: Chart, xs: tuple[float, float], ys: tuple[float, float], size: tuple[float, float]) -> list[Label]:
    """Texts of all labelled marks, those of ceilings first. A text that would leave the panel to the right stands left of its mark."""

    def at(mark: Mark) -> tuple[float, float]:
        return _pixel(mark.x, chart.x, xs, size[0]), size[1] - _pixel(mark.y, chart.y, ys, size[1])

    boxes = _obstacles(chart, at)
    found = []
    for series in sorted(chart.series, key=lambda s: not s.ceiling):
        for mark in series.marks:
            if not mark.label:
                continue
            across, down = at(mark)
            width = _LETTER * len(mark.label)
            right = not mark.left and across + _GAP + width <= size[0]
            left_edge = across + _GAP if right else across - _GAP - width
            middle = _free(boxes, left_edge, left_edge + width, down - (_LINE + 1 if series.ceiling else 0), size[1])
            boxes.append((left_edge, left_edge + width, middle))
            dx = _GAP if right else -_GAP
            found.append(Label(mark.x, mark.y, mark.label, "left" if right else "right", dx, middle - down, series.ceiling))
    return found


def _obstacles(chart: Chart, at: Callable[[Mark], tuple[float, float]]) -> list[Box]:
    """Marks, and the level parts of ceilings."""
    boxes = []
    for series in chart.series:
        places = [at(m) for m in series.marks]
        if series.ceiling:
            boxes += [(a[0], b[0], a[1]) for a, b in pairwise(places) if abs(a[1] - b[1]) < 1]
        elif series.points:
            boxes += [(x - _MARK, x + _MARK, y) for x, y in places]
    return boxes


def _free(boxes: list[Box], left: float, right: float, middle: float, height: float) -> float:
    """The nearest height at which a text overlaps none of those already placed."""
    middle = min(max(middle, _LINE / 2), height - _LINE / 2)
    for step in range(60):
        for sign in (-1, 1):
            at = middle + sign * step * 4.0
            clear = all(at + _LINE <= m or at - _LINE >= m or right < a or left > b for a, b, m in boxes)
            if clear and _LINE / 2 <= at <= height - _LINE / 2:
                return at
    return middle
