"""Which source of readings a device has: the vendor's library, its command-line tool, the system, or none."""

from __future__ import annotations

from calc.measure.device import nvml
from calc.measure.device.command_monitor import open_command
from calc.measure.device.host_monitor import open_host_monitor
from calc.measure.device.monitor import Monitor, Unmonitored
from calc.measure.device.watcher import Watcher


def open_monitor(kind: str, uuid: str | None = None, index: int = 0, *, amd: bool = False) -> Monitor:
    """The best source for a device: NVML in a thread for CUDA, the vendor's tool around each case where the library is missing
    (``amd``: this torch is built for ROCm, which calls its devices cuda too), the system for a CPU, else none."""
    if kind == "cpu":
        return open_host_monitor() or Unmonitored()
    if kind != "cuda":
        return Unmonitored()
    library = None if amd else nvml.open_monitor(uuid, index)
    if library is not None:
        return Watcher(library)
    return open_command("amd" if amd else "nvidia", uuid, index) or Unmonitored()
