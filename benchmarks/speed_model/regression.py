"""The fit: nested effects on the terms of a sum, on the logarithm of the time, with shrinkage and a robust loss.

Maximum a posteriori by Gauss-Newton in the space of rows (a few hundred) rather than of effects; Student-t residuals by reweighting
(Lange, Little, Taylor 1989); widths of levels and noise of kinds by expectation-maximisation with a weak prior
(Dempster, Laird, Rubin 1977).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.speed_model.case import Case
from benchmarks.speed_model.structure import OBSERVATIONS_OF_PRIOR, SPECS
from calc.timing.calibrated import phase_of

Array = np.ndarray[Any, np.dtype[Any]]
Name = tuple[str, str, str]  # term or phase, level ("base" and "slope" too), key

#: Degrees of freedom of the residuals: heavy tails, since some records are of another code path or of an overloaded server, and must not
#: bend what is said of the device next to theirs. Cross-validated means differ by 0.3 points between 1.5 and 4, but the tail of served
#: requests on left-out devices falls from 48 to 38 %; below 2 the medians of steps rise.
_DEGREES = 2.25
_LEAST_NOISE, _PRIOR_NOISE, _PRIOR_ROWS = 0.02, 0.08, 5.0


@dataclass
class _Lists:
    """Entries while a design is put together: for each (row, term) its size, for each of its effects an index and a weight."""

    row: list[int] = field(default_factory=list)
    log_size: list[float] = field(default_factory=list)
    part: list[int] = field(default_factory=list)
    effect: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)


class Design:
    """Rows, their terms and the effects that each term uses. Effects that a training set never touches keep their prior."""

    def __init__(self, cases: list[Case]) -> None:
        self.n = len(cases)
        self.effects: dict[Name, int] = {}
        self.level_of: list[int] = []
        self.levels: dict[tuple[str, str], int] = {}
        self.prior: list[float] = []
        lists = _Lists()
        for i, case in enumerate(cases):
            self._add(lists, i, case)
        self.row, self.log_size = np.array(lists.row), np.array(lists.log_size)
        self.part, self.effect, self.weight = np.array(lists.part), np.array(lists.effect), np.array(lists.weight)
        self.level_index, self.prior_mean = np.array(self.level_of), np.array(self.prior)
        self.prior_width = np.array([_width(*level) for level in self.levels])
        self.is_level = np.array([name not in ("base", "slope") for _, name in self.levels])
        self.kinds = sorted({case.kind for case in cases})
        self.kind = np.array([self.kinds.index(case.kind) for case in cases])
        self.y = np.log(np.array([case.measured_s for case in cases]))

    def _index(self, term: str, level: str, key: str, prior: float = 0.0) -> int:
        name = (term, level, key)
        found = self.effects.get(name)
        if found is None:
            found = self.effects[name] = len(self.effects)
            group = (term, level if level != "slope" else f"slope {key}")
            self.level_of.append(self.levels.setdefault(group, len(self.levels)))
            self.prior.append(prior)
        return found

    def _add(self, lists: _Lists, i: int, case: Case) -> None:
        for term, size in case.sizes.items():
            part = len(lists.row)
            lists.row.append(i)
            lists.log_size.append(math.log(size))
            for index, weight in self._of_term(term, case):
                lists.part.append(part)
                lists.effect.append(index)
                lists.weight.append(weight)

    def _of_term(self, term: str, case: Case) -> list[tuple[int, float]]:
        keys, slopes = case.setting.keys, case.setting.slopes
        found = []
        for name in dict.fromkeys((term, phase_of(term), case.composition)):
            spec = SPECS.get(name)
            if spec is None:
                continue
            if spec.base_width:
                found.append((self._index(name, "base", "", spec.base), 1.0))
            found += [(self._index(name, level, keys[level]), 1.0) for level in spec.levels if level in keys]
            found += [(self._index(name, "slope", s), slopes[s]) for s in spec.slopes if slopes.get(s)]
        return found

    def model(self, effects: Array) -> tuple[Array, Array]:
        """Logarithm of the time of every row, and its derivative by every effect."""
        exponent = self.log_size + np.bincount(self.part, self.weight * effects[self.effect], len(self.row))
        seconds = np.exp(exponent)
        total = np.bincount(self.row, seconds, self.n)
        share = (seconds / total[self.row])[self.part] * self.weight
        size = len(self.effects)
        flat = self.row[self.part] * size + self.effect
        return np.log(total), np.bincount(flat, share, self.n * size).reshape(self.n, size)


def _width(term: str, level: str) -> float:
    spec = SPECS[term]
    if level == "base":
        return spec.base_width
    return spec.width(level.removeprefix("slope "))


@dataclass
class Fit:
    """Effects with their variances; widths of levels; noise of kinds."""

    effects: Array
    variance: Array
    width: Array
    noise: Array


def fit(design: Design, rows: Array | None = None, *, start: Fit | None = None, steps: int = 8, rounds: int = 0) -> Fit:
    """Fit ``rows`` of a design (all by default). ``rounds`` of variance estimation; without any, widths and noise of ``start`` hold."""
    rows = np.arange(design.n) if rows is None else rows
    found = Fit(
        (design.prior_mean if start is None else start.effects).copy(),
        np.zeros(len(design.effects)),
        (design.prior_width if start is None else start.width).copy(),
        np.full(len(design.kinds), _PRIOR_NOISE) if start is None else start.noise.copy(),
    )
    for number in range(rounds + 1):
        _solve(design, rows, found, steps if number == 0 else 2, estimate=number < rounds)
    return found


def _solve(design: Design, rows: Array, found: Fit, steps: int, *, estimate: bool) -> None:
    """Gauss-Newton steps; then posterior variances, and one round of variance estimation."""
    mean = design.prior_mean
    for _ in range(steps):
        value, jacobian = design.model(found.effects)
        jacobian, residual = jacobian[rows], design.y[rows] - value[rows]
        noise = found.noise[design.kind[rows]] ** 2
        trust = (_DEGREES + 1) / (_DEGREES + residual**2 / noise)
        prior = found.width[design.level_index] ** 2
        scaled = jacobian * prior
        matrix = scaled @ jacobian.T
        matrix[np.diag_indices_from(matrix)] += noise / trust
        target = mean + scaled.T @ np.linalg.solve(matrix, residual + jacobian @ (found.effects - mean))
        step = target - found.effects
        longest = float(np.abs(step).max(initial=0.0))
        found.effects = found.effects + step * min(1.0, 1.0 / max(longest, 1e-12))
    inverse = np.linalg.inv(matrix)
    information = np.einsum("ij,ij,i->j", jacobian, jacobian, trust / noise)
    found.variance = 1 / (1 / np.maximum(prior, 1e-12) + information)
    if estimate:
        marginal = np.maximum(prior - prior**2 * np.einsum("ij,ij->j", jacobian, inverse @ jacobian), 0.0)
        _estimate_widths(design, found, marginal)
        _estimate_noise(design, rows, found, noise / trust, trust, inverse)


def _estimate_widths(design: Design, found: Fit, marginal: Array) -> None:
    count = np.bincount(design.level_index, minlength=len(design.levels))
    squares = np.bincount(design.level_index, (found.effects - design.prior_mean) ** 2 + marginal, len(design.levels))
    weight = OBSERVATIONS_OF_PRIOR
    estimated = np.sqrt((squares + weight * design.prior_width**2) / (count + weight))
    found.width = np.where(design.is_level, estimated, found.width)


def _estimate_noise(design: Design, rows: Array, found: Fit, variance: Array, trust: Array, inverse: Array) -> None:
    residual = design.y[rows] - design.model(found.effects)[0][rows]
    uncertain = variance - variance**2 * np.diag(inverse)  # posterior variance of the fitted value
    squares = trust * (residual**2 + uncertain)
    for k in range(len(design.kinds)):
        own = design.kind[rows] == k
        total = squares[own].sum() + _PRIOR_ROWS * _PRIOR_NOISE**2
        found.noise[k] = max(_LEAST_NOISE, math.sqrt(total / (own.sum() + _PRIOR_ROWS)))
