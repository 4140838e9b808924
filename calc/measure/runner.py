"""What the measurement asks of a device. The torch runner implements it; tests drive the whole chain with a simulated one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from calc.measure.cases.operators import Case


class OutOfMemory(Exception):
    """A case does not fit: it fails, the run goes on."""


class NotAvailable(Exception):
    """This device or this torch has no such kernel: the case fails by name, the run goes on."""


class Clock(Protocol):
    """Time for budgets and pauses, in seconds."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The monotonic clock of this machine."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Setup:
    """How a case is timed: ``timer`` wall, graph or events; ``launch`` eager or graph; ``cache`` cold (operands come from memory),
    partly, hot (they fit in cache) or activations (nothing to rotate); ``copies`` of the rotated operand; ``launches`` kernels that
    one call starts; ``kernel`` in words."""

    timer: str
    launch: str
    cache: str
    copies: int
    launches: int
    kernel: str
    held_bytes: int = 0


class Timed(Protocol):
    """A case prepared on a device."""

    @property
    def setup(self) -> Setup:
        """How the case is timed."""

    def begin(self) -> None:
        """Before the samples of a round: pick up the rotation where the last case left it."""

    def repeats_for(self, call_s: float) -> int:
        """Calls per sample, so that a sample is long against the timer's resolution."""

    def sample(self, repeats: int, count: int) -> list[float]:
        """``count`` samples of ``repeats`` calls each, in seconds per call."""

    def end(self) -> None:
        """After the samples of a round: free what a timer holds."""

    def check(self) -> float:
        """Largest deviation of a slice of the result from a float32 reference, as a share of the tolerance: above 1 is wrong."""

    def close(self) -> None:
        """Free everything."""


class Runner(Protocol):
    """A device that can time cases."""

    def prepare(self, case: Case) -> Timed:
        """Allocate and fill operands. Raises OutOfMemory or NotAvailable."""

    def close(self) -> None:
        """Free everything and put global settings back."""
