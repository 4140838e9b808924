"""The law of a kernel and its best parameters for measured times: reached shares of peak and bandwidth, a fixed time per call, the knee.

    t = launch + ((F / (e_c P))^p + (B s / (e_b BW))^p)^(1/p)

where s is 1 unless a host spreads the call over too few threads.
Fitted on log(measured / predicted) with Huber's loss (Huber 1964) by damped Gauss-Newton steps (Levenberg 1944) over a grid of p.
Needs numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from calc.timing.roofline import corrected, joined_s, slowdown

Array = np.ndarray[Any, np.dtype[np.float64]]
Columns = tuple[Array, Array, Array, Array]

KNEES = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)
#: Deviation of the logarithm that even a quiet case keeps, so that a few of them do not rule the fit.
QUIET = 0.03
_HUBER = 1.345  # 95 % efficiency on normal errors
#: A weak prior holds parameters that no case tells: one deviation is a factor of e. Kernels of one class, too, differ by about as much.
_PRIOR = 1.0
_STEPS, KNEE_STEPS = 40, 15
_FEWEST_FOR_KNEE = 8
_FEWEST_FOR_TABLE, _TABLE_PAYS = 2, 0.10
_FEWEST_FOR_THREADS = 5
_BETWEEN = (0.25, 0.5, 0.75)  # where in a gap between two sizes a grain is tried, in logarithms


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured call: seconds at the ceilings for its products and its bytes, measured seconds with the deviation of its logarithm.

    ``kernel`` is what may have a law of its own. ``group`` is the shape that is left out whole, ``size`` the number of tokens or keys
    at which it runs and that is left out too; ``rows`` are the tokens of a product, by which a law may be corrected; ``elements`` are
    those of a call that works row by row, which a host may spread over threads."""

    case_id: str
    phase: str
    compute_s: float
    memory_s: float
    time_s: float
    deviation: float
    group: str
    rows: float | None = None
    size: float | None = None
    kernel: str = ""
    elements: float | None = None


@dataclass(frozen=True, slots=True)
class Law:
    """Parameters of the law; ``knee`` None takes the larger of both times. ``correction`` is (rows, measured / law), ``threads`` (grain,
    enough) of ``roofline.slowdown``."""

    compute: float
    bandwidth: float
    launch_s: float
    knee: float | None
    correction: tuple[tuple[float, float], ...] = ()
    threads: tuple[float, float] | None = None

    def predict(self, compute_s: Array, memory_s: Array, rows: Array | None = None, elements: Array | None = None) -> Array:
        """Seconds of calls that would need these seconds at the ceilings."""
        loads = memory_s / self.bandwidth
        if self.threads is not None and elements is not None:
            loads = loads * np.asarray(slowdown(*self.threads, elements))
        joined: Array = np.asarray(joined_s(compute_s / self.compute, loads, self.knee))
        result: Array = (self.launch_s + joined) * np.asarray(corrected(self.correction, rows))
        return result

    def times(self, observations: Sequence[Observation]) -> Array:
        """Seconds of observed calls."""
        compute_s, memory_s, _, _ = columns_of(observations)
        return self.predict(compute_s, memory_s, rows_of(observations), elements_of(observations))


def best(observations: Sequence[Observation], prior: Law) -> Law:
    """The law with the best knee; the larger of both times where too few cases could tell one."""
    columns = columns_of(observations)
    law, loss = solve(columns, prior, None, KNEE_STEPS)
    tells = len(observations) >= _FEWEST_FOR_KNEE and _both_rule(columns, law)
    found = (
        [(loss, None), *((solve(columns, with_knee(law, p), p, KNEE_STEPS, prior)[1], p) for p in KNEES)]
        if tells
        else [(loss, None)]
    )
    knee = min(found, key=lambda pair: pair[0])[1]
    return solve(columns, law, knee, _STEPS, prior)[0]


def with_knee(law: Law, knee: float | None) -> Law:
    """The same efficiencies with another knee."""
    return Law(law.compute, law.bandwidth, law.launch_s, knee)


def _both_rule(columns: Columns, law: Law) -> bool:
    """Whether cases on both sides of the ridge, and some near it, could tell how loads and products overlap."""
    ratio = np.log((columns[0] + 1e-30) / law.compute / ((columns[1] + 1e-30) / law.bandwidth))
    return bool((ratio > 0).sum() >= 2 and (ratio < 0).sum() >= 2 and (np.abs(ratio) < math.log(4)).any())


def solve(columns: Columns, start: Law, knee: float | None, steps: int, prior: Law | None = None) -> tuple[Law, float]:
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


def _loss(at: Array, centre: Array, columns: Columns, knee: float | None) -> float:
    compute, memory, measured, deviation = columns
    size = np.abs(np.log(measured / _law(at, knee).predict(compute, memory)) / deviation)
    huber = np.where(size <= _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2))
    return float(huber.sum() + ((at - centre) ** 2).sum() / 2 / _PRIOR**2)


def tabled(law: Law, observations: Sequence[Observation]) -> Law:
    """The law with a correction by rows (median over shapes), where it is off by more than 10 % somewhere."""
    off, rows = np.log(columns_of(observations)[2] / law.times(observations)), rows_of(observations)
    counts = sorted({float(m) for m in rows if m >= 1})
    medians = [(m, off[rows == m]) for m in counts]
    table = tuple((m, float(np.exp(np.median(part)))) for m, part in medians if len(part) >= _FEWEST_FOR_TABLE)
    if len(table) < 2 or all(abs(math.log(f)) <= _TABLE_PAYS for _, f in table):
        return law
    return replace(law, correction=table)


def threaded(observations: Sequence[Observation], prior: Law) -> Law:
    """The best law of calls spread over threads. What one thread reaches is a ceiling like another, which stands in for that of
    products: it moves one grain's bytes, however many threads there are. The grain lies between two sizes seen."""
    sizes = sorted({o.elements for o in observations if o.elements})
    plain = best(observations, prior)
    if len(sizes) < _FEWEST_FOR_THREADS or any(o.elements is None for o in observations):
        return plain
    start = replace(plain, compute=plain.bandwidth)
    tried = [
        (*solve(one_thread(observations, math.sqrt(low * high)), start, None, KNEE_STEPS, prior), low, high)
        for low, high in pairwise(sizes)
    ]
    start, _, low, high = min(tried, key=lambda one: one[1])
    grains = [low * (high / low) ** share for share in _BETWEEN]
    found = [(*solve(one_thread(observations, grain), start, None, _STEPS, prior), grain) for grain in grains]
    law, _, grain = min(found, key=lambda one: one[1])
    enough = max(1.0, law.bandwidth / law.compute)
    return Law(plain.compute, law.bandwidth, law.launch_s, None, threads=(grain, enough))


def one_thread(observations: Sequence[Observation], grain: float) -> Columns:
    """Columns with the seconds of the bytes of one thread in the place of products."""
    _, memory, measured, deviation = columns_of(observations)
    return memory / np.maximum(1.0, elements_of(observations) / grain), memory, measured, deviation


def columns_of(observations: Sequence[Observation]) -> Columns:
    """Seconds at the ceilings by products and by bytes, measured seconds, and the deviation of their logarithm."""
    table = np.array([(o.compute_s, o.memory_s, o.time_s, math.hypot(o.deviation, QUIET)) for o in observations], float)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def elements_of(observations: Sequence[Observation]) -> Array:
    """Elements of each call; 1 where it is not spread by them."""
    return np.array([o.elements or 1.0 for o in observations], float)


def rows_of(observations: Sequence[Observation]) -> Array:
    """Rows of each call; 0, outside of any table, where it has none."""
    return np.array([max(o.rows or 0.0, 1e-9) for o in observations], float)
