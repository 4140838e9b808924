"""Holds threads to one logical processor of each core: two threads of one core share its arithmetic units, and one would wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from calc.measure.device.device import DeviceFacts
from calc.measure.device.host import first_of_each_core, usable_cpus

_TASKS = Path("/proc/self/task")


def pin(facts: DeviceFacts) -> Callable[[], None] | None:
    """Pin this process while a CPU is measured; what undoes it is returned, None where there is nothing to pin: no threads that share
    cores, a quota below the cores (its threads are fewer, so the system had better choose), or a system that cannot."""
    if facts.kind != "cpu" or not hasattr(os, "sched_setaffinity"):
        return None
    before = usable_cpus()
    chosen = first_of_each_core(before)
    if chosen == before or facts.threads < len(chosen):
        return None
    _hold(chosen)
    return lambda: _hold(before)


def _hold(cpus: set[int]) -> None:
    """Every thread by itself: a mask set for the process reaches only the threads that start later."""
    for task in _TASKS.iterdir():
        with suppress(OSError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), cpus)
