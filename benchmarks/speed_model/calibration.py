"""Ranges that hold: noise of groups whose cross-validated errors exceed their deviations, then multiples that hold the wanted share.

Everything rests on predictions of records that the fit has not seen; residuals of the fit are several times too small. The deviations are
those that the commands combine, by the same function.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from benchmarks.speed_model.cross_validation import Prediction, Scheme
from benchmarks.speed_model.export import rounded
from benchmarks.statistics import quantile
from calc.timing.calibrated import DEVICE_UNSEEN, ENGINE_UNSEEN, KNOWN, LARGE_BATCH, NOISE_LEVELS

Predictions = Mapping[Scheme, Sequence[Prediction]]

#: Share of cross-validated errors that a range holds. A little over the 80 % that it is to hold on other people's records.
HELD = 0.81
#: Of serving errors: rows of one table stand or fall together, and by cell this holds more than four of five of them.
SERVING_HELD = 0.78
_LEAST_GROUP, _LEAST_ROWS = 10, 25
#: No engine, class or kind of model with so many rows may be held less often than this.
_LEAST_HELD, _LEAST_HELD_ROWS = 0.72, 15
_NOISE_STEP, _LIFTS = 0.05, 12
_SHRINKAGE = 5.0  # rows of a group that count as much as the belief that it is like the others
_NOTABLE = 1.1  # a ratio of spreads that asks for noise
_STEPS = ("decode", "prefill", "serving")


def further_noise(predictions: Predictions) -> dict[str, float]:
    """Relative noise by ``kind level key``, and of ``large batch``: what lifts a group's spread to that of its kind."""
    held = list(predictions["cell"])
    found: dict[str, float] = defaultdict(float)
    for level in ("large batch", *NOISE_LEVELS):
        for kind in _STEPS:
            for key in sorted({_key(p, level) for p in held if p.case.kind == kind} - {""}):
                missing = _missing(held, kind, level, key)
                if missing:
                    name = level if level == "large batch" else f"{kind} {level} {key}"
                    found[name] = max(found[name], missing)
                    held = [_widened(p, kind, level, key, missing) for p in held]
    return {name: rounded(noise) for name, noise in sorted(found.items())}


def _key(prediction: Prediction, level: str) -> str:
    if level == "large batch":
        return level if _batch(prediction) > LARGE_BATCH else ""
    return str(prediction.case.setting.keys.get(level, ""))


def _batch(prediction: Prediction) -> int:
    return int(prediction.case.record.get("batch") or 1)


def _missing(held: Sequence[Prediction], kind: str, level: str, key: str) -> float:
    rows = [p for p in held if p.case.kind == kind]
    own = [p for p in rows if _key(p, level) == key]
    if len(own) < _LEAST_GROUP or 2 * len(own) > len(rows):
        return 0.0
    ratio = _spread(own) / _spread(rows)
    if ratio < _NOTABLE:
        return 0.0
    trust = len(own) / (len(own) + _SHRINKAGE)
    typical = quantile([p.deviation for p in own], 0.5) or 0.0
    return typical * math.sqrt((ratio**2 - 1) * trust)


def _spread(rows: Sequence[Prediction]) -> float:
    z = [p.z for p in rows]
    return max((quantile(z, 0.9) or 0.0) - (quantile(z, 0.1) or 0.0), 1e-6)


def _widened(prediction: Prediction, kind: str, level: str, key: str, noise: float) -> Prediction:
    if prediction.case.kind != kind or _key(prediction, level) != key:
        return prediction
    return replace(prediction, deviation=math.hypot(prediction.deviation, noise))


def lifted(raw: Predictions, further: Mapping[str, float], kinds: Sequence[str]) -> dict[str, float]:
    """``further`` with more noise where the ranges hold a group of some size too seldom. ``raw`` predictions carry none of it."""
    found = dict(further)
    for _ in range(_LIFTS):
        predictions = {scheme: [widened(p, found) for p in rows] for scheme, rows in raw.items()}
        multiples = ranges(predictions, kinds)
        for level in NOISE_LEVELS:
            for kind in _STEPS:
                rows = [p for p in predictions["cell"] if p.case.kind == kind]
                for key in sorted({_key(p, level) for p in rows}):
                    own = [p for p in rows if _key(p, level) == key]
                    if len(own) >= _LEAST_HELD_ROWS and _held(own, multiples[kind]) < _LEAST_HELD:
                        name = f"{kind} {level} {key}"
                        found[name] = rounded(math.hypot(found.get(name, 0.0), _NOISE_STEP))
    return found


def widened(prediction: Prediction, further: Mapping[str, float]) -> Prediction:
    """A prediction with the noise of its groups, as the commands add it."""
    kind = prediction.case.kind
    if kind not in _STEPS:
        return prediction
    noises = [further.get(f"{kind} {level} {_key(prediction, level)}", 0.0) for level in NOISE_LEVELS]
    if kind != "prefill":
        noises.append(further.get("large batch", 0.0) * math.sqrt(max(0.0, 1 - LARGE_BATCH / _batch(prediction))))
    return replace(prediction, deviation=math.hypot(prediction.deviation, *noises))


def _held(rows: Sequence[Prediction], multiples: Mapping[str, tuple[float, float]]) -> float:
    """Share of the rows that their ranges hold."""
    inside = 0
    for p in rows:
        fast, slow = multiples[p.level]
        inside += -fast <= p.z <= slow
    return inside / len(rows)


def ranges(predictions: Predictions, kinds: Sequence[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """By kind and evidence level the multiples of the deviation, to the fast and the slow side, that hold the wanted share of the errors.

    A serving table holds many rows of one model on one device: whole devices are left out for it even where they are known.
    """
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for kind in kinds:
        by_level: dict[str, tuple[Scheme, ...]] = {
            KNOWN: ("cell", "device") if kind == "serving" else ("cell",),
            DEVICE_UNSEEN: ("device", "model") if kind == "serving" else ("device",),
            ENGINE_UNSEEN: ("engine",),
        }
        found[kind] = {
            level: _multiples(
                [p for scheme in schemes for p in predictions[scheme] if p.case.kind == kind], _is(level), _share(kind)
            )
            for level, schemes in by_level.items()
        }
    return found


def _is(level: str) -> Callable[[Prediction], bool]:
    return lambda prediction: prediction.level == level


def _share(kind: str) -> float:
    return SERVING_HELD if kind == "serving" else HELD


def _multiples(rows: Sequence[Prediction], wanted: Callable[[Prediction], bool], held: float) -> tuple[float, float]:
    own = [p for p in rows if wanted(p)]
    z = [p.z for p in (own if len(own) >= _LEAST_ROWS else rows)]
    low, high = quantile(z, (1 - held) / 2) or 0.0, quantile(z, (1 + held) / 2) or 0.0
    return rounded(max(-low, 0.1)), rounded(max(high, 0.1))
