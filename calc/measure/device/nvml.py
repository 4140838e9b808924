"""NVIDIA's management library through its Python module ``pynvml`` (optional, never a dependency). Nothing here changes a setting."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from calc.measure.device.monitor import Reading, scaled


class NvmlMonitor:
    """Looks at one device."""

    source = "nvml"
    slow = False

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
            sm_clock_hz=scaled(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
            memory_clock_hz=scaled(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
            temperature_c=scaled(ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU), 1),
            power_w=scaled(ask("nvmlDeviceGetPowerUsage"), 1e-3),
            power_limit_w=scaled(ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
            energy_j=scaled(ask("nvmlDeviceGetTotalEnergyConsumption"), 1e-3),
            reasons=None if found is None else int(found),
            # One is this process: it is listed under the host's number, which a container does not know.
            other_processes=None if processes is None else max(0, len(processes) - 1),
        )

    def _ask(self, name: str, *arguments: Any) -> Any:
        return ask(self._nvml, name, self._handle, *arguments)

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


def open_monitor(uuid: str | None, index: int) -> NvmlMonitor | None:
    """Looks at the device with ``uuid``, whatever CUDA numbers it, else at number ``index``; None where NVML is missing or refuses."""
    nvml = open_nvml()
    if nvml is None:
        return None
    handle = _handle(nvml, uuid, index)
    if handle is None:
        nvml.nvmlShutdown()
        return None
    return NvmlMonitor(nvml, handle)


def device_facts(uuid: str | None, index: int) -> dict[str, Any]:
    """What a run record says of the device beyond torch: driver, limits of power and clock, ECC, partition mode, bus. Empty without
    NVML; null for what the driver does not tell."""
    nvml = open_nvml()
    if nvml is None:
        return {}
    try:
        handle = _handle(nvml, uuid, index)
        if handle is None:
            return {}
        modes = {name: ask(nvml, f"nvmlDeviceGet{what}Mode", handle) for name, what in (("ecc", "Ecc"), ("mig", "Mig"))}
        return {
            "driver": driver(nvml),
            "power_limit_w": scaled(ask(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle), 1e-3),
            "power_limit_default_w": scaled(ask(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle), 1e-3),
            "sm_clock_max_hz": scaled(ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM), 1e6),
            "memory_clock_max_hz": scaled(ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM), 1e6),
            # Both modes come as [current, pending].
            **{name: None if mode is None else bool(mode[0]) for name, mode in modes.items()},
            "pcie_generation": ask(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "pcie_lanes": ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
        }
    finally:
        nvml.nvmlShutdown()


def driver(nvml: Any) -> str | None:
    """Version of the NVIDIA driver, None where NVML does not tell."""
    try:
        return decoded(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return None


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """What a function of the module answers; None where the module, the driver or the part lacks it."""
    try:
        return getattr(nvml, name)(*arguments)
    except (AttributeError, nvml.NVMLError):
        return None


def decoded(text: Any) -> str:
    """Older releases of the module return bytes."""
    return text.decode() if isinstance(text, bytes) else str(text)


def _handle(nvml: Any, uuid: str | None, index: int) -> Any | None:
    try:
        if uuid:
            return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
        return nvml.nvmlDeviceGetHandleByIndex(index)
    except (nvml.NVMLError, TypeError, UnicodeError):
        return None
