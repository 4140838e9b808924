"""The few statistics that scoreboards print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def quantile(values: Sequence[float], share: float) -> float | None:
    """Linear interpolation between the two nearest values; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float | None:
    """The middle value."""
    return quantile(values, 0.5)


def summary(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Size of the errors, their sign, and how honest the ranges are. Scores without a range do not count in coverage and width."""
    errors = [float(s["error"]) for s in scores]
    ranged = [s for s in scores if s["low"] is not None and s["high"] is not None]
    inside = [s["low"] <= s["reported"] <= s["high"] for s in ranged]
    widths = [s["high"] / s["low"] for s in ranged if s["low"] > 0]
    return {
        "n": len(scores),
        "median_ape": median([abs(e) for e in errors]),
        "p90_ape": quantile([abs(e) for e in errors], 0.9),
        "bias": median(errors),
        "coverage": sum(inside) / len(inside) if inside else None,
        "median_width": median(widths),
    }
