"""Sums and summaries of a comparison: each step, the errors by class, and how many cases could be judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from calc.measure.comparing import gap
from calc.measure.fitting.fit import errors

#: Verdicts of a pair that can be judged.
JUDGED = ("agrees", "fast", "slow")


def step(phase: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum over the measured operators of a phase, by the number of their calls, and its parts by operation."""
    own = [r for r in rows if r["phase"] == phase and r["measured_s"]]
    parts: dict[str, dict[str, Any]] = {}
    for row in own:
        part = parts.setdefault(row["operation"], {"operation": row["operation"], "measured_s": 0.0, "predicted_s": 0.0})
        part["measured_s"] += row["count"] * row["measured_s"]
        part["predicted_s"] += row["count"] * (row["predicted_s"] or 0.0)
    measured = math.fsum(p["measured_s"] for p in parts.values())
    predicted = math.fsum(p["predicted_s"] for p in parts.values())
    whole = bool(own) and all(r["predicted_s"] for r in own)
    return {
        "phase": phase,
        "measured_s": measured or None,
        "predicted_s": predicted if whole else None,
        "error": predicted / measured - 1 if whole and measured else None,
        "parts": list(parts.values()),
        "gap": gap.total(own),
        "missing": sorted({r["operation"] for r in rows if r["phase"] == phase and not r["measured_s"]}),
    }


def groups(judged: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summaries by class and phase (``bound`` None), and by bound too."""
    found = []
    keys = sorted({(r["class"], r["phase"], b) for r in judged for b in ("", r["bound"] or "?")})
    for op_class, phase, bound in keys:
        part = [r for r in judged if (r["class"], r["phase"]) == (op_class, phase) and bound in ("", r["bound"] or "?")]
        figures = errors([math.log1p(r["error"]) for r in part])
        if figures is None:
            continue
        worst = max(part, key=lambda r: abs(math.log1p(r["error"])))
        found.append(
            {"class": op_class, "phase": phase, "bound": bound or None, "n": figures.n, "bias": figures.bias, "median": figures.median,
             "p90": figures.p90, "worst": figures.worst, "worst_case_id": worst["case_id"]}
        )  # fmt: skip
    return found


def counts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many cases there are, how many can be judged, and how many have each verdict."""
    verdicts = [r["verdict"] for r in rows]
    return {"cases": len(rows), "judged": sum(v in JUDGED for v in verdicts)} | {
        v: verdicts.count(v) for v in (*JUDGED, "unclear", "extrapolated", "unreliable", "failed")
    }
