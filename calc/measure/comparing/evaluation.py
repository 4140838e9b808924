"""Measured against predicted from a run file alone: predictions at the run's own ceilings, or by an efficiency profile.

error = predicted / measured - 1: positive means that roofcast promised slower than it is.
"""

from __future__ import annotations

import math
from typing import Any

from calc.measure.comparing import comparison, gap, reasons, tallies
from calc.measure.comparing.prediction import Predictor, pair, predictor_of
from calc.measure.comparing.tallies import JUDGED
from calc.measure.fitting.fitted_profile import short_hash
from calc.operators.operator import Operator
from calc.timing import roofline
from calc.timing.efficiency import Efficiency
from calc.units import format_count

_LEAST_RELIABLE = 0.80
_MOST_SAMPLES = 60  # of a round in a picture
#: Why a case counts in no summary, where its verdict does not say so.
_WHY = {"unclear": "unclear, no interval or one wider than 20 %", "extrapolated": "extrapolated, beyond what was fitted"}


def evaluate(run: dict[str, Any], content_hash: str, efficiency: Efficiency | None = None) -> dict[str, Any]:
    """The record of a report: rows of both steps and of further cases, sums, summaries, the worst case and its likely reason."""
    predictor = predictor_of(run, efficiency)
    cases = {c["id"]: c for c in run["cases"]}
    rows = [_operator_row(o, cases.get(o["case_id"] or ""), predictor) for o in run["operators"]]
    known = {r["case_id"] for r in rows}
    further = [_case_row(c, predictor, cases) for c in run["cases"] if c["id"] not in known]
    distinct = list({r["case_id"]: r for r in rows if r["case_id"]}.values()) + further
    steps = [tallies.step(phase, rows) for phase in ("prefill", "decode") if any(r["phase"] == phase for r in rows)]
    judged = [r for r in distinct if r["verdict"] in JUDGED]
    worst = max(judged, key=lambda r: abs(math.log1p(r["error"])), default=None)
    return {
        "model": run["model"],
        "device": run["environment"].get("device", {}),
        "environment": run["environment"],
        "settings": run["settings"],
        "complete": run["complete"],
        "basis": _basis(run, content_hash, efficiency),
        "ceilings": [_ceiling(c) for c in run["ceilings"] if c["chosen"]],
        "datasheet": run.get("hardware"),
        "rows": rows,
        "further": further,
        "steps": steps,
        "groups": tallies.groups(judged),
        "counts": tallies.counts(distinct),
        "worst": worst and {"case_id": worst["case_id"], "error": worst["error"], "reason": reasons.likely(worst, cases)},
        "not_measured": list(run.get("not_measured", ())),
        "left_out": [
            f"{r['case_id']}: {_WHY.get(r['verdict'], r['verdict'])}" + (f", {r['note']}" if r["note"] else "")
            for r in distinct
            if not r["counts"]
        ],
        "bandwidth_curve": _curve(run),
        "links": run.get("collectives"),
        "samples": _samples(run, worst, rows),
        "noisy": _texts(run.get("noisy")),
        "warnings": list(run.get("warnings", ())),
    }


def gate(record: dict[str, Any], limit: float) -> list[str]:
    """Why a comparison does not pass ``limit`` (a share), one line per reason; an empty or unreliable one never passes."""
    counts = record["counts"]
    if not counts["cases"]:
        return ["there is no case to compare"]
    found = []
    if counts["judged"] < _LEAST_RELIABLE * counts["cases"]:
        found.append(f"only {counts['judged']} of {counts['cases']} cases can be judged, fewer than {_LEAST_RELIABLE:.0%}")
    found += [
        f"{g['class']} in {g['phase']}: median error {g['median']:.1%} of {format_count(g['n'], 'case')}"
        for g in record["groups"]
        if g["bound"] is None and g["median"] > limit
    ]
    return found


def _basis(run: dict[str, Any], content_hash: str, efficiency: Efficiency | None) -> dict[str, Any]:
    """What the predictions rest on, and whether they knew the answers: then it is a fit residual and no validation."""
    if efficiency is None:
        return {"kind": "prediction", "words": "predicted from the ceilings measured in the same run", "id": None}
    profile = efficiency.profile
    words, kind = f"predicted with the efficiency profile {profile.id} ({efficiency.evidence})", "validation"
    if profile.fit is not None:
        seen = {h for r in profile.fit.runs for h in r.seen_sha256}
        same = sum(short_hash(c["id"]) in seen for c in run["cases"])
        if any(r.sha256 == content_hash for r in profile.fit.runs):
            kind, words = "fit residual", words + "; it was fitted on this very run"
        elif same:
            kind, words = "fit residual", words + f"; it was fitted on {same} of these {len(run['cases'])} shapes in another run"
        held = profile.fit.held_out_error
        if kind == "fit residual" and held:
            words += (
                f"; its validation on shapes left out: median error {held.median:.1%}, 90 % within {held.p90:.1%} (n = {held.n})"
            )
    return {"kind": kind, "words": words, "id": profile.id}


def _operator(record: dict[str, Any]) -> Operator:
    """The operator that a row of the run file describes."""
    kinds = record["bytes_by_kind"]
    crossing = kinds["weight"] + kinds["kv_read"] + kinds["state"]
    return Operator(
        record["operation"],
        record["op_class"],
        record.get("layers", ""),
        record["count"],
        1,
        record["shape"],
        record["compute_dtype"],
        flops=record["flops"],
        weight_format=record["weight_format"],
        weight_bytes=kinds["weight"],
        activation_bytes=kinds["activation"],
        kv_read_bytes=kinds["kv_read"],
        kv_write_bytes=kinds["kv_write"],
        state_bytes=kinds["state"],
        stored_kv_bytes=kinds["compulsory"] - crossing,
    )


def _operator_row(record: dict[str, Any], case: dict[str, Any] | None, predictor: Predictor) -> dict[str, Any]:
    row = _row(_operator(record), record["phase"], case, predictor)
    return row | {"layers": record.get("layers"), "note": record.get("note") or row["note"], "launches": record["launches"]}


def _case_row(case: dict[str, Any], predictor: Predictor, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A case that no step of the comparison holds; a composite is predicted as the sum of its parts."""
    if case.get("parts"):
        row = _row(_bare(case), case["phase"], case, predictor, _sum(case["parts"], predictor, cases)) | {"gap": None}
    else:
        row = _row(_bare(case), case["phase"], case, predictor)
    return row | {"layers": None, "launches": case["launches"]}


def _bare(case: dict[str, Any]) -> Operator:
    """The operator of a case whose kinds of bytes are not told apart."""
    return Operator(
        case["operation"],
        case["class"],
        "",
        0,
        1,
        case["shape"],
        case["dtype"],
        flops=case["flops"],
        activation_bytes=case["bytes"],
        weight_format=case["dtype"],
    )


def _sum(parts: list[Any], predictor: Predictor, cases: dict[str, dict[str, Any]]) -> comparison.Prediction | None:
    found = [(predictor.predict(_bare(cases[i]), cases[i]["launches"]), n) for i, n in parts if i in cases]
    times = [(p, n) for p, n in found if p is not None]
    if len(times) < len(parts):
        return None
    bounds: dict[str, float] = {}
    for p, n in times:
        bounds[p.bound] = bounds.get(p.bound, 0.0) + n * p.time_s
    low, high = (math.fsum(n * p.interval_s[end] for p, n in times) for end in (0, 1))
    bound = max(bounds, key=lambda b: bounds[b])
    return comparison.Prediction(math.fsum(n * p.time_s for p, n in times), (low, high), bound, all(p.trusted for p, _ in times))


def _row(
    operator: Operator, phase: str, case: dict[str, Any] | None, predictor: Predictor, known: comparison.Prediction | None = None
) -> dict[str, Any]:
    found = known or predictor.predict(operator, case["launches"] if case else 1)
    status = case["status"] if case else "not measured"
    measured, interval = (case["time_s"], pair(case["interval_s"])) if case else (None, None)
    predicted = found.time_s if found else None
    verdict = comparison.verdict(
        status, measured, interval, predicted, found.interval_s if found else None, trusted=found is not None and found.trusted
    )
    if case and verdict in JUDGED and predictor.extrapolated(case):
        verdict = "extrapolated"
    sheet = predictor.datasheet
    rated = sheet is not None and operator.compute_dtype in sheet.peaks
    return {
        "phase": phase,
        "operation": operator.name,
        "class": operator.op_class,
        "count": operator.count,
        "shape": dict(operator.shape),
        "dtype": operator.compute_dtype,
        "case_id": case["id"] if case else None,
        "kernel": case["kernel"] if case else None,
        "status": status,
        "verdict": verdict,
        "counts": verdict in JUDGED,
        "bound": found.bound if found else None,
        "flops": float(operator.flops),
        "bytes": float(operator.bytes),
        "measured_s": measured,
        "interval_s": interval,
        "rounds": len(case["rounds"]) if case else 0,
        "predicted_s": predicted,
        "predicted_interval_s": found.interval_s if found else None,
        "error": predicted / measured - 1 if predicted and measured else None,
        "datasheet_s": float(roofline.honest(operator, sheet).time_s) if sheet is not None and rated else None,
        "gap": gap.split(
            operator, measured, predictor.ceilings, sheet, launches=case["launches"] if case else 1, units=predictor.units
        ),
        "labels": _texts(case.get("labels")) if case else [],
        "note": case["failure"] if case else None,
    }


def _texts(value: Any) -> list[str]:
    """A list of words of a run file, which earlier versions lack."""
    return [str(v) for v in value] if isinstance(value, list) else []


def _ceiling(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("name", "dtype", "unit", "value", "best", "value_interval", "kernel", "status", "shape")}


def _curve(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Bandwidth over working set, where the run measured it."""
    return [
        {
            "name": c["name"],
            "bytes": c["bytes"],
            "bytes_per_s": c["bytes"] / c["time_s"],
            "interval": [c["bytes"] / t for t in reversed(c["interval_s"])] if c["interval_s"] else None,
            "status": c["status"],
        }
        for c in run["ceilings"]
        if c["time_s"] and c["name"].startswith("set_")
    ]


def _samples(run: dict[str, Any], worst: dict[str, Any] | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Samples in the order they came, with clock and power, of the worst case and of the ones that take most of each step."""
    heavy = sorted((r for r in rows if r["measured_s"]), key=lambda r: -r["count"] * r["measured_s"])
    first = [next((r["case_id"] for r in heavy if r["phase"] == phase), None) for phase in ("prefill", "decode")]
    chosen = dict.fromkeys(i for i in (worst["case_id"] if worst else None, *first) if i)
    cases = {c["id"]: c for c in run["cases"]}
    return [
        {
            "case_id": i,
            "rounds": [
                {
                    "samples_s": r["samples_s"][:: max(1, len(r["samples_s"]) // _MOST_SAMPLES)],
                    "set_aside": len(r["preempted_s"]),
                    "sm_clock_hz": r.get("sm_clock_hz"),
                    "power_w": r.get("power_w"),
                }
                for r in cases[i]["rounds"]
            ],
        }
        for i in chosen
    ]
