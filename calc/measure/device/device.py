"""Which device is measured, and the facts of it that the method needs: cache to rotate over, memory to stay within, threads to use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calc.errors import MeasurementError, UsageError
from calc.measure.device.host import Host, read_host

KINDS = ("cpu", "cuda", "mps", "xpu")
#: Assumed last-level cache where the device does not tell: larger than that of any current GPU, so that rotation stays safe.
ASSUMED_CACHE_BYTES = 256 << 20
MEMORY_SHARE = 4  # operands and activations each take at most this part of free memory


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device as the runtime names it. ``cache_reported`` False: the cache size is an assumption, and the run says so."""

    kind: str
    index: int
    name: str
    memory_bytes: int | None
    free_bytes: int
    cache_bytes: int
    cache_reported: bool
    threads: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def torch_name(self) -> str:
        """The name torch knows the device by."""
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"


def available(torch: Any) -> list[str]:
    """Kinds of devices that torch can use here."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found.append("cuda")
    if getattr(torch.backends, "mps", None) and torch.backends.mps.is_available():
        found.append("mps")
    if getattr(torch, "xpu", None) and torch.xpu.is_available():
        found.append("xpu")
    return found


def named(wanted: str) -> tuple[str, int]:
    """(kind, index) that a device's name says, present or not. Raises UsageError for a name that is none."""
    kind, _, number = wanted.lower().partition(":")
    if kind not in KINDS or (number and not (number.isascii() and number.isdigit() and len(number) < 6)):
        raise UsageError(f"unknown device {wanted!r}", "one of " + ", ".join(KINDS) + ", with a number: cuda:1")
    return kind, int(number or 0)


def choose(torch: Any, wanted: str | None) -> tuple[str, int]:
    """(kind, index) of the device to measure: the wanted one, by default a CUDA device where there is one.

    Raises UsageError for a name that is no device and MeasurementError for a kind that this machine lacks.
    """
    here = available(torch)
    if wanted is None:
        return ("cuda" if "cuda" in here else "cpu"), 0
    kind, index = named(wanted)
    listing = "this machine has: " + ", ".join(here)
    if kind not in here:
        raise MeasurementError(f"there is no {kind} device here (torch {torch.__version__})", listing)
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if index >= count:
        raise UsageError(f"unknown device {wanted!r}", f"{kind} devices here: 0 to {count - 1}")
    return kind, index


def describe(torch: Any, kind: str, index: int) -> DeviceFacts:
    """Facts of a device that ``choose`` gave."""
    host = read_host()
    return _cuda(torch, index, host) if kind == "cuda" else _host_memory(torch, kind, host)


def _cuda(torch: Any, index: int, host: Host) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    cache = getattr(properties, "L2_cache_size", 0)
    details = {
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "l2_cache_bytes": cache or None,
    }
    return DeviceFacts(
        "cuda", index, properties.name, total, free, cache or ASSUMED_CACHE_BYTES, bool(cache), host.threads, details
    )


def _host_memory(torch: Any, kind: str, host: Host) -> DeviceFacts:
    """A CPU, or an accelerator that shares its memory and whose cache torch does not tell."""
    cache = host.cache_bytes if kind == "cpu" else None
    name = host.name if kind == "cpu" else f"{kind} of {host.name}"
    details = {"logical_cpus": host.logical_cpus, "physical_cores": host.physical_cores, "quota_cpus": host.quota_cpus}
    return DeviceFacts(
        kind, 0, name, host.memory_bytes, host.free_bytes or (1 << 30), cache or ASSUMED_CACHE_BYTES, cache is not None,
        host.threads, details,
    )  # fmt: skip
