"""The law of a kernel fitted to measured times: reached shares of peak and bandwidth, a fixed time per call, and the knee.

    t = launch + ((F / (e_c P))^p + (B / (e_b BW))^p)^(1/p)

Fitted on log(measured / predicted) with Huber's loss (Huber 1964) by damped Gauss-Newton steps (Levenberg 1944) over a grid of p.
Needs numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calc.timing.roofline import corrected, joined_s

Array = np.ndarray[Any, np.dtype[np.float64]]

KNEES = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)
#: Deviation of the logarithm that even a quiet case keeps, so that a few of them do not rule the fit.
QUIET = 0.03
_HUBER = 1.345  # 95 % efficiency on normal errors
#: A weak prior holds parameters that no case tells: one deviation is a factor of e.
_PRIOR = 1.0
_STEPS, _KNEE_STEPS = 40, 15
_BOOTSTRAP = 200
_FEWEST_FOR_KNEE = 8
_FEWEST_FOR_TABLE, _TABLE_PAYS = 2, 0.10


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured call: seconds at the ceilings for its products and its bytes, measured seconds with the deviation of its logarithm.
    ``group`` is the shape that is left out whole, ``rows`` the tokens of a product."""

    case_id: str
    phase: str
    compute_s: float
    memory_s: float
    time_s: float
    deviation: float
    group: str
    rows: float | None = None


@dataclass(frozen=True, slots=True)
class Law:
    """Parameters of the law; ``knee`` None takes the larger of both times. ``correction`` is (rows, measured / law)."""

    compute: float
    bandwidth: float
    launch_s: float
    knee: float | None
    correction: tuple[tuple[float, float], ...] = ()

    def predict(self, compute_s: Array, memory_s: Array, rows: Array | None = None) -> Array:
        """Seconds of calls that would need these seconds at the ceilings."""
        joined: Array = np.asarray(joined_s(compute_s / self.compute, memory_s / self.bandwidth, self.knee))
        result: Array = (self.launch_s + joined) * np.asarray(corrected(self.correction, rows))
        return result


@dataclass(frozen=True, slots=True)
class Errors:
    """|log(predicted / measured)| of ``n`` cases, and the geometric mean of the ratio."""

    n: int
    median: float
    p90: float
    worst: float
    bias: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """A law with 95 % bootstrap intervals, how many cases each resource rules, and its errors; ``held_out`` maps case id to
    log(predicted / measured) of a fit that did not see its shape."""

    law: Law
    intervals: dict[str, tuple[float, float]]
    compute_cases: int
    bandwidth_cases: int
    residuals: dict[str, float]
    held_out: dict[str, float]


def fit(
    observations: Sequence[Observation],
    launch_s: float,
    *,
    start: Law | None = None,
    bootstrap: int = _BOOTSTRAP,
    validate: bool = True,
) -> Fitted:
    """The law of one class and type. ``launch_s`` (above 0) is where a fixed time that no case tells stays; ``start`` holds
    efficiencies likewise. ``validate`` False leaves the held-out errors out."""
    prior = start or Law(1.0, 1.0, launch_s, None)
    law = _best(observations, prior)
    held_out = _held_out(observations, prior, table=False) if validate else {}
    tabled = _tabled(law, observations)
    if validate and tabled.correction:
        other = _held_out(observations, prior, table=True)
        if _size(other) < _size(held_out):  # the table pays only where it predicts shapes that it did not see
            law, held_out = tabled, other
    compute, memory, measured, _ = _columns(observations)
    log_ratio = np.log(law.predict(compute, memory, _rows(observations)) / measured)
    ruled = compute / law.compute > memory / law.bandwidth
    return Fitted(
        law,
        _intervals(observations, law, prior, bootstrap),
        int(ruled.sum()),
        int((~ruled & (memory > 0)).sum()),
        {o.case_id: float(r) for o, r in zip(observations, log_ratio, strict=True)},
        held_out,
    )


def _size(log_ratios: dict[str, float]) -> float:
    return float(np.mean(np.abs(list(log_ratios.values())))) if log_ratios else math.inf


def _rows(observations: Sequence[Observation]) -> Array:
    """Rows of each call; 0, outside of any table, where it has none."""
    return np.array([max(o.rows or 0.0, 1e-9) for o in observations], float)


def _tabled(law: Law, observations: Sequence[Observation]) -> Law:
    """The law with a correction by rows (median over shapes), where it is off by more than 10 % somewhere."""
    compute, memory, measured, _ = _columns(observations)
    off, rows = np.log(measured / law.predict(compute, memory)), _rows(observations)
    counts = sorted({float(m) for m in rows if m >= 1})
    medians = [(m, off[rows == m]) for m in counts]
    table = tuple((m, float(np.exp(np.median(part)))) for m, part in medians if len(part) >= _FEWEST_FOR_TABLE)
    if len(table) < 2 or all(abs(math.log(f)) <= _TABLE_PAYS for _, f in table):
        return law
    return replace(law, correction=table)


def errors(log_ratios: Sequence[float]) -> Errors | None:
    """The figures of a set of log(predicted / measured); None for an empty one."""
    if not log_ratios:
        return None
    values = np.asarray(log_ratios, float)
    size = np.abs(values)
    return Errors(
        len(values), float(np.median(size)), float(np.quantile(size, 0.9)), float(size.max()), float(np.exp(values.mean()))
    )


def _columns(observations: Sequence[Observation]) -> tuple[Array, Array, Array, Array]:
    table = np.array([(o.compute_s, o.memory_s, o.time_s, math.hypot(o.deviation, QUIET)) for o in observations], float)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def _best(observations: Sequence[Observation], prior: Law) -> Law:
    """The law with the best knee; the larger of both times where too few cases could tell one."""
    columns = _columns(observations)
    law, loss = _solve(columns, prior, None, _KNEE_STEPS)
    tells = len(observations) >= _FEWEST_FOR_KNEE and _both_rule(columns, law)
    found = (
        [(loss, None), *((_solve(columns, law_of(law, p), p, _KNEE_STEPS, prior)[1], p) for p in KNEES)]
        if tells
        else [(loss, None)]
    )
    knee = min(found, key=lambda pair: pair[0])[1]
    return _solve(columns, law, knee, _STEPS, prior)[0]


def law_of(law: Law, knee: float | None) -> Law:
    """The same efficiencies with another knee."""
    return Law(law.compute, law.bandwidth, law.launch_s, knee)


def _both_rule(columns: tuple[Array, Array, Array, Array], law: Law) -> bool:
    """Whether cases on both sides of the ridge, and some near it, could tell how loads and products overlap."""
    ratio = np.log((columns[0] + 1e-30) / law.compute / ((columns[1] + 1e-30) / law.bandwidth))
    return bool((ratio > 0).sum() >= 2 and (ratio < 0).sum() >= 2 and (np.abs(ratio) < math.log(4)).any())


def _solve(
    columns: tuple[Array, Array, Array, Array], start: Law, knee: float | None, steps: int, prior: Law | None = None
) -> tuple[Law, float]:
    """Damped Gauss-Newton steps on the logarithms of the three parameters; (law, loss)."""
    compute, memory, measured, deviation = columns
    centre = np.log([(prior or start).compute, (prior or start).bandwidth, (prior or start).launch_s])
    at = np.log([start.compute, start.bandwidth, start.launch_s])
    damping, loss = 1e-3, math.inf
    value = _loss(at, centre, columns, knee)
    for _ in range(steps):
        law = _law(at, knee)
        total = law.predict(compute, memory)
        c, m = compute / law.compute, memory / law.bandwidth
        larger = np.maximum(np.maximum(c, m), 1e-30)
        p = 64.0 if knee is None else knee
        weight_c, weight_m = (c / larger) ** p, (m / larger) ** p
        both = total - law.launch_s
        share = weight_c / (weight_c + weight_m)
        slopes = np.stack([-both * share / total, -both * (1 - share) / total, law.launch_s / total], axis=1)
        residual = np.log(measured / total) / deviation
        robust = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(np.abs(residual), 1e-12)))
        rows = slopes / deviation[:, None] * robust[:, None]
        normal = rows.T @ rows + np.eye(3) / _PRIOR**2
        towards = rows.T @ (residual * robust) + (centre - at) / _PRIOR**2
        step = np.clip(np.linalg.solve(normal + damping * np.diag(np.diag(normal)), towards), -1.0, 1.0)
        tried = _loss(at + step, centre, columns, knee)
        if tried <= value:
            at, loss, value, damping = at + step, value, tried, damping / 4
            if loss - value < 1e-7 * max(1.0, value) and np.abs(step).max() < 1e-4:
                break
        else:
            damping *= 8
            if damping > 1e9:
                break
    return _law(at, knee), value


def _law(at: Array, knee: float | None) -> Law:
    compute, bandwidth, launch_s = (float(v) for v in np.exp(at))
    return Law(compute, bandwidth, launch_s, knee)


def _loss(at: Array, centre: Array, columns: tuple[Array, Array, Array, Array], knee: float | None) -> float:
    compute, memory, measured, deviation = columns
    size = np.abs(np.log(measured / _law(at, knee).predict(compute, memory)) / deviation)
    huber = np.where(size <= _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2))
    return float(huber.sum() + ((at - centre) ** 2).sum() / 2 / _PRIOR**2)


def _intervals(observations: Sequence[Observation], law: Law, prior: Law, count: int) -> dict[str, tuple[float, float]]:
    """95 % of the parameters over fits to shapes drawn with replacement, at the knee found."""
    groups = sorted({o.group for o in observations})
    if len(groups) < 3 or not count:
        return {}
    random = np.random.default_rng(0)
    members = {g: [i for i, o in enumerate(observations) if o.group == g] for g in groups}
    columns = _columns(observations)
    drawn = []
    for _ in range(count):
        chosen = [i for g in random.choice(len(groups), len(groups)) for i in members[groups[g]]]
        part = (columns[0][chosen], columns[1][chosen], columns[2][chosen], columns[3][chosen])
        one, _ = _solve(part, law, law.knee, _KNEE_STEPS, prior)
        drawn.append((one.compute, one.bandwidth, one.launch_s))
    low, high = np.quantile(np.array(drawn), (0.025, 0.975), axis=0)
    names = ("compute", "bandwidth", "launch_s")
    return {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}


def _held_out(observations: Sequence[Observation], prior: Law, *, table: bool) -> dict[str, float]:
    """log(predicted / measured) of each case by a fit without its shape, then without its number of rows: the worse of the two. The
    least and the largest number of rows stay in: what lies beyond them is extrapolated and said to be."""
    found: dict[str, float] = {}
    for key in ("group", "rows"):
        values = sorted({getattr(o, key) for o in observations} - {None})
        if len(values) < (3 if key == "group" else 4):
            continue
        for value in values if key == "group" else values[1:-1]:
            rest = [o for o in observations if getattr(o, key) != value]
            left = [o for o in observations if getattr(o, key) == value]
            if len(rest) < 2:
                continue
            law = _best(rest, prior)
            law = _tabled(law, rest) if table else law
            compute, memory, measured, _ = _columns(left)
            for one, ratio in zip(left, np.log(law.predict(compute, memory, _rows(left)) / measured), strict=True):
                known = found.get(one.case_id, 0.0)
                found[one.case_id] = float(ratio) if abs(ratio) >= abs(known) else known
    return found
