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
    """What the commands would say of a case: the model's time with its relative deviation, the range around it, and the evidence."""

    case: Case
    expected_s: float
    deviation: float
    level: str
    low_s: float
    predicted_s: float
    high_s: float

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
    low, expected, high = model.around(found, case.floor_s, case.kind)
    seconds, deviation = float(found.seconds), float(found.deviation)
    return Prediction(case, seconds, deviation, model.level(case.kind), float(low), float(expected), float(high))


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
    cases: Sequence[Case], design: Design, whole: Fit, scheme: Scheme, shared: EffectFile | None = None
) -> list[Prediction]:
    """One prediction for each case, from a fit without its group. Widths and noise are those of the whole fit, ranges and further
    noise those of ``shared``, if given."""
    spans = {kind: calibration.ranges for kind, calibration in shared.kinds.items()} if shared else {}
    further = shared.noise if shared else {}
    found: dict[int, Prediction] = {}
    everything = np.arange(design.n)
    for left_out in folds(cases, scheme):
        rows = np.setdiff1d(everything, left_out)
        fitted = fit(design, rows, start=whole, steps=4)
        files = export(design, cases, fitted, rows, ranges=spans, further=further)
        for i in left_out:
            found[i] = predict(cases[i], files)
    return [found[i] for i in range(len(cases))]
