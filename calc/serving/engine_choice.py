"""Which engine serves a device: the usual one where none is asked for, and none on a device that it does not run on."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import UsageError
from calc.memory.engines import EngineLaw, engine
from calc.profiles.hardware import HardwareProfile


@dataclass(frozen=True)
class _Reach:
    """Devices that an engine's documentation names; ``said`` is that sentence with its source."""

    vendors: tuple[str, ...]
    said: str
    least_compute_capability: float = 0.0
    on_cpu: bool = False

    def holds(self, device: HardwareProfile) -> bool:
        if device.device_class == "cpu":
            return self.on_cpu
        capability = float(device.compute_capability or "inf")
        return device.vendor.lower() in self.vendors and capability >= self.least_compute_capability


#: Engines whose documentation says where they run; all others are taken to run where the types allow it.
_REACH = {
    "mlx": _Reach(
        ("apple", "nvidia"),
        "Apple silicon, NVIDIA GPUs from compute capability 7.5 and CPUs (ml-explore.github.io/mlx, Build and Install)",
        7.5,
        on_cpu=True,
    ),
    "exllamav2": _Reach(("nvidia", "amd"), "CUDA and ROCm GPUs (wheels of github.com/turboderp-org/exllamav2 0.3.2)"),
    "gpt-fast": _Reach(("nvidia", "amd"), "NVIDIA and AMD GPUs (README of github.com/pytorch-labs/gpt-fast)"),
}


#: Cache formats that engines offer beside the compute type, in the order of what they give up.
CACHE_FORMATS = {
    "vllm": ("fp8",),
    "sglang": ("fp8",),
    "tensorrt-llm": ("fp8", "nvfp4"),
    "llama.cpp": ("q8_0", "q5_1", "q4_0"),
    "ideal": ("fp8", "int4-per-token-head"),
}


def chosen(asked: str | None, device: HardwareProfile) -> EngineLaw:
    """The engine asked for, else the usual one of the device. Raises UsageError where it does not run on the device."""
    law = engine(asked or ("llama.cpp" if device.vendor.lower() == "apple" else "vllm"))
    reach = _REACH.get(law.NAME)
    if reach is not None and not reach.holds(device):
        raise UsageError(f"{law.NAME} does not run on {device.id}", f"it runs on {reach.said}; choose another with --engine")
    return law
