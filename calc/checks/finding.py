"""What a rule reports: a problem at a place of a file, and the finding that people and programs read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from calc.profiles.reader import Place

Severity = Literal["error", "warning"]
Value = float | int | str | None


@dataclass(frozen=True)
class Problem:
    """What one rule found in one subject.

    ``refuses`` are the figures that it holds for wrong (default: the one at ``place``), ``rests_on`` those that its arithmetic used.
    A problem whose figures an earlier rule has refused is not reported: one wrong number makes one finding.
    """

    place: Place
    message: str
    expected: Value = None
    found: Value = None
    ratio: float | None = None
    cause: str | None = None
    remedy: str | None = None
    severity: Severity | None = None  # None: that of the rule
    refuses: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """Names of the figures that this problem casts out."""
        return self.refuses or (dotted(self.place),)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its rule, file and position. Line and column count from 1."""

    rule: str
    severity: Severity
    file: str
    line: int
    column: int
    subject: str
    message: str
    expected: Value = None
    found: Value = None
    ratio: float | None = None
    cause: str | None = None
    remedy: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in the order of the fields."""
        return {name: getattr(self, name) for name in self.__slots__}


def dotted(place: Place) -> str:
    """``("peak_dense_tflops", "fp8")`` → ``peak_dense_tflops.fp8``."""
    return ".".join(str(key) for key in place)
