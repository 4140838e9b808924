"""Watches a host processor: who else had it, how fast it runs, how warm it is. Linux tells; other systems leave it unknown."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from calc.measure.device.host import cgroup_folders, text, usable_cpus
from calc.measure.device.monitor import Reading

_HW_THERMAL = 0x40  # NVML's bit for the same reason
_MOST_CLOCKS = 8  # processors whose clock is read: a file each, and a look must stay short against a sample
_INTERVAL_S = 0.1  # between looks at clock and temperature, which change slowly and cost more than the rest


class HostMonitor:
    """Readings of a CPU.

    Linux tells how long the threads of this process waited for a processor (schedstat: the second figure, in nanoseconds), and the
    control group how long it was held back by its quota (cpu.stat). A sample meanwhile measures the neighbours or the quota. Clocks
    come from cpufreq, temperatures from the thermal zones; a rising count of thermal throttling makes a reading unwell.
    """

    slow = False

    def __init__(
        self,
        tasks: Path,
        cpus: Path = Path("/sys/devices/system/cpu"),
        zones: Path = Path("/sys/class/thermal"),
        groups: list[Path] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks, self._now = str(tasks), now
        here = sorted(usable_cpus())[:_MOST_CLOCKS]
        self._clocks = [p for cpu in here if (p := cpus / f"cpu{cpu}/cpufreq/scaling_cur_freq").is_file()]
        self._throttled = [p for cpu in here if (p := cpus / f"cpu{cpu}/thermal_throttle/package_throttle_count").is_file()]
        self._zones = [z / "temp" for z in sorted(zones.glob("thermal_zone*")) if _is_processor(text(z / "type"))]
        self._groups = [p for g in (cgroup_folders() if groups is None else groups) if (p := g / "cpu.stat").is_file()]
        self._last = Reading()
        self._looked_at = -_INTERVAL_S
        self._throttle_count = self._throttles()
        sources = (("schedstat", True), ("cpu.stat", self._groups), ("cpufreq", self._clocks), ("thermal", self._zones))
        self.source = "+".join(name for name, found in sources if found)

    def read(self) -> Reading:
        """Time waited so far, summed over the threads that live now; clock and temperature of at most 100 ms ago."""
        if self._now() - self._looked_at >= _INTERVAL_S:
            self._looked_at = self._now()
            self._last = self._slowly()
        last = self._last
        return Reading(
            sm_clock_hz=last.sm_clock_hz, temperature_c=last.temperature_c, reasons=last.reasons, waited_s=self._waited_s()
        )

    def _waited_s(self) -> float:
        total = 0
        for task in os.listdir(self._tasks):
            try:
                with open(f"{self._tasks}/{task}/schedstat", "rb") as found:
                    total += int(found.read().split()[1])
            except (OSError, IndexError, ValueError):  # a thread that has just ended
                continue
        return total / 1e9 + sum(_held_back_s(g) for g in self._groups)

    def _slowly(self) -> Reading:
        clocks = [int(t) * 1e3 for p in self._clocks if (t := text(p)) and t.isdigit()]
        warmth = [int(t) / 1e3 for p in self._zones if (t := text(p)) and t.lstrip("-").isdigit()]
        count, before = self._throttles(), self._throttle_count
        self._throttle_count = count
        return Reading(
            sm_clock_hz=sum(clocks) / len(clocks) if clocks else None,
            temperature_c=max(warmth, default=None),
            reasons=None if count is None or before is None else _HW_THERMAL if count > before else 0,
        )

    def _throttles(self) -> int | None:
        found = [int(t) for p in self._throttled if (t := text(p)) and t.isdigit()]
        return max(found, default=None)

    def close(self) -> None:
        """Nothing to let go of."""


def open_host_monitor() -> HostMonitor | None:
    """Readings of this machine's processor, None where the system tells nothing."""
    tasks = Path("/proc/self/task")
    readable = sys.platform == "linux" and (tasks / str(os.getpid()) / "schedstat").is_file()
    return HostMonitor(tasks) if readable else None


def _held_back_s(stat: Path) -> float:
    """Seconds that a control group's quota has held its threads back: throttled_usec (v2) or throttled_time in nanoseconds (v1)."""
    for line in (text(stat) or "").splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit() and name in ("throttled_usec", "throttled_time"):
            return int(value) * (1e-6 if name == "throttled_usec" else 1e-9)
    return 0.0


def _is_processor(zone: str | None) -> bool:
    """Whether a thermal zone is the processor's: Intel's package, Arm's and others' cpu zones."""
    return zone is not None and (zone == "x86_pkg_temp" or zone.lower().startswith("cpu"))
