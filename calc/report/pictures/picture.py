"""What a picture shows, apart from how it is drawn: panels of points and lines, of bars, or of stacked shares of a whole.

Every axis title carries its unit. Nothing is told by colour alone: lines differ in dash and label, points in shape, shares carry text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Shape = Literal["circle", "square", "diamond", "triangle-up", "cross"]
DASHES: tuple[tuple[int, int], ...] = ((1, 0), (6, 3), (2, 2), (8, 2), (4, 6), (1, 3))


@dataclass(frozen=True)
class Axis:
    """``title`` names quantity and unit; ``log`` axes need positive values."""

    title: str
    log: bool = False
    low: float | None = None
    high: float | None = None


_TIME_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which a time of so many seconds is at least 1, and what seconds are multiplied with to be in it."""
    return next((unit, scale) for unit, scale in _TIME_UNITS if seconds * scale >= 1 or unit == "µs")


@dataclass(frozen=True)
class Mark:
    """A point with the text that stands beside it (``label``; ``left`` of it where asked) and what a reader is told who points at it
    (``note``)."""

    x: float
    y: float
    label: str = ""
    note: str = ""
    left: bool = False


@dataclass(frozen=True)
class Series:
    """Marks of one kind. ``line`` joins them; ``ceiling`` is a limit rather than a finding; ``large`` marks stand out. Series of one
    ``tone`` share a hue; None: a hue of its own."""

    name: str
    marks: tuple[Mark, ...]
    line: bool = False
    points: bool = True
    shape: Shape = "circle"
    filled: bool = False
    ceiling: bool = False
    large: bool = False
    tone: int | None = None


@dataclass(frozen=True)
class Band:
    """A range around a finding: from ``low`` to ``high`` at each ``x``, in the hue of series number ``tone``."""

    name: str
    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    tone: int = 0


@dataclass(frozen=True)
class Rule:
    """A limit across the panel at a value of one axis."""

    axis: Literal["x", "y"]
    value: float
    label: str


@dataclass(frozen=True)
class Chart:
    """Points and lines over two axes."""

    title: str
    caption: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    bands: tuple[Band, ...] = ()


@dataclass(frozen=True)
class Bar:
    """One bar with its range; ``text`` is its figure in words."""

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Bars:
    """Horizontal bars; panels of one ``tone`` share a hue."""

    title: str
    caption: str
    axis: Axis
    bars: tuple[Bar, ...]
    tone: int = 0


@dataclass(frozen=True)
class Share:
    """A part of a whole; ``text`` is its figure in words."""

    name: str
    value: float
    text: str


@dataclass(frozen=True)
class Stack:
    """Parts of one whole side by side, and limits across them."""

    title: str
    caption: str
    axis: Axis
    shares: tuple[Share, ...]
    limits: tuple[Rule, ...] = ()


Panel = Chart | Bars | Stack


@dataclass(frozen=True)
class Picture:
    """Panels one below the other."""

    panels: tuple[Panel, ...] = field(default_factory=tuple)
