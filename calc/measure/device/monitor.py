"""What a look at the device tells: clock, power, temperature, and why the clock is held back. Unknown is None, never "fine"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from calc.measure.statistics import median

#: Bits of NVML's clock event reasons (nvml.h, nvmlClocksEventReason*) that say the machine is unwell: samples under them are dropped.
UNWELL = {0x08: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake"}
IDLE = 0x01  # the host is too slow to feed the device
POWER_LIMITED = 0x04  # normal for large matrix products at full load: kept and labelled
CLOCKS_SET = {0x02: "application clocks", 0x10: "sync boost", 0x100: "display clock"}
WAITED_SHARE = 0.02  # of a sample's time: threads that waited longer for a processor were preempted


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the device; a field is None where it cannot be read."""

    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None  # a counter: only differences mean something
    reasons: int | None = None
    other_processes: int | None = None
    waited_s: float | None = None  # a counter: threads of this process were ready and had no processor

    @property
    def unwell(self) -> str | None:
        """Why samples taken now cannot be used, or None."""
        return next((name for bit, name in UNWELL.items() if (self.reasons or 0) & bit), None)

    @property
    def clocks_set(self) -> list[str]:
        """Settings that hold the clock where somebody put it."""
        return [name for bit, name in CLOCKS_SET.items() if (self.reasons or 0) & bit]

    @property
    def known(self) -> list[str]:
        """The fields that could be read."""
        return [f.name for f in fields(self) if getattr(self, f.name) is not None]


def waited_s(before: Reading, after: Reading) -> float:
    """Seconds that this process waited for a processor between two readings; 0 where nobody tells."""
    return 0.0 if before.waited_s is None or after.waited_s is None else after.waited_s - before.waited_s


def merged(looks: Sequence[Reading]) -> Reading:
    """Several looks as one: medians of clocks and power, the highest temperature, the latest of everything else. A reason counts
    when any look found it, except idle, which must hold in all: a device is idle for a moment between any two batches."""
    reasons = [r.reasons for r in looks if r.reasons is not None]
    joined = 0
    for found in reasons:
        joined |= found
    if not all(r & IDLE for r in reasons):
        joined &= ~IDLE
    return Reading(
        sm_clock_hz=_middle(looks, "sm_clock_hz"),
        memory_clock_hz=_middle(looks, "memory_clock_hz"),
        temperature_c=max(_known(looks, "temperature_c"), default=None),
        power_w=_middle(looks, "power_w"),
        power_limit_w=_latest(looks, "power_limit_w"),
        energy_j=_latest(looks, "energy_j"),
        reasons=joined if reasons else None,
        other_processes=_latest(looks, "other_processes"),
        waited_s=_latest(looks, "waited_s"),
    )


class Monitor(Protocol):
    """A source of readings. ``source`` names it in the run file. ``slow``: a look takes so long that it is taken before and after a
    case, not between its samples."""

    source: str
    slow: bool

    def read(self) -> Reading:
        """The device now, or since the last look where something watches all the time."""

    def close(self) -> None:
        """Let go of the source."""


class Unmonitored:
    """No source: readings say nothing."""

    source = "unmonitored"
    slow = False

    def read(self) -> Reading:
        """All unknown."""
        return Reading()

    def close(self) -> None:
        """Nothing to let go of."""


def scaled(value: Any, factor: float) -> float | None:
    """A number in SI units, None for an unknown one."""
    return None if value is None else float(value) * factor


def _known(looks: Sequence[Reading], name: str) -> list[Any]:
    return [value for look in looks if (value := getattr(look, name)) is not None]


def _middle(looks: Sequence[Reading], name: str) -> float | None:
    found = _known(looks, name)
    return median(found) if found else None


def _latest(looks: Sequence[Reading], name: str) -> Any:
    found = _known(looks, name)
    return found[-1] if found else None
