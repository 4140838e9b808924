"""Watches the device beside the samples: clock, power, temperature, and why the clock is held back. Unknown is None, never "fine"."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

#: Bits of NVML's clock event reasons that say the machine is unwell: samples taken under them are dropped.
UNWELL = {0x08: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake"}
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
    energy_j: float | None = None
    reasons: int | None = None
    other_processes: int | None = None
    waited_s: float | None = None  # since the start of this process: its threads were ready and had no processor

    @property
    def unwell(self) -> str | None:
        """Why samples taken now cannot be used, or None."""
        return next((name for bit, name in UNWELL.items() if (self.reasons or 0) & bit), None)


def waited_s(before: Reading, after: Reading) -> float:
    """Seconds that this process waited for a processor between two readings; 0 where nobody tells."""
    return 0.0 if before.waited_s is None or after.waited_s is None else after.waited_s - before.waited_s


class Monitor(Protocol):
    """A source of readings. ``source`` names it in the run file."""

    source: str

    def read(self) -> Reading:
        """The device now."""

    def close(self) -> None:
        """Let go of the source."""


class Unmonitored:
    """No source: readings say nothing."""

    source = "unmonitored"

    def read(self) -> Reading:
        """All unknown."""
        return Reading()

    def close(self) -> None:
        """Nothing to let go of."""


class SchedulerMonitor:
    """Linux tells how long the threads of this process waited for a processor (schedstat: the second figure, in nanoseconds). A
    sample during which they waited measures the neighbours."""

    source = "schedstat"

    def __init__(self, tasks: Path) -> None:
        self._tasks = str(tasks)

    def read(self) -> Reading:
        """Time waited so far, summed over the threads that live now."""
        total = 0
        for task in os.listdir(self._tasks):
            try:
                with open(f"{self._tasks}/{task}/schedstat", "rb") as found:
                    total += int(found.read().split()[1])
            except (OSError, IndexError, ValueError):  # a thread that has just ended
                continue
        return Reading(waited_s=total / 1e9)

    def close(self) -> None:
        """Nothing to let go of."""


class NvmlMonitor:
    """NVIDIA's management library through its Python module (optional). Never changes a setting."""

    source = "nvml"

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def read(self) -> Reading:
        """Clock, power and reasons; what this part or driver does not offer stays None."""
        nvml, ask = self._nvml, self._ask
        # Renamed in newer releases of the module; the older name is kept as an alias in most.
        reasons = "nvmlDeviceGetCurrentClocksEventReasons"
        if not hasattr(nvml, reasons):
            reasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
        found = ask(reasons)
        processes = ask("nvmlDeviceGetComputeRunningProcesses")
        return Reading(
            sm_clock_hz=_scaled(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
            memory_clock_hz=_scaled(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
            temperature_c=_scaled(ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU), 1),
            power_w=_scaled(ask("nvmlDeviceGetPowerUsage"), 1e-3),
            power_limit_w=_scaled(ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
            energy_j=_scaled(ask("nvmlDeviceGetTotalEnergyConsumption"), 1e-3),
            reasons=None if found is None else int(found),
            other_processes=None if processes is None else max(0, len(processes) - 1),
        )

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None

    def close(self) -> None:
        """Release the library."""
        self._nvml.nvmlShutdown()


def open_nvml() -> Any | None:
    """The initialised NVML module, or None where it or the driver is missing."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def open_monitor(kind: str, uuid: str | None = None, index: int = 0) -> Monitor:
    """The best source for a device: the scheduler for a CPU on Linux, NVML for CUDA where installed, else none. ``uuid`` finds the
    device whatever CUDA numbers it."""
    if kind == "cpu":
        tasks = Path("/proc/self/task")
        readable = sys.platform == "linux" and (tasks / str(os.getpid()) / "schedstat").is_file()
        return SchedulerMonitor(tasks) if readable else Unmonitored()
    nvml = open_nvml() if kind == "cuda" else None
    if nvml is None:
        return Unmonitored()
    try:
        if uuid:
            name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            return NvmlMonitor(nvml, nvml.nvmlDeviceGetHandleByUUID(name))
        return NvmlMonitor(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
    except (nvml.NVMLError, TypeError, UnicodeError):
        nvml.nvmlShutdown()
        return Unmonitored()


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor
