"""What a start-up log or a record says of models and devices, as the library knows them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from calc.errors import UnknownNameError, UsageError
from calc.memory.engines.logs import StartUpLog
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.units import GIB


def checkpoint_format(model: ModelProfile, form: str | None) -> str | None:
    """The format to ask for when an engine names a quantisation: None where the checkpoint stores it anyway, with its exceptions."""
    if form is None:
        return None
    stored = {model.storage.dtype, *model.storage.roles.values()}
    return None if any(form.split("-")[0] == s.split("-")[0] for s in stored) else form


def device_of_memory(memory_gib: float) -> HardwareProfile:
    """A device of which only the memory that the framework reports is known."""
    data = {
        "id": "unlisted-device",
        "name": "unlisted device",
        "vendor": "unlisted",
        "class": "datacenter_gpu",
        "unit_of_account": "one",
        "memory_capacity_gb": memory_gib,
        "memory_framework_total_mib": memory_gib * 1024,
        "memory_bandwidth_gb_per_s": None,
        "peak_dense_tflops": {},
    }
    return msgspec.convert(data, HardwareProfile)


def device_of(log: StartUpLog, name: str | None, load: Callable[[str], Loaded[HardwareProfile]]) -> Loaded[HardwareProfile]:
    """The device by its name; where the log names none, or one that is not known, a stand-in with the memory that it prints."""
    memory = log.value("gpu_memory") or log.value("free_before")
    if name is not None:
        try:
            return load(name)
        except UnknownNameError:
            if memory is None or name != log.settings.get("hardware"):
                raise
    if memory is None:
        raise UsageError("the log names no device and prints no total memory", "say it: roofcast reconcile LOG MODEL HARDWARE")
    profile = device_of_memory(memory.value / GIB)
    notice = f"the log names no known device: a stand-in with its {memory.value / GIB:.2f} GiB is used"
    return Loaded(profile, "hardware", profile.id, None, "", (notice,))
