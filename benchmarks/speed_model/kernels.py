"""Kernel records: matrix products, attention, memory streams and all-reduces, each a few terms of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.speed_model import spellings
from benchmarks.speed_model.case import Case, SkipError, groups
from calc.operators.operator import Collective
from calc.profiles.catalog import fold
from calc.profiles.hardware import HardwareProfile
from calc.timing import network
from calc.timing.calibrated import Calibrated
from calc.timing.setting import device_class, memory_kind

_MICROSECOND = 1e-6
#: Exponent of the norm that joins compute and memory time of one kernel: 1 is their sum, infinity the larger. Cross-validated median
#: errors of products: 8.4 % with 4, 8.3 % with 3, 7.6 % with 2.
_NORM = 2
_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5625, "int8": 1.0, "int4": 0.5}
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "nvfp4": "fp4", "int4_wo": "int4", "int8_wo": "int8"}
#: Latent attention of DeepSeek-V3 as its kernels are benchmarked: 128 heads over a latent of 512 + 64.
_LATENT_HEADS, _LATENT, _LATENT_VALUE = 128, 576, 512
#: A stream or attention long enough that fixed times do not matter, for records that state only a rate.
_LONG_BYTES = 1 << 30
_LONG_CONTEXT = (64, 65536)


@dataclass(frozen=True)
class KernelSetting:
    """Keys of a kernel record. ``engine`` is the library that was timed."""

    engine: str
    hardware: HardwareProfile
    extra: Mapping[str, str] = field(default_factory=dict)
    peak: float = 0.0  # operations per second of the type that is multiplied

    @property
    def keys(self) -> dict[str, str]:
        """Level → key."""
        kind = device_class(self.hardware)
        return {
            "class": kind,
            "architecture": f"{self.hardware.vendor} {self.hardware.architecture} {memory_kind(self.hardware)}",
            "device": self.hardware.id,
            "vendor": self.hardware.vendor,
            "library": self.engine,
            "engine class": f"{self.engine} | {kind}",
            **self.extra,
        }

    @property
    def slopes(self) -> dict[str, float]:
        """Logarithm of watts per TFLOP/s of the type in use: parts short of power lower their clocks under matrix loads."""
        watts = self.hardware.tdp_w
        return {"watts per TFLOP": math.log(watts / (self.peak / 1e12))} if watts and self.peak else {}


def kernel_case(record: dict[str, Any]) -> Case:
    """A kernel record. Raises SkipError."""
    hardware = spellings.device(record)
    if hardware is None:
        raise SkipError(f"device not in the library, rates not stated: {record['gpu']}")
    kind = str(record["kind"])
    build = {"gemm": _gemm, "attention": _attention, "bandwidth": _bandwidth, "allreduce": _all_reduce}[kind]
    sizes, floor, measured, extra = build(record, hardware)
    peak = _peak(hardware, _dtype(record)) if kind == "gemm" else 0.0
    setting = KernelSetting(str(record["engine"]), hardware, extra, peak)
    found = {term: seconds for term, seconds in sizes.items() if seconds > 0}

    def noise(model: Calibrated) -> float:
        return model.effects.shared.kinds[kind].noise

    cell = " | ".join((kind, str(record["engine"]), hardware.id, str(record.get("gpu_count")), _dtype(record)))
    where = groups(record, hardware.id, cell) | {"cell": cell}
    return Case(record, kind, measured, floor, found, setting, where, noise=noise)


Built = tuple[dict[str, float], float, float, dict[str, str]]


def _dtype(record: Mapping[str, Any]) -> str:
    word = fold(str(record.get("quantization") or record.get("kv_dtype") or "bf16"))
    return _TYPES.get(word, word)


def _peak(hardware: HardwareProfile, dtype: str) -> float:
    peak = hardware.peak_flops_per_s(dtype) or hardware.peak_flops_per_s("bf16") or hardware.peak_flops_per_s("fp16")
    if peak is None:
        raise SkipError(f"no rate known for {hardware.id}")
    return peak


def _stream(hardware: HardwareProfile) -> float:
    if hardware.bandwidth_bytes_per_s is None:
        raise SkipError(f"no bandwidth known for {hardware.id}")
    return hardware.bandwidth_bytes_per_s


def _gemm(record: Mapping[str, Any], hardware: HardwareProfile) -> Built:
    if "grouped" in str(record["engine"]).lower():
        raise SkipError("number of groups not stated")
    m, n, k = (int(record[x]) for x in "mnk")
    dtype = _dtype(record)
    moved = m * k * _BYTES.get("bf16" if dtype.startswith("int4") else dtype, 2.0) + n * k * _BYTES.get(dtype, 2.0) + m * n * 2
    compute, memory = 2.0 * m * n * k / _peak(hardware, dtype), moved / _stream(hardware)
    norm = (compute**_NORM + memory**_NORM) ** (1 / _NORM)
    bound = "compute" if compute > memory else "memory"
    extra = {"type": dtype, "type and architecture": f"{dtype} {hardware.architecture} {memory_kind(hardware)}"}
    # An engine's linear layer rounds its activations first; a bare product is given them in low precision.
    rounding = _MICROSECOND if dtype in ("fp8", "fp4", "int8") and "linear" in str(record["engine"]) else 0.0
    sizes = {f"gemm.{bound}": norm, "gemm.launch": _MICROSECOND, "gemm.rounding": rounding}
    return sizes, max(compute, memory), _time_s(record, 2.0 * m * n * k, moved), extra


def _time_s(record: Mapping[str, Any], flops: float, moved: float) -> float:
    measured = record["measured"]
    for key, factor in (("us", 1e-6), ("ms", 1e-3)):
        if measured.get(key):
            return float(measured[key]) * factor
    if measured.get("tflops"):
        return flops / (float(measured["tflops"]) * 1e12)
    if measured.get("gb_per_s"):
        return moved / (float(measured["gb_per_s"]) * 1e9)
    raise SkipError("neither a time nor a rate was measured")


def _attention(record: Mapping[str, Any], hardware: HardwareProfile) -> Built:
    op, dtype = str(record["op"]), _dtype(record)
    compute_type = "fp8" if dtype.startswith("fp8") and "prefill" in op and hardware.peak_flops_per_s("fp8") else "bf16"
    width = 1 if dtype.startswith("fp8") else 2
    batch = int(record.get("batch") or _LONG_CONTEXT[0])
    context = int(record.get("context_len") or record.get("input_len") or _LONG_CONTEXT[1])
    if op.startswith("mla"):
        pairs, latent = batch * context, batch * context * _LATENT * width
        flops, moved = 2.0 * _LATENT_HEADS * (_LATENT + _LATENT_VALUE) * pairs, float(latent)
    else:
        known = spellings.table()["speed_attention"].get(fold(str(record["engine"])))
        if known is None:
            raise SkipError("number of heads not stated")
        heads, kv_heads, head_dim, causal = known
        pairs = batch * (context * (context + 1) // 2 if causal and "prefill" in op else context)
        rows = context if "prefill" in op else 1
        flops = 4.0 * heads * head_dim * pairs
        moved = 2.0 * batch * context * kv_heads * head_dim * width + 4.0 * batch * rows * heads * head_dim
    compute, memory = flops / _peak(hardware, compute_type), moved / _stream(hardware)
    floor, measured = max(compute, memory), _time_s(record, flops, moved)
    extra = {"operation": "latent decode" if op.startswith("mla") else op}
    if "prefill" in op:
        return {"attention.prefill": floor, "attention.ramp": floor * 512 / context}, floor, measured, extra
    return {"attention.decode": floor, "attention.fixed": _MICROSECOND}, floor, measured, extra


def _bandwidth(record: Mapping[str, Any], hardware: HardwareProfile) -> Built:
    moved = float(record.get("bytes") or _LONG_BYTES)
    seconds = moved / _stream(hardware)
    return {"bandwidth.stream": seconds}, seconds, moved / (float(record["measured"]["gb_per_s"]) * 1e9), {}


def _all_reduce(record: Mapping[str, Any], hardware: HardwareProfile) -> Built:
    ranks, message = int(record["gpu_count"]), float(record["bytes"])
    wires = network.link(hardware, ranks)
    if wires is None:
        raise SkipError(f"no link between devices known for {hardware.id}")
    collective = Collective("all-reduce", ranks, message)
    price = network.cost(collective, wires, direct_kernels="custom" in str(record["engine"]))
    measured = record["measured"]
    seconds = float(measured["us"]) * 1e-6 if measured.get("us") else 0.0
    if not seconds and measured.get("bus_gb_per_s"):
        seconds = float(collective.bytes_per_rank) / (float(measured["bus_gb_per_s"]) * 1e9)
    if not seconds:
        raise SkipError("neither a time nor a rate was measured")
    parts = {"latency": float(price.latency_s), "bytes": float(price.bytes_s), "fill": float(price.fill_s)}
    sizes = {f"{'direct' if price.direct else 'allreduce'}.{part}": size for part, size in parts.items()}
    return (
        sizes,
        float(network.floor_s(collective, wires)),
        seconds,
        {"link": wires.kind, "link name": f"{wires.kind} {wires.name}"},
    )
