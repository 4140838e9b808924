"""What a measurement tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaseProgress:
    """A case after its visit in a round (counted from 1): time and 95 % interval over its rounds so far, status, and the seconds that
    the run will still take."""

    case_id: str
    round: int
    rounds: int
    time_s: float
    interval_s: tuple[float, float] | None
    status: str
    left_s: float


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One step of a run: ``kind`` is device, dtype, plan, ceilings, prepare, case, round, warning or saved; ``done`` of ``total`` where a
    count makes sense, ``case`` for a case. As text it is the message, ready to be printed."""

    kind: str
    message: str
    done: int | None = None
    total: int | None = None
    case: CaseProgress | None = None

    def __str__(self) -> str:
        return self.message


Progress = Callable[[ProgressEvent], None]


def silent(event: ProgressEvent) -> None:
    """Progress that nobody reads."""
