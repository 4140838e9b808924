"""Which type an engine's matrix kernels really run in: the peak that counts is that of the path, not that of the weights.

Most engines multiply 16-bit activations with fp32 accumulation, and quantised weights are unpacked to 16 bit inside the kernel.
llama.cpp is the exception: its CUDA, HIP and Vulkan tile kernels round activations to int8 for quantised weights (since June 2024, pull
request 7676; before, weights were unpacked to fp16 in memory first), and its fp16 products accumulate in fp16, which GeForce cards do at
twice the rate.
"""

from __future__ import annotations

from collections.abc import Mapping

from calc.profiles.hardware import HardwareProfile

SIXTEEN_BIT = ("bf16", "fp16")
#: Formats of weights that nothing has to be unpacked from; empty: an operator without weights.
PLAIN_WEIGHTS = ("", "bf16", "fp16", "fp32")
#: What multiplies 4-bit floating-point weights, by engine: (formats, compute capabilities from and below, type). A checkpoint in mxfp4
#: says nothing of activations; outside the ranges, and on every other engine, they stay in 16 bit. Blackwell's fp4 x fp8 products run
#: at the fp8 rate.
#: - TensorRT-LLM: W4A8_MXFP4_MXFP8 from SM 100, W4A16_MXFP4 below (ModelConfig.get_mxfp4_quant_algo).
#: - SGLang: flashinfer_mxfp4 on SM 100, which rounds activations to mxfp8 unless --flashinfer-mxfp4-moe-precision bf16; on SM 120 Triton
#:   kernels in 16 bit (server_args, layers/quantization/mxfp4.py).
#: - vLLM: 16-bit activations everywhere; mxfp8 only by VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 or --moe-backend (fused_moe/oracle/mxfp4.py).
#: - llama.cpp: rounds activations to the weights' 4-bit type from SM 120 (pull request 17906, December 2025); int8 tiles elsewhere.
_FOUR_BIT: dict[str, tuple[tuple[str, ...], float, float, str]] = {
    "tensorrt-llm": (("mxfp4",), 10.0, 99.0, "fp8"),
    "sglang": (("mxfp4",), 10.0, 11.0, "fp8"),
    "llama.cpp": (("mxfp4", "nvfp4"), 12.0, 13.0, "fp4"),
}


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


def four_bit_kernels(engine: str, hardware: HardwareProfile) -> dict[str, str]:
    """Weight format → type that it is multiplied in, for 4-bit floating-point weights; the ideal engine uses what the device has."""
    if engine == "ideal":
        return {}
    formats, least, below, served = _FOUR_BIT.get(engine, (("mxfp4",), 0.0, 0.0, ""))
    capability = float(hardware.compute_capability or 0)
    return dict.fromkeys(formats, served if least <= capability < below else "16bit")


def dtype(compute_dtype: str, weight_format: str, paths: Mapping[str, str]) -> str:
    """The type whose peak products of a compute type run at, with weights in a format (empty: none)."""
    if not paths or compute_dtype not in SIXTEEN_BIT:
        return compute_dtype
    return paths.get("16bit" if weight_format in PLAIN_WEIGHTS else "quantised", compute_dtype)
