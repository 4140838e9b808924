"""Facts of the host processor that a measurement depends on: cores this process may use, cache, memory. Linux in full, others in part.

No host name, user name or path is ever read into a result.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 writes a number near 2^63 for "no limit"


@dataclass(frozen=True, slots=True)
class Host:
    """``threads`` = physical cores within the affinity mask, held to the processor quota of the container (None: no quota).
    ``cache_bytes`` is the last-level cache as reported, ``memory_bytes`` and ``free_bytes`` within the container's limit."""

    name: str
    logical_cpus: int
    physical_cores: int
    quota_cpus: float | None
    cache_bytes: int | None
    memory_bytes: int | None
    free_bytes: int | None

    @property
    def threads(self) -> int:
        """Threads to compute with: more than cores or quota only adds waiting."""
        limit = self.physical_cores if self.quota_cpus is None else math.floor(self.quota_cpus)
        return max(1, min(self.physical_cores, limit))


def read_host() -> Host:
    """The facts of this machine as seen from this process."""
    cpus = usable_cpus()
    total, free = memory()
    return Host(cpu_name(), len(cpus), physical_cores(cpus), quota_cpus(), last_level_cache(cpus), total, free)


def usable_cpus() -> set[int]:
    """Logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def physical_cores(cpus: set[int]) -> int:
    """Distinct cores among logical CPUs: two threads of one core share its arithmetic units."""
    if sys.platform == "darwin":
        return _sysctl_int("hw.physicalcpu") or len(cpus)
    cores = set()
    for cpu in cpus:
        siblings = _text(_CPU / f"cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings or str(cpu))
    return max(1, len(cores))


def quota_cpus(root: Path = _CGROUP, groups: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs' worth of time that the container grants, None without a limit (cgroup v2 cpu.max along the path, or v1)."""
    limits = []
    for folder in _cgroup_folders(root, groups):
        words = (_text(folder / "cpu.max") or "").split()
        if len(words) == 2 and words[0] != "max":
            limits.append(int(words[0]) / int(words[1]))
    quota, period = _text(root / "cpu/cpu.cfs_quota_us"), _text(root / "cpu/cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        limits.append(int(quota) / int(period))
    return min(limits, default=None)


def last_level_cache(cpus: set[int]) -> int | None:
    """Bytes of the largest-level cache of the first usable CPU, as the system reports it."""
    if sys.platform == "darwin":
        return _sysctl_int("hw.l3cachesize") or _sysctl_int("hw.perflevel0.l2cachesize") or _sysctl_int("hw.l2cachesize")
    best: tuple[int, int] | None = None
    for index in sorted((_CPU / f"cpu{min(cpus)}/cache").glob("index*")):
        level, size = _text(index / "level"), _text(index / "size")
        if level and size and _text(index / "type") != "Instruction":
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
            best = max(best or (0, 0), (int(level), int(size.rstrip("KMG")) * unit))
    return best[1] if best else None


def memory(root: Path = _CGROUP, groups: Path = Path("/proc/self/cgroup")) -> tuple[int | None, int | None]:
    """(total, free) bytes; free counts what can be had without swapping, and neither exceeds the container's limit."""
    total = free = None
    for line in (_text(Path("/proc/meminfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key == "MemTotal":
            total = int(value.split()[0]) * 1024
        elif key == "MemAvailable":
            free = int(value.split()[0]) * 1024
    if total is None and sys.platform == "darwin":
        total = _sysctl_int("hw.memsize")
        free = total // 2 if total else None  # no cheap reading of what can be reclaimed
    for folder in _cgroup_folders(root, groups):
        limit = _text(folder / "memory.max")
        used = _text(folder / "memory.current")
        if limit and limit != "max" and int(limit) < _UNLIMITED:
            total = min(total or int(limit), int(limit))
            free = min(free or total, max(0, int(limit) - int(used or 0)))
    return total, free


def cpu_name() -> str:
    """The processor's model name as the system gives it."""
    for line in (_text(Path("/proc/cpuinfo")) or "").splitlines():
        if line.lower().startswith(("model name", "hardware")):
            return " ".join(line.partition(":")[2].split())
    if sys.platform == "darwin":
        found = _sysctl("machdep.cpu.brand_string")
        if found:
            return found
    return platform.processor() or platform.machine() or "unknown processor"


def busy_with_others(cpus: int) -> float | None:
    """Load average of the last minute when it takes a noticeable share of the cores, else None."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        return None
    return load if load > 0.25 * cpus else None


def _cgroup_folders(root: Path, groups: Path) -> list[Path]:
    """The cgroup v2 folder of this process and its parents: every limit on the way holds."""
    folders = [root]
    for line in (_text(groups) or "").splitlines():
        if line.startswith("0::"):
            here = root
            for part in line[3:].strip("/").split("/"):
                if part and part != "..":
                    here = here / part
                    folders.append(here)
    return folders


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _sysctl(name: str) -> str | None:
    try:
        done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _sysctl_int(name: str) -> int | None:
    found = _sysctl(name)
    return int(found) if found and found.isdigit() else None
