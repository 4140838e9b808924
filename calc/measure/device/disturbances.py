"""What disturbs a run as a whole: a low priority, a quota, other load, others on the device. Such a run is called noisy, and why."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from calc.measure.device.device import DeviceFacts
from calc.measure.device.monitor import Reading
from calc.measure.records import Notice

#: Notices that make a run noisy.
NOISY = ("W_NICE", "W_QUOTA", "W_BUSY", "W_SHARED_DEVICE", "W_CONTENDED")
_LOAD_SHARE = 0.25  # of the threads: below it the load is that of a system at rest


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The host before a run: priority (0 is normal, above it yields to others), processors granted by a container (None: no quota)
    of those there are, threads used, and the load average of the last minute (None where the system does not tell)."""

    niceness: int
    quota_cpus: float | None
    logical_cpus: int
    threads: int
    load: float | None


def look(facts: DeviceFacts) -> Surroundings:
    """The surroundings of this process now."""
    try:
        load: float | None = os.getloadavg()[0]
    except (OSError, AttributeError):
        load = None
    niceness = os.nice(0) if hasattr(os, "nice") else 0
    return Surroundings(niceness, facts.details.get("quota_cpus"), facts.details.get("logical_cpus", 1), facts.threads, load)


def host_notices(here: Surroundings) -> list[Notice]:
    """What the surroundings do to times of a CPU: what was seen, what it causes, what helps."""
    found = []
    if here.niceness > 0:
        message = f"this process runs at nice {here.niceness}, so any other process goes before it; start it without nice"
        found.append(Notice("W_NICE", message))
    if here.quota_cpus is not None and here.quota_cpus < here.logical_cpus:
        message = (
            f"the container grants the time of {here.quota_cpus:g} of {here.logical_cpus} processors, and holds back all threads "
            f"({here.threads} are used) when it is spent; lift the quota, or pin to whole processors instead"
        )
        found.append(Notice("W_QUOTA", message))
    if here.load is not None and here.load > _LOAD_SHARE * here.threads:
        message = (
            f"load average {here.load:.1f} on {here.threads} threads before the start: stop other jobs, or repeat when it is quiet"
        )
        found.append(Notice("W_BUSY", message))
    return found


def steadier(kind: str) -> str:
    """What the operator of a machine could do before a run; roofcast itself sets nothing."""
    if kind == "cuda":
        return "steadier with other jobs stopped and, by an administrator, the clock locked; no setting is changed here"
    return "steadier with other jobs stopped; no setting is changed here"


def device_notices(reading: Reading) -> list[Notice]:
    """What a first look at an accelerator shows: others on it, and clocks that somebody has set."""
    found = []
    if reading.other_processes:
        message = f"{reading.other_processes} other process(es) compute on this device; stop them, or choose another --device"
        found.append(Notice("W_SHARED_DEVICE", message))
    if reading.clocks_set:
        message = f"the clock is held by {', '.join(reading.clocks_set)}: times are those of this setting, which is left as it is"
        found.append(Notice("W_CLOCKS_SET", message))
    return found


def noisy_because(notices: Iterable[Notice]) -> tuple[str, ...]:
    """Why a run is noisy; empty for a quiet one."""
    return tuple(n.message for n in notices if n.code in NOISY)
