"""Predictions of records that the fit has not seen: whole cells, devices, models or engines left out, one group at a time."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.speed_model.case import Case
from benchmarks.speed_model.export import effects_of, export
from benchmarks.speed_model.regression import Design, Fit, fit
from calc.profiles.efficiency import EffectFile

Scheme = Literal["cell", "device", "model", "engine"]
SCHEMES: tuple[Scheme, ...] = ("cell", "device", "model", "engine")
_CELL_FOLDS = 20


@dataclass(frozen=True)
class Prediction:
    """An expected time with its relative deviation and the evidence level it was made at."""

    case: Case
    expected_s: float
    deviation: float
    level: str
    best: float = 1.0

    @property
    def predicted_s(self) -> float:
        """The expected time, raised to the best share of the floor that was ever reached."""
        return max(self.expected_s, self.case.floor_s / self.best)

    @property
    def error(self) -> float:
        """Relative error of the predicted time."""
        return self.predicted_s / self.case.measured_s - 1

    @property
    def z(self) -> float:
        """How many deviations the measured time lies on the slow side (positive) or fast side, in the measure of the ranges."""
        ratio = self.case.measured_s / self.expected_s
        return (ratio - 1) / self.deviation if ratio >= 1 else -(1 / ratio - 1) / self.deviation


def predict(case: Case, files: Mapping[str, EffectFile]) -> Prediction:
    """What the commands would say of a case with these effects."""
    model = case.model(effects_of(files, case.setting))
    found = model.expectation(case.sizes, case.composition, case.noise(model))
    return Prediction(
        case, float(found.seconds), float(found.deviation), model.level(case.kind), files["shared"].kinds[case.kind].best
    )


def folds(cases: Sequence[Case], scheme: Scheme) -> list[list[int]]:
    """Indices of the cases that are left out together. Cells are dealt out over twenty folds, the rest is left out one by one."""
    members: dict[str, list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        members[case.groups[scheme]].append(i)
    names = sorted(members)
    if scheme != "cell":
        return [members[name] for name in names]
    dealt: list[list[int]] = [[] for _ in range(_CELL_FOLDS)]
    for name in names:  # by a digest, so that further records move no cell to another fold
        dealt[int(hashlib.sha256(name.encode()).hexdigest(), 16) % _CELL_FOLDS] += members[name]
    return [fold for fold in dealt if fold]


def cross_validate(
    cases: Sequence[Case], design: Design, whole: Fit, scheme: Scheme, further: Mapping[str, float] | None = None
) -> list[Prediction]:
    """One prediction for each case, from a fit without its group. Widths and noise are those of the whole fit."""
    found: dict[int, Prediction] = {}
    everything = np.arange(design.n)
    for left_out in folds(cases, scheme):
        rows = np.setdiff1d(everything, left_out)
        fitted = fit(design, rows, start=whole, steps=4)
        files = export(design, cases, fitted, rows, further=further)
        for i in left_out:
            found[i] = predict(cases[i], files)
    return [found[i] for i in range(len(cases))]
