"""Laws fitted to the measured calls of one operator class: the plainest form that predicts what was left out best.

A class has one law. More forms are tried, and kept only where they predict left-out shapes better: a correction by rows, a number of
threads that grows with the elements, and a law of its own for each kernel, drawn to that of the class as far as few cases tell otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import NormalDist

import numpy as np

from calc.measure.fitting.solver import KNEE_STEPS, Law, Observation, best, columns_of, one_thread, solve, tabled, threaded
from calc.measure.statistics import t95

_BOOTSTRAP = 200
_FEWEST_GROUPS, _FEWEST_SIZES = 3, 4
#: Laws of kernels replace that of the class where they leave at most this part of its error: less is chance (kernels of one simulated law:
#: 0.94 to 1.28; element-wise kernels of a CPU: 0.14 to 0.18).
_KERNELS_PAY = 0.9
#: Threads likewise: they are two more parameters.
_THREADS_PAY = 0.9


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


@dataclass(frozen=True, slots=True)
class Laws:
    """What a form gives: the law of the class, and those of kernels that have their own."""

    whole: Law
    own: dict[str, Law] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClassFit:
    """``whole`` serves every kernel without a law of its own: where there are such laws, its ``held_out`` errors are those of kernels
    left out whole. ``own`` are the kernels'."""

    whole: Fitted
    own: dict[str, Fitted]

    @property
    def residuals(self) -> dict[str, float]:
        """Of every case by the law that serves it."""
        return self.whole.residuals | {i: r for one in self.own.values() for i, r in one.residuals.items()}

    @property
    def held_out(self) -> dict[str, float]:
        """Of every case that could be left out, by the law that serves it."""
        return {i: r for one in self.own.values() for i, r in one.held_out.items()} if self.own else self.whole.held_out


Form = Callable[[Sequence[Observation], Law], Laws]


def fit(
    observations: Sequence[Observation],
    launch_s: float,
    *,
    start: Law | None = None,
    bootstrap: int = _BOOTSTRAP,
    validate: bool = True,
) -> ClassFit:
    """The laws of one class and type. ``launch_s`` (above 0) is where a fixed time that no case tells stays; ``start`` holds
    efficiencies likewise. ``validate`` False leaves the held-out errors out, and with them every form but the plainest."""
    prior = start or Law(1.0, 1.0, launch_s, None)
    laws, held_out = _chosen(observations, prior) if validate else (_plain(observations, prior), {})
    parts = {kernel: [o for o in observations if o.kernel == kernel] for kernel in laws.own}
    own = {kernel: _described(part, laws.own[kernel], laws.whole, bootstrap, held_out) for kernel, part in parts.items()}
    if own:
        held_out = _unseen(observations, prior)
    return ClassFit(_described(observations, laws.whole, prior, bootstrap, held_out), own)


def errors(log_ratios: Sequence[float]) -> Errors | None:
    """The figures of a set of log(predicted / measured); None for an empty one."""
    if not log_ratios:
        return None
    values = np.asarray(log_ratios, float)
    size = np.abs(values)
    return Errors(
        len(values), float(np.median(size)), float(np.quantile(size, 0.9)), float(size.max()), float(np.exp(values.mean()))
    )


def _plain(observations: Sequence[Observation], prior: Law) -> Laws:
    return Laws(best(observations, prior))


def _by_rows(observations: Sequence[Observation], prior: Law) -> Laws:
    return Laws(tabled(best(observations, prior), observations))


def _by_threads(observations: Sequence[Observation], prior: Law) -> Laws:
    return Laws(threaded(observations, prior))


def _by_kernel(observations: Sequence[Observation], prior: Law, law: Callable[[Sequence[Observation], Law], Law] = best) -> Laws:
    whole = law(observations, prior)
    kernels = sorted({o.kernel for o in observations})
    return Laws(whole, {kernel: law([o for o in observations if o.kernel == kernel], whole) for kernel in kernels})


def _chosen(observations: Sequence[Observation], prior: Law) -> tuple[Laws, dict[str, float]]:
    """The form that predicts left-out cases best, and how well. A table says nothing beyond its ends, so that it is judged by the sizes
    in between; a kernel's law by all, since kernels differ most at the ends."""
    form: Form = _plain
    held_out = _held_out(observations, prior, form)
    if _by_rows(observations, prior).whole.correction:
        other = _held_out(observations, prior, _by_rows)
        if _size(other) < _size(held_out):
            form, held_out = _by_rows, other
    spread = all(o.elements is not None for o in observations)
    if spread:
        other = _held_out(observations, prior, _by_threads)
        if _size(other) < _THREADS_PAY * _size(held_out):
            form, held_out = _by_threads, other
    if len({o.kernel for o in observations}) > 1:
        own: Form = _by_kernel
        errors_of = {f: _size(_held_out(observations, prior, f, ends=True)) for f in (form, own)}
        if spread:
            threads = partial(_by_kernel, law=threaded)
            errors_of[threads] = _size(_held_out(observations, prior, threads, ends=True))
            if errors_of[threads] < _THREADS_PAY * errors_of[own]:
                own = threads
        if errors_of[own] < _KERNELS_PAY * errors_of[form]:
            form, held_out = own, _held_out(observations, prior, own)
    return form(observations, prior), held_out


def _size(log_ratios: dict[str, float]) -> float:
    return float(np.mean(np.abs(list(log_ratios.values())))) if log_ratios else math.inf


def _log_ratios(laws: Laws, observations: Sequence[Observation]) -> dict[str, float]:
    """log(predicted / measured) of each case by the law that serves it."""
    found: dict[str, float] = {}
    for kernel in {o.kernel for o in observations}:
        part = [o for o in observations if o.kernel == kernel]
        off = np.log(laws.own.get(kernel, laws.whole).times(part) / columns_of(part)[2])
        found |= {o.case_id: float(r) for o, r in zip(part, off, strict=True)}
    return found


def _described(observations: Sequence[Observation], law: Law, prior: Law, bootstrap: int, held_out: dict[str, float]) -> Fitted:
    compute, memory, _, _ = columns_of(observations)
    ruled = compute / law.compute > memory / law.bandwidth
    return Fitted(
        law,
        _intervals(observations, law, prior, bootstrap),
        int(ruled.sum()),
        int((~ruled & (memory > 0)).sum()),
        _log_ratios(Laws(law), observations),
        {o.case_id: held_out[o.case_id] for o in observations if o.case_id in held_out},
    )


def _intervals(observations: Sequence[Observation], law: Law, prior: Law, count: int) -> dict[str, tuple[float, float]]:
    """95 % of the parameters over fits to shapes drawn with replacement (sizes, where there are few shapes), at the knee found. The
    ends are those of Hesterberg's expanded percentile interval (2015), since a draw from few shapes spreads less than they do."""
    keys: list[object] = [o.group for o in observations]
    if len(set(keys)) < _FEWEST_GROUPS:
        keys = [o.size for o in observations]
    if len(set(keys)) < _FEWEST_GROUPS or not count:
        return {}
    random = np.random.default_rng(0)
    members = [[i for i, k in enumerate(keys) if k == key] for key in dict.fromkeys(keys)]
    columns = one_thread(observations, law.threads[0]) if law.threads else columns_of(observations)
    start = replace(law, compute=law.bandwidth / law.threads[1]) if law.threads else law
    drawn = []
    for _ in range(count):
        chosen = [i for k in random.choice(len(members), len(members)) for i in members[k]]
        part = (columns[0][chosen], columns[1][chosen], columns[2][chosen], columns[3][chosen])
        one, _ = solve(part, start, law.knee, KNEE_STEPS, prior)
        drawn.append((one.compute, one.bandwidth, one.launch_s))
    end = NormalDist().cdf(-math.sqrt(len(members) / (len(members) - 1)) * t95(len(members) - 1))
    low, high = np.quantile(np.array(drawn), (end, 1 - end), axis=0)
    names = ("compute", "bandwidth", "launch_s")
    found = {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}
    if law.threads:
        del found["compute"]  # in its place stood what one thread reaches
    return found


def _held_out(observations: Sequence[Observation], prior: Law, form: Form, *, ends: bool = False) -> dict[str, float]:
    """log(predicted / measured) of each case by a fit without its shape, then without its size: the worse of the two. A kernel's only
    shape stays in, since without it the kernel would be another question (see ``_unseen``). So do its least and largest size, unless
    ``ends``: what lies beyond them is extrapolated and said to be."""
    found: dict[str, float] = {}
    for left in (*_shapes(observations), *_sizes(observations, ends=ends)):
        ids = {o.case_id for o in left}
        rest = [o for o in observations if o.case_id not in ids]
        if len(rest) < 2:
            continue
        for case_id, ratio in _log_ratios(form(rest, prior), left).items():
            if abs(ratio) >= abs(found.get(case_id, 0.0)):
                found[case_id] = ratio
    return found


def _shapes(observations: Sequence[Observation]) -> list[list[Observation]]:
    """The cases of each shape, where its kernel has others."""
    shapes = {kernel: {o.group for o in observations if o.kernel == kernel} for kernel in {o.kernel for o in observations}}
    groups = sorted({o.group for o in observations})
    if len(groups) < _FEWEST_GROUPS:
        return []
    found = [[o for o in observations if o.group == g and len(shapes[o.kernel]) > 1] for g in groups]
    return [left for left in found if left]


def _sizes(observations: Sequence[Observation], *, ends: bool) -> list[list[Observation]]:
    """The cases of each size, where it lies between others of its kernel."""
    known: dict[str, set[float]] = {}
    for o in observations:
        if o.size is not None:
            known.setdefault(o.kernel, set()).add(o.size)
    every = sorted(set().union(*known.values())) if known else []
    if len(every) < _FEWEST_SIZES and not ends:
        return []

    def between(o: Observation) -> bool:
        return o.size is not None and (ends or min(known[o.kernel]) < o.size < max(known[o.kernel]))

    found = [[o for o in observations if o.size == size and between(o)] for size in every]
    return [left for left in found if left]


def _unseen(observations: Sequence[Observation], prior: Law) -> dict[str, float]:
    """log(predicted / measured) of each kernel by the law of the others: how a kernel fares that nobody measured."""
    found: dict[str, float] = {}
    for kernel in sorted({o.kernel for o in observations}):
        rest = [o for o in observations if o.kernel != kernel]
        found |= _log_ratios(Laws(best(rest, prior)), [o for o in observations if o.kernel == kernel])
    return found
