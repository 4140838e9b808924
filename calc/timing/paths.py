"""Which type an engine's matrix kernels really run in: the peak that counts is that of the path, not that of the weights.

Most engines multiply 16-bit activations with fp32 accumulation, and quantised weights are unpacked to 16 bit inside the kernel.
llama.cpp is the exception: its CUDA, HIP and Vulkan tile kernels round activations to int8 for quantised weights (since June 2024, pull
request 7676; before, weights were unpacked to fp16 in memory first), and its fp16 products accumulate in fp16, which GeForce cards do at
twice the rate.
"""

from __future__ import annotations

from collections.abc import Mapping

from calc.operators.operator import Operator
from calc.profiles.hardware import HardwareProfile

SIXTEEN_BIT = ("bf16", "fp16")
_PLAIN_WEIGHTS = ("", "bf16", "fp16", "fp32")


def engine_paths(engine: str, hardware: HardwareProfile, *, unpacks_in_memory: bool = False) -> dict[str, str]:
    """The types that serve ``16bit`` and ``quantised`` products on an engine; empty where the operator's own type does."""
    if engine != "llama.cpp":
        return {}
    peak = hardware.peak_flops_per_s
    sixteen = next((d for d in ("fp16_acc16", "fp16", "bf16", "fp32") if peak(d)), None)
    if sixteen is None:
        return {}
    tiles = peak("int8")
    has_tiles = tiles is not None and tiles >= (peak(sixteen) or 0) and not unpacks_in_memory
    return {"16bit": sixteen, "quantised": "int8" if has_tiles else sixteen}


def dtype(operator: Operator, paths: Mapping[str, str]) -> str:
    """The type whose peak an operator runs at."""
    if not paths or operator.compute_dtype not in SIXTEEN_BIT:
        return operator.compute_dtype
    return paths.get("16bit" if operator.weight_format in _PLAIN_WEIGHTS else "quantised", operator.compute_dtype)
