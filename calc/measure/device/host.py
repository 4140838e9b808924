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
_CGROUP, _GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
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
    return max(1, len(first_of_each_core(cpus)))


def first_of_each_core(cpus: set[int], root: Path = _CPU) -> set[int]:
    """The lowest logical CPU of each core among those given; a CPU whose siblings nobody tells is a core of its own."""
    cores: dict[str, int] = {}
    for cpu in sorted(cpus):
        siblings = text(root / f"cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings or str(cpu), cpu)
    return set(cores.values())


def quota_cpus(root: Path = _CGROUP, groups: Path = _GROUPS) -> float | None:
    """CPUs' worth of time that the container grants, None without a limit (cgroup v2 cpu.max along the path, or v1's quota)."""
    limits = []
    for folder in cgroup_folders(root, groups):
        words = (text(folder / "cpu.max") or "").split()
        words = words or [text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        if len(words) == 2 and all(w.isdigit() and int(w) for w in words):  # "max" and -1 stand for no limit
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


def last_level_cache(cpus: set[int]) -> int | None:
    """Bytes of the largest-level cache of the first usable CPU, as the system reports it."""
    if sys.platform == "darwin":
        return _sysctl_int("hw.l3cachesize") or _sysctl_int("hw.perflevel0.l2cachesize") or _sysctl_int("hw.l2cachesize")
    best: tuple[int, int] | None = None
    for index in sorted((_CPU / f"cpu{min(cpus)}/cache").glob("index*")):
        level, size = text(index / "level"), text(index / "size")
        if level and size and text(index / "type") != "Instruction":
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
            best = max(best or (0, 0), (int(level), int(size.rstrip("KMG")) * unit))
    return best[1] if best else None


def memory(root: Path = _CGROUP, groups: Path = _GROUPS) -> tuple[int | None, int | None]:
    """(total, free) bytes; free counts what can be had without swapping, and neither exceeds the container's limit."""
    total = free = None
    for line in (text(Path("/proc/meminfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key == "MemTotal":
            total = int(value.split()[0]) * 1024
        elif key == "MemAvailable":
            free = int(value.split()[0]) * 1024
    if total is None and sys.platform == "darwin":
        total = _sysctl_int("hw.memsize")
        free = total // 2 if total else None  # no cheap reading of what can be reclaimed
    for folder in cgroup_folders(root, groups):
        for limit_name, used_name in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit, used = _whole(folder / limit_name), _whole(folder / used_name) or 0
            if limit is not None and limit < _UNLIMITED:
                total = min(total or limit, limit)
                free = min(free or total, max(0, limit - used))
    return total, free


def cpu_name() -> str:
    """The processor's model name as the system gives it."""
    for line in (text(Path("/proc/cpuinfo")) or "").splitlines():
        if line.lower().startswith(("model name", "hardware")):
            return " ".join(line.partition(":")[2].split())
    if sys.platform == "darwin":
        found = _sysctl("machdep.cpu.brand_string")
        if found:
            return found
    return platform.processor() or platform.machine() or "unknown processor"


def cgroup_folders(root: Path = _CGROUP, groups: Path = _GROUPS) -> list[Path]:
    """The control groups of this process and their parents (v2, and v1's of processor and memory): every limit on the way holds."""
    folders = [root, root / "cpu", root / "memory"]
    for line in (text(groups) or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", "", ""][:3]
        if controllers and not {"cpu", "memory"} & set(controllers.split(",")):
            continue
        here = root / controllers  # v2's line names no controller
        for part in ("", *path.strip("/").split("/")):
            if part != "..":
                here = here / part
                folders.append(here)
    return list(dict.fromkeys(folders))


def text(path: Path) -> str | None:
    """What a file of the system says, None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _whole(path: Path) -> int | None:
    found = text(path)
    return int(found) if found and found.isdigit() else None


def _sysctl(name: str) -> str | None:
    try:
        done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _sysctl_int(name: str) -> int | None:
    found = _sysctl(name)
    return int(found) if found and found.isdigit() else None
