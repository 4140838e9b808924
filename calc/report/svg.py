"""Plain SVG: axes, markers, labels. Colours are classes, so that one style sheet serves light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 20, 50
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_LABEL_GAP = 15


def si(value: float) -> str:
    """``10 G``: a number with its prefix, for ticks."""
    if value == 0:
        return "0"
    scale, prefix = next(((s, p) for s, p in _PREFIXES if abs(value) >= s * 0.9999999), _PREFIXES[-1])
    return f"{value / scale:.3g} {prefix}".rstrip()


@dataclass(frozen=True)
class Axis:
    """Values to pixels, logarithmic or linear; ``label`` carries the unit."""

    low: float
    high: float
    start: float
    end: float
    label: str
    log: bool = True
    unit: str = ""
    base: float = 10

    def at(self, value: float) -> float:
        """The pixel of a value, held inside the axis."""
        value = min(max(value, self.low), self.high)
        low, high, value = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        share = (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of the base (1, 2 and 5 times those of ten where there are few), or about six round steps; a step that rounding puts
        just beyond an end lies on it."""
        return [min(max(v, self.low), self.high) for v in self._steps()]

    def _steps(self) -> list[float]:
        if self.log and self.high > 4 * self.low:
            first, last = (math.log(v, self.base) for v in (self.low, self.high))
            if self.base == 10 and last - first < 2:
                steps = [m * 10.0**e for e in range(math.floor(first), math.ceil(last) + 1) for m in (1, 2, 5)]
                return [v for v in steps if self.low <= v <= self.high]
            every = max(1, math.ceil((last - first) / 9))
            start = math.ceil((first - 1e-9) / every) * every  # one is a tick wherever it lies on the axis
            return [self.base**e for e in range(start, math.floor(last + 1e-9) + 1, every)]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 3))
        step *= next((m for m in (1, 2, 5) if (self.high - self.low) / (step * m) <= 8), 10)
        first_step, last_step = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first_step, last_step + 1)]

    def text(self, value: float) -> str:
        """A tick's label."""
        return f"{value:g}{self.unit}" if not self.log or self.base != 10 else si(value) + self.unit


def span(values: Iterable[float], margin: float = 1.5) -> tuple[float, float]:
    """Ends of a logarithmic axis around positive values."""
    found = [v for v in values if v and v > 0 and math.isfinite(v)] or [1.0]
    return min(found) / margin, max(found) * margin


@dataclass
class Chart:
    """An SVG in the making."""

    title: str
    x: Axis
    y: Axis
    height: int = HEIGHT
    parts: list[str] = field(default_factory=list)

    def line(self, points: Sequence[tuple[float, float]], css: str) -> None:
        """A polyline through values."""
        text = " ".join(f"{self.x.at(a):.1f},{self.y.at(b):.1f}" for a, b in points)
        self.parts.append(f'<polyline class="{css}" points="{text}"/>')

    def band(self, upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], css: str) -> None:
        """An area between two lines."""
        text = " ".join(f"{self.x.at(a):.1f},{self.y.at(b):.1f}" for a, b in (*upper, *reversed(lower)))
        self.parts.append(f'<polygon class="{css}" points="{text}"/>')

    def text(self, x: float, y: float, words: str, css: str = "", anchor: str = "start") -> None:
        """Words at a pixel."""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(words)}</text>')

    def labels(self, wanted: Sequence[tuple[float, str]], x: float, anchor: str = "end") -> None:
        """Words beside lines at pixel heights, pushed apart where they would overlap."""
        last = -math.inf
        for y, words in sorted(wanted):
            last = max(y, last + _LABEL_GAP)
            self.text(x, last, words, "label", anchor)

    def marker(self, x: float, y: float, shape: str, css: str, tip: str = "", size: float = 5) -> None:
        """A circle, diamond, square or triangle at a value, with a tip."""
        self.parts.append(glyph(self.x.at(x), self.y.at(y), shape, css, tip, size))

    def bar(self, x: float, low: float, high: float, css: str) -> None:
        """A vertical error bar."""
        at = self.x.at(x)
        top, bottom = self.y.at(high), self.y.at(low)
        self.parts.append(
            f'<path class="{css}" d="M{at:.1f} {top:.1f}V{bottom:.1f}M{at - 3:.1f} {top:.1f}h6M{at - 3:.1f} {bottom:.1f}h6"/>'
        )

    def svg(self) -> str:
        """The whole picture with its axes beneath."""
        axes = []
        bottom, right = self.height - BOTTOM, WIDTH - RIGHT
        for value in self.x.ticks():
            at = self.x.at(value)
            axes.append(f'<path class="grid" d="M{at:.1f} {TOP}V{bottom}"/>')
            axes.append(f'<text x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(self.x.text(value))}</text>')
        for value in self.y.ticks():
            at = self.y.at(value)
            axes.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
            axes.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(self.y.text(value))}</text>')
        axes.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
        axes.append(f'<text x="{(LEFT + right) / 2}" y="{self.height - 12}" text-anchor="middle">{escape(self.x.label)}</text>')
        middle = (TOP + bottom) / 2
        axes.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{escape(self.y.label)}</text>')
        return wrap(self.title, self.height, [*axes, *self.parts])


def axes(x: tuple[float, float], y: tuple[float, float], labels: tuple[str, str]) -> tuple[Axis, Axis]:
    """Two logarithmic axes that fill a chart."""
    return Axis(*x, LEFT, WIDTH - RIGHT, labels[0]), Axis(*y, HEIGHT - BOTTOM, TOP, labels[1])


def wrap(title: str, height: int, parts: Iterable[str]) -> str:
    """An SVG element of the usual width."""
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">' + "".join(parts) + "</svg>"


def glyph(x: float, y: float, shape: str, css: str, tip: str = "", size: float = 5) -> str:
    """A marker at a pixel."""
    s = size
    title = f"<title>{escape(tip)}</title>" if tip else ""
    if shape == "circle":
        return f'<circle class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="{s}">{title}</circle>'
    path = {
        "diamond": f"M{x:.1f} {y - 1.3 * s:.1f}l{1.3 * s} {1.3 * s}l{-1.3 * s} {1.3 * s}l{-1.3 * s} {-1.3 * s}z",
        "square": f"M{x - s:.1f} {y - s:.1f}h{2 * s}v{2 * s}h{-2 * s}z",
        "triangle": f"M{x:.1f} {y - 1.2 * s:.1f}l{1.2 * s} {2.2 * s}h{-2.4 * s}z",
        "down": f"M{x:.1f} {y + 1.2 * s:.1f}l{1.2 * s} {-2.2 * s}h{-2.4 * s}z",
    }[shape]
    return f'<path class="{css}" d="{path}">{title}</path>'
