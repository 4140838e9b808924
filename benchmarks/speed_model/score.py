"""Scores of predictions: errors, ranges that hold, and whether the faster of two devices is predicted faster."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks import statistics
from benchmarks.speed_model.case import Skipped
from benchmarks.speed_model.cross_validation import Prediction

#: Two devices are told apart where their measured times differ by more than this.
_TELLING = 0.15
_LEAST_GROUP = 5
Row = dict[str, Any]


def row(prediction: Prediction) -> Row:
    """A record of the scoreboard: times in seconds."""
    case = prediction.case
    return {
        "id": case.id,
        "kind": case.kind,
        "quantity": "time_s",
        "predicted": prediction.predicted_s,
        "low": prediction.low_s,
        "high": prediction.high_s,
        "reported": case.measured_s,
        "error": prediction.error,
        "floor": case.floor_s,
        "evidence": prediction.level,
    }


def summary(rows: Sequence[Row]) -> Row:
    """The common statistics, and the mean of the absolute errors."""
    errors = [abs(float(r["error"])) for r in rows]
    return {**statistics.summary(rows), "mape": sum(errors) / len(errors) if errors else None}


def by_group(predictions: Sequence[Prediction], rows: Sequence[Row]) -> list[Row]:
    """Statistics by engine and by device class within a kind, for groups of at least five."""
    labels: dict[str, Callable[[Prediction], str]] = {
        "engine": lambda p: str(p.case.record["engine"]),
        "device class": lambda p: str(p.case.setting.keys["class"]),
        "experts": lambda p: str(p.case.setting.keys.get("experts", "")),
    }
    found = []
    for label, key in labels.items():
        members: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for prediction, scored in zip(predictions, rows, strict=True):
            members[(prediction.case.kind, key(prediction))].append(scored)
        for (kind, name), held in sorted(members.items()):
            if name and len(held) >= _LEAST_GROUP:
                found.append({"kind": kind, label: name, **summary(held)})
    return found


_WORK = (
    "kind", "engine", "model", "quantization", "gpu_count", "tp", "ep", "split", "batch", "ubatch", "input_len", "output_len",
    "context_len", "kv_dtype",
)  # fmt: skip


def ranking(predictions: Iterable[Prediction], kinds: Sequence[str] = ("decode", "prefill")) -> dict[str, Row]:
    """Of two devices on the same work whose times differ by over 15 %: how often the faster one is predicted faster, by the model and
    by the floor alone."""
    work: dict[tuple[str, ...], list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        record = prediction.case.record
        asked = "flash" if "-fa1" in prediction.case.id else ""
        work[(*(str(record.get(field)) for field in _WORK), asked)].append(prediction)
    found: dict[str, Row] = {}
    for kind in kinds:
        pairs = model = floor = 0
        for key, held in work.items():
            if key[0] != kind:
                continue
            for one, two in itertools.combinations(held, 2):
                a, b = one.case, two.case
                if a.setting.hardware.id == b.setting.hardware.id or not _differ(a.measured_s, b.measured_s):
                    continue
                pairs += 1
                model += (one.predicted_s < two.predicted_s) == (a.measured_s < b.measured_s)
                floor += (a.floor_s < b.floor_s) == (a.measured_s < b.measured_s)
        found[kind] = {
            "pairs": pairs,
            "right": model / pairs if pairs else None,
            "right_by_floor": floor / pairs if pairs else None,
        }
    return found


def _differ(one: float, two: float) -> bool:
    return max(one, two) / min(one, two) > 1 + _TELLING


def beats_floor(predictions: Iterable[Prediction]) -> list[str]:
    """Records faster than their floor: a fault of profile, count or record."""
    return [p.case.id for p in predictions if p.case.measured_s < p.case.floor_s]


def board(predictions: Sequence[Prediction], skipped: Sequence[Skipped], suspects: Sequence[str]) -> Row:
    """The scoreboard: all that the command prints. Tenstorrent rows are predicted and grouped, but apart from ``overall``."""
    rows = [row(p) for p in predictions]
    counted = [(p, r) for p, r in zip(predictions, rows, strict=True) if p.case.is_scored]
    kinds = list(dict.fromkeys(p.case.kind for p, _ in counted))
    return {
        "n": len(predictions) + len(skipped) + len(suspects),
        "scored": len(counted),
        "skipped": [{"id": s.record["id"], "why": s.why} for s in skipped] + [{"id": i, "why": "marked suspect"} for i in suspects],
        "overall": {kind: summary([r for p, r in counted if p.case.kind == kind]) for kind in kinds},
        "by_group": by_group(predictions, rows),
        "ranking": ranking(p for p, _ in counted),
        "beats_floor": beats_floor(p for p, _ in counted),
        "records": rows,
    }
