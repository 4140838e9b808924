"""Latency and bandwidth of a link from times of messages: time = latency + bytes / bandwidth, in two pieces where the protocol changes.

Libraries send small messages by another protocol than large ones (NCCL: LL, LL128, Simple), so one line fits neither well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FEWEST = 3  # points of a piece: two say nothing about the fit
_ONE, _TWO = 3, 6  # free numbers of one line and its noise, and of two lines with their border
Point = tuple[float, float]  # bytes, seconds


@dataclass(frozen=True, slots=True)
class Piece:
    """A line over the messages from ``from_bytes`` to ``to_bytes``. ``bandwidth_bytes_per_s`` None: time does not grow with size."""

    from_bytes: float
    to_bytes: float
    latency_s: float
    bandwidth_bytes_per_s: float | None


def pieces(points: Sequence[Point]) -> list[Piece]:
    """One line, or two where that explains the times better by Akaike's corrected criterion; empty below three points.

    Times must be positive. Lines are fitted to relative errors, so that small messages count as much as large ones.
    """
    ordered = sorted(points)
    if len(ordered) < _FEWEST:
        return []
    best, found = _criterion(_squares(ordered), len(ordered), _ONE), [ordered]
    for cut in range(_FEWEST, len(ordered) - _FEWEST + 1):
        parts = [ordered[:cut], ordered[cut:]]
        value = _criterion(sum(map(_squares, parts)), len(ordered), _TWO)
        if value < best:
            best, found = value, parts
    return [_piece(part) for part in found]


def _criterion(squares: float, points: int, free: int) -> float:
    """AICc of Hurvich and Tsai 1989, for few points: the border is searched for, which a weaker penalty would reward with noise.
    Errors below a thousandth are no better than none."""
    if points <= free + 1:
        return math.inf
    return points * math.log(max(squares / points, 1e-6)) + 2 * free + 2 * free * (free + 1) / (points - free - 1)


def _line(points: Sequence[Point]) -> tuple[float, float]:
    """(seconds, seconds per byte), neither below zero: least squares of relative errors."""
    weights = [1 / t**2 for _, t in points]
    w = math.fsum(weights)
    wx = math.fsum(c * x for c, (x, _) in zip(weights, points, strict=True))
    wt = math.fsum(c * t for c, (_, t) in zip(weights, points, strict=True))
    wxx = math.fsum(c * x * x for c, (x, _) in zip(weights, points, strict=True))
    wxt = math.fsum(c * x * t for c, (x, t) in zip(weights, points, strict=True))
    spread = w * wxx - wx * wx
    slope = (w * wxt - wx * wt) / spread if spread > 0 else 0.0
    if slope <= 0:
        return wt / w, 0.0
    start = (wt - slope * wx) / w
    return (start, slope) if start >= 0 else (0.0, wxt / wxx)


def _squares(points: Sequence[Point]) -> float:
    start, slope = _line(points)
    return math.fsum(((start + slope * x) / t - 1) ** 2 for x, t in points)


def _piece(points: Sequence[Point]) -> Piece:
    start, slope = _line(points)
    return Piece(points[0][0], points[-1][0], start, 1 / slope if slope else None)
