"""Measured against predicted, operator by operator and for the sum of each phase.

error = predicted / measured - 1: positive means that roofcast promised slower than it is. Predictions come from the same roofline
as every other command, at the ceilings measured in the same run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.measure.cases.operators import PHASES, Entry, Workload
from calc.measure.ceilings import are_reliable, as_floor, as_roofline
from calc.measure.records import CaseResult, Ceiling, Interval, Notice, PhaseSummary, Row
from calc.measure.statistics import log_interval, median
from calc.operators.operator import Operator
from calc.profiles.hardware import HardwareProfile
from calc.timing import roofline
from calc.units import format_percent, format_seconds

_SMALL_ERROR = 0.03
_UNCLEAR_WIDTH = 0.20
_KINDS = ("weight", "activation", "kv_read", "kv_write", "state", "compulsory")
#: How far below the floor a time must be before it is called a fault. Measured ceilings carry the noise of the machine themselves.
_MEASURED_FLOOR_SLACK, _DATASHEET_FLOOR_SLACK = 0.10, 0.02


@dataclass(frozen=True, slots=True)
class Prediction:
    """Time of one call in seconds with what bounds it; the interval comes from that of the ceilings. ``trusted`` False: a ceiling
    that it rests on is unreliable."""

    time_s: float
    interval_s: Interval
    bound: str
    trusted: bool = True


def predict(operator: Operator, ceilings: Sequence[Ceiling], launches: int = 1) -> Prediction | None:
    """One call of an operator at measured ceilings; None while a ceiling is unknown."""
    middle = as_roofline(ceilings, operator.op_class, launches)
    if middle is None or operator.compute_dtype not in middle.peaks:
        return None
    time_s = float(roofline.operator_time(operator, middle))
    ends = [
        float(roofline.operator_time(operator, found))
        for pick in ("high", "low")
        if (found := as_roofline(ceilings, operator.op_class, launches, pick=pick))
    ]
    bounds = roofline.honest(operator, middle)
    bound = "overhead" if middle.launch_s > bounds.time_s else bounds.bound
    trusted = are_reliable(ceilings, operator.op_class, operator.compute_dtype)
    return Prediction(time_s, (min(time_s, *ends), max(time_s, *ends)), bound, trusted)


def compare(
    work: Workload, results: Iterable[CaseResult], ceilings: Sequence[Ceiling], hardware: HardwareProfile | None = None
) -> tuple[tuple[Row, ...], tuple[PhaseSummary, ...], tuple[Notice, ...]]:
    """Rows in operator order, a summary per phase, and the faults that the physical floor betrays."""
    by_id = {r.case.id: r for r in results}
    datasheet = roofline.datasheet(hardware) if hardware else None
    rows = [_row(e, by_id.get(e.case_id or ""), ceilings, datasheet) for e in work.entries]
    rows = _with_shares(rows)
    summaries = tuple(
        _summary(phase, [r for r in rows if r.phase == phase], by_id, ceilings, work.dtype)
        for phase in PHASES
        if any(r.phase == phase for r in rows)
    )
    faults = [f for r, e in zip(rows, work.entries, strict=True) for f in _below_floor(r, e.operator, datasheet)]
    return tuple(rows), summaries, tuple(faults + _above_datasheet(ceilings, datasheet))


def _row(entry: Entry, result: CaseResult | None, ceilings: Sequence[Ceiling], datasheet: roofline.Ceilings | None) -> Row:
    operator = entry.operator
    prediction = predict(operator, ceilings, result.launches if result else 1)
    measured = result.time_s if result else None
    predicted = prediction.time_s if prediction else None
    floor = as_floor(ceilings)
    status = "not measured" if result is None else result.status
    row = Row(
        phase=entry.phase,
        operation=operator.name,
        op_class=operator.op_class,
        layers=operator.layers,
        count=operator.count,
        shape=dict(operator.shape),
        case_id=entry.case_id,
        status=status,
        verdict=status,
        bound=prediction.bound if prediction else None,
        flops=float(operator.flops),
        bytes=float(operator.bytes),
        measured_s=measured,
        interval_s=result.interval_s if result else None,
        predicted_s=predicted,
        predicted_interval_s=prediction.interval_s if prediction else None,
        floor_s=_time(roofline.floor, operator, floor),
        datasheet_s=_time(roofline.honest, operator, datasheet),
        error=predicted / measured - 1 if predicted and measured else None,
        share=None,
        flops_per_s=float(operator.flops) / measured if measured and operator.flops else None,
        bytes_per_s=float(operator.bytes) / measured if measured and operator.bytes else None,
        note=entry.reason or (result.failure if result else None),
        compute_dtype=operator.compute_dtype,
        weight_format=operator.weight_format,
        launches=result.launches if result else 1,
        bytes_by_kind={kind: float(getattr(operator, f"{kind}_bytes")) for kind in _KINDS},
    )
    return replace(row, verdict=_verdict(row, trusted=prediction is not None and prediction.trusted))


def _time(law: Any, operator: Operator, ceilings: roofline.Ceilings | None) -> float | None:
    """Seconds by a law of the roofline; None where the device has no rate for the operator's dtype."""
    if ceilings is None or ceilings.peak(operator.compute_dtype) is None or ceilings.bandwidth is None:
        return None
    return float(law(operator, ceilings).time_s)


def _verdict(row: Row, *, trusted: bool) -> str:
    return verdict(row.status, row.measured_s, row.interval_s, row.predicted_s, row.predicted_interval_s, trusted=trusted)


def verdict(
    status: str,
    measured_s: float | None,
    interval_s: Interval | None,
    predicted_s: float | None,
    predicted_interval_s: Interval | None,
    *,
    trusted: bool = True,
) -> str:
    """agrees, fast or slow (the operator against its prediction), unclear, or the status that forbids a verdict."""
    if status in ("unreliable", "failed", "not measured"):
        return status
    if not measured_s or not predicted_s or predicted_interval_s is None or interval_s is None:
        return "unclear"
    if not trusted:
        return "unreliable"
    low, high = interval_s
    if (high - low) / measured_s > _UNCLEAR_WIDTH:
        return "unclear"
    if predicted_interval_s[1] >= low and predicted_interval_s[0] <= high:
        return "agrees"
    error = predicted_s / measured_s - 1
    if abs(error) <= _SMALL_ERROR:
        return "agrees"
    return "fast" if error > 0 else "slow"


def _with_shares(rows: list[Row]) -> list[Row]:
    totals: dict[str, float] = {}
    for row in rows:
        totals[row.phase] = totals.get(row.phase, 0.0) + row.count * (row.measured_s or 0.0)
    return [replace(r, share=r.count * r.measured_s / totals[r.phase]) if r.measured_s else r for r in rows]


def _summary(phase: str, rows: list[Row], by_id: dict[str, CaseResult], ceilings: Sequence[Ceiling], dtype: str) -> PhaseSummary:
    done = [r for r in rows if r.measured_s is not None]
    measured = sum(r.count * (r.measured_s or 0.0) for r in done) or None
    predicted = _total(done, "predicted_s")
    datasheet = _total(done, "datasheet_s")
    flops, moved = sum(r.count * r.flops for r in done), sum(r.count * r.bytes for r in done)
    bounds: dict[str, float] = {}
    for row in done:
        if row.bound and row.predicted_s:
            bounds[row.bound] = bounds.get(row.bound, 0.0) + row.count * row.predicted_s
    bound = max(bounds, key=lambda b: bounds[b]) if bounds else None
    ratios = [
        (r.predicted_s / r.measured_s, r.case_id) for r in done if r.predicted_s and r.measured_s and r.status != "unreliable"
    ]
    logs = [abs(math.log(ratio)) for ratio, _ in ratios]
    reader = as_roofline(ceilings, "gemm")
    return PhaseSummary(
        phase=phase,
        operators=len(done),
        measured_s=measured,
        interval_s=_sum_interval(done, by_id),
        predicted_s=predicted,
        datasheet_s=datasheet,
        error=predicted / measured - 1 if predicted and measured else None,
        datasheet_error=datasheet / measured - 1 if datasheet and measured else None,
        bound=bound,
        bound_share=bounds[bound] / sum(bounds.values()) if bound else None,
        flops=flops,
        bytes=moved,
        flops_per_s=flops / measured if measured else None,
        bytes_per_s=moved / measured if measured else None,
        arithmetic_intensity=flops / moved if moved else None,
        ridge_point=reader.ridge_point(dtype) if reader else None,
        bias=math.exp(math.fsum(math.log(ratio) for ratio, _ in ratios) / len(ratios)) if ratios else None,
        median_abs_log_error=median(logs) if logs else None,
        worst_case_id=max(ratios, key=lambda p: abs(math.log(p[0])))[1] if ratios else None,
        not_measured=tuple(dict.fromkeys(f"{r.operation}: {r.note}" for r in rows if r.measured_s is None)),
        unreliable=tuple(dict.fromkeys(r.operation for r in done if r.status == "unreliable")),
    )


def _total(rows: list[Row], name: str) -> float | None:
    """Sum over the calls of a step; None when one operator has no figure (a part must not pass for the whole)."""
    values = [(r.count, getattr(r, name)) for r in rows]
    if not values or any(v is None for _, v in values):
        return None
    return float(sum(count * v for count, v in values))


def _sum_interval(rows: list[Row], by_id: dict[str, CaseResult]) -> Interval | None:
    """t-interval of the log of the step's sum over the rounds that gave every case a value."""
    medians = [{i: row.count * t for i, t in by_id[row.case_id or ""].round_values_s.items()} for row in rows]
    if not medians:
        return None
    shared = set.intersection(*(set(m) for m in medians))
    if len(shared) < 3:
        return None
    return log_interval([math.fsum(m[i] for m in medians) for i in sorted(shared)])[1]


def _below_floor(row: Row, operator: Operator, datasheet: roofline.Ceilings | None) -> list[Notice]:
    """A time that physics forbids is a fault in profile, count or timer: said, never swallowed."""
    if row.measured_s is None or row.status == "unreliable":
        return []
    slowest = row.interval_s[1] if row.interval_s else row.measured_s
    found = []
    for code, floor_s, slack, of in (
        ("W_BELOW_FLOOR", row.floor_s, _MEASURED_FLOOR_SLACK, "the ceilings measured here"),
        ("W_BELOW_DATASHEET", _time(roofline.floor, operator, datasheet), _DATASHEET_FLOOR_SLACK, "the datasheet"),
    ):
        if floor_s is not None and slowest < floor_s * (1 - slack):
            message = (
                f"{row.phase} {row.operation} took {format_seconds(row.measured_s)}, below its floor of {format_seconds(floor_s)} by {of}: "
                "a fault in the profile, in the count of FLOPs and bytes, in the rotation of cold operands, or in the timer"
            )
            found.append(Notice(code, message))
    return found


def _above_datasheet(ceilings: Sequence[Ceiling], datasheet: roofline.Ceilings | None) -> list[Notice]:
    """A measured ceiling above the datasheet's: the profile is of another device or the timer is wrong."""
    if datasheet is None:
        return []
    found = []
    for ceiling in ceilings:
        limit = datasheet.peak(ceiling.dtype) if ceiling.unit == "flop/s" else datasheet.bandwidth
        if ceiling.unit != "s" and limit and ceiling.value > limit * (1 + _DATASHEET_FLOOR_SLACK):
            excess = format_percent(ceiling.value / limit - 1)
            message = f"measured {ceiling.name} exceeds the datasheet of {datasheet.name} by {excess}: is it the right profile?"
            found.append(Notice("W_ABOVE_DATASHEET", message))
    return found
