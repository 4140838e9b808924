"""Decode and prefill records: one step each, from the configuration alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.speed_model import spellings
from benchmarks.speed_model.case import Case, SkipError, groups
from calc.errors import RoofcastError
from calc.numerics import NumberFormat, weight_format
from calc.operators.numbers import WHOLE_MODEL_ROLES, NumberPlan, plan
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import Work, decode, prefill, share
from calc.profiles.catalog import fold
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.timing import paths, roofline
from calc.timing.calibrated import Calibrated
from calc.timing.overlap import by_layers, overlapped_s, possible
from calc.timing.roofline import Ceilings
from calc.timing.setting import Setting, device_class, setting
from calc.timing.terms import Mix, Sizes, mix, step_sizes

#: Below so many bits per weight a stated average is a slip (no published format is under 1.5 bits).
_LEAST_BITS = 1.5
_SAME_BITS = 0.03  # averages that differ by less are one


@dataclass(frozen=True)
class Setup:
    """What the steps of a record share."""

    model: ModelProfile
    hardware: HardwareProfile
    sharding: Sharding
    numbers: NumberPlan
    ceilings: Ceilings
    setting: Setting

    def sizes(self, work: Work) -> Sizes:
        """Terms of a step in seconds."""
        return step_sizes(self._operators(work), self.ceilings, self.setting, self._of_a_rank(work))

    def floor_s(self, work: Work) -> float:
        """The time below which no kernel goes; devices that hold layers in turn work at the same time at best in a prompt."""
        calls = [(o, float(roofline.floor(o, self.ceilings).time_s)) for o in self._operators(work)]
        if self.sharding.is_wide:
            best = possible(self.sharding, self.setting.family).best
            return sum(float(overlapped_s(compute, network, best)) for compute, network in by_layers(calls))
        seconds = sum(seconds * o.count for o, seconds in calls)
        return seconds / self.setting.layer_split if work.phase == "prefill" else seconds

    def mix(self, work: Work) -> Mix:
        """Decode and prompt tokens of a step."""
        return mix(self._operators(work), self.setting, self._of_a_rank(work))

    def _operators(self, work: Work) -> list[Operator]:
        return step_operators(self.model, self.sharding, self.numbers, work)

    def _of_a_rank(self, work: Work) -> Work:
        return share(work, self.sharding.data_ranks)


def setup(record: Mapping[str, Any]) -> Setup:
    """Settle the configuration of a record. Raises SkipError where it lacks something."""
    model, hardware = spellings.model(record), spellings.device(record)
    if model is None:
        raise SkipError(f"model not in the library, size not stated: {record.get('model')}")
    if hardware is None:
        raise SkipError(f"device not in the library, rates not stated: {record['gpu']}")
    engine, backend = spellings.engine(record)
    attention, unpacks = spellings.kernel_generation(engine, backend, record)
    unpacks = unpacks and device_class(hardware) != "nvidia-pascal"  # Pascal's tiles run on DP4A, they never unpacked
    tensor, count = int(record.get("tp") or 1), int(record.get("gpu_count") or 1)
    sharding = _sharding(tensor, int(record.get("ep") or 1), count)
    numbers = number_plan(record, model, hardware, engine)
    kernel_paths = paths.engine_paths(engine, hardware, unpacks_in_memory=unpacks)
    ceilings = roofline.datasheet(hardware, tensor, kernel_paths, sharding.reach)
    if not ceilings.peaks or not ceilings.bandwidth:
        raise SkipError(f"no rates known for {hardware.id}")
    if (tensor > 1 and ceilings.link is None) or None in ceilings.links.values():
        raise SkipError(f"no link between devices known for {hardware.id}")
    found = setting(
        engine,
        hardware,
        model,
        numbers,
        sharding,
        version=str(record.get("engine_version") or ""),
        backend=backend,
        attention=attention,
        unpacks_in_memory=unpacks,
        micro_batch=int(record["ubatch"]) if record.get("ubatch") else None,
        layer_split=count if record.get("split") == "layer" else 1,
    )
    return Setup(model, hardware, sharding, numbers, ceilings, found)


def _sharding(tensor: int, experts: int, devices: int) -> Sharding:
    """Experts on more ranks than tensor parallelism has lie on data-parallel ranks: on all devices, or the record says too little."""
    if experts <= tensor:
        return Sharding(tensor, expert_parallel=experts > 1)
    if experts != devices:
        raise SkipError(f"experts on {experts} ranks, {devices} devices stated")
    return Sharding(tensor, data=experts // tensor, expert_parallel=True)


def number_plan(record: Mapping[str, Any], model: ModelProfile, hardware: HardwareProfile, engine: str) -> NumberPlan:
    """Formats of a record: by name where the name decides the bytes, by the stated average where a mix or a file does."""
    types = [t for t in ("bf16", "fp16", "fp32") if hardware.peak_flops_per_s(t)]
    if not types:
        raise SkipError(f"no 16-bit rate known for {hardware.id}")
    word, bits = fold(str(record.get("quantization") or "none")), float(record.get("weight_bits") or 0)
    known = spellings.table()["speed_formats"].get(word) or spellings.table()["speed_formats"].get(word.split(" ")[0])
    low_precision = frozenset(t for t in ("fp8", "int8", "fp4") if hardware.peak_flops_per_s(t))
    kv = "fp8" if _caches_fp8(record, engine, known) else "bf16"
    if isinstance(known, dict) or known is None or known == "mxfp4":
        stored = _stored_mxfp4(model, types[0], kv, bits) if known == "mxfp4" else None
        if stored is not None:
            return stored
        name = known["average"] if isinstance(known, dict) else known or word
        average = _average(name, bits)
        base = plan("bf16", {}, compute=types[0], kv_cache=kv)
        return replace(base, default=average, roles=dict.fromkeys(WHOLE_MODEL_ROLES, average))
    return plan("bf16", {}, compute=types[0], quantization=known, kv_cache=kv, low_precision=low_precision)


def _caches_fp8(record: Mapping[str, Any], engine: str, known: Any) -> bool:
    """TensorRT-LLM's FP8 and FP4 checkpoints cache in FP8 unless something else is stated."""
    stated = str(record.get("kv_dtype") or "")
    return stated.startswith("fp8") or (engine == "tensorrt-llm" and known in ("fp8", "nvfp4") and stated in ("", "not stated"))


def _stored_mxfp4(model: ModelProfile, compute: str, kv: str, bits: float) -> NumberPlan | None:
    """gpt-oss keeps attention and head in 16 bit; files whose stated average is below that of the checkpoint (GGUF) hold them in 8."""
    if "mxfp4" not in model.storage.roles.values():
        return None
    stored = plan(model.storage.dtype, model.storage.roles, compute=compute, kv_cache=kv)
    operators = step_operators(model, Sharding(), stored, prefill(4096, 1))
    held = sum(float(o.weight_bytes) * o.count for o in operators if o.op_class in ("gemm", "experts"))
    elements = sum(_elements(o) * o.count for o in operators if o.op_class in ("gemm", "experts"))
    if bits >= 8 * held / elements - _SAME_BITS:
        return stored
    q8 = weight_format("q8_0")
    return replace(stored, roles={**stored.roles, "attention": q8, "embedding": q8, "lm_head": q8})


def _elements(operator: Operator) -> float:
    """Weights of a linear operator: those of the experts that any token hits, of all else every one."""
    shape = operator.shape
    copies: Any = shape["active"] if operator.op_class == "experts" else shape.get("copies", 1)
    n: Any = shape["n"]
    k: Any = shape["k"]
    return float(n) * float(k) * float(copies)


def _average(name: str, bits: float) -> NumberFormat:
    if bits < _LEAST_BITS:
        try:
            bits = weight_format(name).nominal_bits
        except RoofcastError:
            raise SkipError(f"bits per weight not stated: {name}") from None
    return NumberFormat(name, bits, approximate=True, whole_model=True)


def step_case(record: dict[str, Any]) -> Case:
    """A decode or prefill record. Raises SkipError."""
    found = setup(record)
    batch = int(record.get("batch") or 1)
    if record["kind"] == "decode":
        work = decode(batch, max(int(record.get("context_len") or 1), 1))
    else:
        work = prefill(batch, _positive(record, "input_len"))
    measured = measured_s(record, batch)
    try:
        sizes, parts, floor = found.sizes(work), found.mix(work), found.floor_s(work)
    except (RoofcastError, ValueError) as error:
        raise SkipError(str(error)) from error
    noise = _noise(sizes, parts)
    where = groups(record, found.hardware.id, found.model.id)
    return Case(record, record["kind"], measured, floor, _plain(sizes), found.setting, where, noise=noise)


def _noise(sizes: Sizes, parts: Mix) -> Any:
    def noise(model: Calibrated) -> float:
        return float(model.noise(sizes, parts))

    return noise


def _plain(sizes: Sizes) -> dict[str, float]:
    return {term: float(seconds) for term, seconds in sizes.items() if float(seconds) > 0}


def _positive(record: Mapping[str, Any], key: str) -> int:
    value = record.get(key)
    if not value:
        raise SkipError(f"{key} not stated")
    return int(value)


def measured_s(record: Mapping[str, Any], batch: int) -> float:
    """Seconds of the step that was measured."""
    measured = record["measured"]
    if record["kind"] == "decode" and measured.get("ms_per_step"):
        return float(measured["ms_per_step"]) / 1e3
    if measured.get("ttft_ms") and record["kind"] == "prefill" and not measured.get("tokens_per_s"):
        return float(measured["ttft_ms"]) / 1e3
    if not measured.get("tokens_per_s"):
        raise SkipError("neither a time nor a rate was measured")
    tokens = batch if record["kind"] == "decode" else batch * _positive(record, "input_len")
    seconds = tokens / float(measured["tokens_per_s"])
    return seconds if math.isfinite(seconds) else 0.0
