"""What the local device is called: torch tells when installed, else NVML, else the system's name of the processor."""

from __future__ import annotations

from dataclasses import dataclass

from calc.measure.device import nvml
from calc.measure.device.host import read_host
from calc.measure.kernels.torch_module import find_torch


@dataclass(frozen=True, slots=True)
class LocalDevice:
    """``name`` is what hardware profiles carry as name or alias; ``source`` is torch, nvml or system. Memory in bytes as the driver
    reports it, None where unknown. ``count`` of equal devices."""

    kind: str
    name: str
    memory_bytes: int | None
    count: int
    source: str
    driver: str | None = None
    torch_version: str | None = None

    @property
    def description(self) -> str:
        """One line for people."""
        several = f"{self.count} x " if self.count > 1 else ""
        return f"{several}{self.name} ({self.kind}, told by {self.source})"


def detect_local() -> LocalDevice:
    """The device that ``local`` stands for: a CUDA device where there is one, else the processor."""
    torch = find_torch()
    version = str(torch.__version__) if torch is not None else None
    if torch is not None and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        driver = _nvml_driver()
        return LocalDevice("cuda", properties.name, properties.total_memory, torch.cuda.device_count(), "torch", driver, version)
    found = _nvml_device(version)
    if found is not None:
        return found
    host = read_host()
    return LocalDevice("cpu", host.name, host.memory_bytes, 1, "system", None, version)


def _nvml_device(torch_version: str | None) -> LocalDevice | None:
    library = nvml.open_nvml()
    if library is None:
        return None
    try:
        count = library.nvmlDeviceGetCount()
        if not count:
            return None
        handle = library.nvmlDeviceGetHandleByIndex(0)
        memory = library.nvmlDeviceGetMemoryInfo(handle).total
        name = nvml.decoded(library.nvmlDeviceGetName(handle))
        return LocalDevice("cuda", name, int(memory), count, "nvml", nvml.driver(library), torch_version)
    except library.NVMLError:
        return None
    finally:
        library.nvmlShutdown()


def _nvml_driver() -> str | None:
    library = nvml.open_nvml()
    if library is None:
        return None
    try:
        return nvml.driver(library)
    finally:
        library.nvmlShutdown()
