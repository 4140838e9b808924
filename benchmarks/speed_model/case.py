"""One observation as the fit sees it: a measured time, the terms of its configuration, and the groups that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from calc.timing.calibrated import Calibrated, Effects

NOT_SCORED_ENGINES = ("tt-metal",)


class Keyed(Protocol):
    """What effects look up: keys by level, covariates of slopes."""

    @property
    def keys(self) -> dict[str, str]:
        """Level → key."""
        ...

    @property
    def slopes(self) -> dict[str, float]:
        """Covariate → value."""
        ...


@dataclass(frozen=True)
class Case:
    """``sizes`` in seconds by term; ``kind`` as in the record; ``composition`` names an effect on the whole sum (serving).

    ``groups``: the cell, device, model and engine that cross-validation leaves out. ``noise`` gives the relative deviation that no
    effect explains, under given effects.
    """

    record: dict[str, Any]
    kind: str
    measured_s: float
    floor_s: float
    sizes: dict[str, float]
    setting: Any
    groups: dict[str, str]
    composition: str = ""
    noise: Callable[[Calibrated], float] = field(default=lambda _: 0.0)

    @property
    def id(self) -> str:
        """The record's id."""
        return str(self.record["id"])

    @property
    def is_suspect(self) -> bool:
        """Whether the record's author doubts it."""
        return bool(self.record.get("suspect"))

    @property
    def is_scored(self) -> bool:
        """Whether the record counts in fits and scores."""
        return not self.is_suspect and self.record["engine"] not in NOT_SCORED_ENGINES

    def model(self, effects: Effects) -> Calibrated:
        """The calibrated model of this case's setting."""
        return Calibrated(effects, self.setting)


@dataclass(frozen=True)
class Skipped:
    """A record that is not predicted, and why."""

    record: dict[str, Any]
    why: str


class SkipError(Exception):
    """Raised while a case is built: the record lacks something."""


def groups(record: dict[str, Any], device_id: str, model_id: str) -> dict[str, str]:
    """Names of the groups of a record. A cell is one configuration but for lengths and batch."""
    cell = (
        record["kind"],
        record["engine"],
        record["gpu"],
        record.get("gpu_count"),
        record.get("model"),
        record.get("quantization"),
    )
    return {
        "cell": " | ".join(map(str, cell)),
        "device": device_id,
        "model": model_id,
        "engine": str(record["engine"]),
    }
