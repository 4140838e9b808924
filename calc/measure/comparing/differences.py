"""Two runs against each other, case by case: SAME, FASTER or SLOWER only where the intervals allow it, UNCLEAR otherwise."""

from __future__ import annotations

import math
from typing import Any

from calc.measure.comparing.prediction import pair

_LEAST_GAP = 0.01
_SAME_WITHIN = 0.05
_TRUSTED = ("ok", "noisy")
#: What differs between any two runs and explains nothing.
_VOLATILE = ("started", "command", "device.free_memory_bytes", "duration_s", "rounds_finished", "rounds_planned", "budget_s")


def differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Cases that both runs hold, with the ratio second / first of their times and a verdict about the second; and the keys of
    environment and settings that differ."""
    one, two = ({c["id"]: c for c in run["cases"]} for run in (first, second))
    rows = [_row(one[i], two[i]) for i in one if i in two]
    verdicts = [r["verdict"] for r in rows]
    return {
        "environment": _changed(first, second),
        "steps": [_step(phase, one, two) for phase in ("prefill", "decode")],
        "rows": rows,
        "only_first": [i for i in one if i not in two],
        "only_second": [i for i in two if i not in one],
        "counts": {v: verdicts.count(v) for v in ("SAME", "FASTER", "SLOWER", "UNCLEAR")},
    }


def _row(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    intervals = pair(one["interval_s"]), pair(two["interval_s"])
    ratio = two["time_s"] / one["time_s"] if one["time_s"] and two["time_s"] else None
    trusted = one["status"] in _TRUSTED and two["status"] in _TRUSTED
    return {
        "case_id": one["id"],
        "operation": one["operation"],
        "phase": one["phase"],
        "first_s": one["time_s"],
        "first_interval_s": intervals[0],
        "second_s": two["time_s"],
        "second_interval_s": intervals[1],
        "ratio": ratio,
        "status": [one["status"], two["status"]],
        "verdict": _verdict(ratio, *intervals) if trusted else "UNCLEAR",
    }


def _step(phase: str, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """The sums of a phase over the cases that both runs timed, by the calls of the first. The ends of the intervals add up: wider than
    need be, so that a verdict stands."""
    timed = [
        (c["calls_per_step"], c, two[i])
        for i, c in one.items()
        if i in two and c["phase"] == phase and c["calls_per_step"] and c["time_s"] and two[i]["time_s"]
    ]
    sums = [math.fsum(calls * both[k]["time_s"] for calls, *both in timed) or None for k in (0, 1)]
    ends: list[tuple[float, float] | None] = [None, None]
    if timed and all(c["interval_s"] and c["status"] in _TRUSTED for _, *both in timed for c in both):
        ends = [
            (
                math.fsum(n * both[k]["interval_s"][0] for n, *both in timed),
                math.fsum(n * both[k]["interval_s"][1] for n, *both in timed),
            )
            for k in (0, 1)
        ]
    ratio = sums[1] / sums[0] if sums[0] and sums[1] else None
    return {
        "phase": phase,
        "cases": len(timed),
        "first_s": sums[0],
        "second_s": sums[1],
        "ratio": ratio,
        "verdict": _verdict(ratio, *ends),
    }


def _verdict(ratio: float | None, one: tuple[float, float] | None, two: tuple[float, float] | None) -> str:
    """SAME: the intervals meet, and even their far ends differ by no more than 5 %."""
    if ratio is None or one is None or two is None:
        return "UNCLEAR"
    if two[0] > one[1] and ratio > 1 + _LEAST_GAP:
        return "SLOWER"
    if two[1] < one[0] and ratio < 1 / (1 + _LEAST_GAP):
        return "FASTER"
    return "SAME" if max(two[1] / one[0], one[1] / two[0]) <= 1 + _SAME_WITHIN else "UNCLEAR"


def _changed(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    one, two = (_flat({"model": r["model"].get("id"), **r["environment"], **r["settings"]}) for r in (first, second))
    keys = [k for k in dict.fromkeys((*one, *two)) if k not in _VOLATILE and "trial" not in k]
    return [{"key": k, "first": one.get(k), "second": two.get(k)} for k in keys if one.get(k) != two.get(k)]


def _flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= _flat(value, f"{name}.")
        else:
            found[name] = value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
    return found
