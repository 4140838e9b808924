"""What is settled before a run begins: the dtype, the arena, and what may disturb or qualify the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calc.errors import MeasurementError
from calc.measure import trial
from calc.measure.cases.formats import ELEMENT_BYTES, formats_for, model_dtype, parse_dtype, weight_format_name
from calc.measure.cases.operators import Workload
from calc.measure.ceilings import CeilingPlan, candidates
from calc.measure.device.device import MEMORY_SHARE, DeviceFacts
from calc.measure.device.disturbances import host_notices, look
from calc.measure.device.monitor import Monitor
from calc.measure.kernels.operand_sizes import largest_operands
from calc.measure.kernels.quantised import lacking
from calc.measure.kernels.torch_module import is_out_of_memory
from calc.measure.progress import Progress, ProgressEvent
from calc.measure.records import Notice
from calc.measure.runner import Clock, OutOfMemory
from calc.measure.torch_runner import TorchRunner
from calc.numerics import weight_format
from calc.profiles.model import ModelProfile
from calc.units import format_bytes, format_seconds


def open_runner(torch: Any, facts: DeviceFacts, model: ModelProfile, work: Workload, plan: CeilingPlan, seed: int) -> TorchRunner:
    """The device with its arena. Raises MeasurementError when not even that fits."""
    tried = [c for group in candidates(plan, work.dtype, work.cases).values() for c in group]
    largest = largest_operands([*work.cases, *tried])
    try:
        return TorchRunner(torch, facts, work.dtype, largest=largest, deviation=model.hidden_size**-0.5, seed=seed)
    except (OutOfMemory, MemoryError, RuntimeError) as fault:
        if isinstance(fault, RuntimeError) and not is_out_of_memory(fault):
            raise
        raise MeasurementError(
            f"the device has no memory left for operands: {fault}", "free memory or choose another --device"
        ) from None


def settle_dtype(
    torch: Any, model: ModelProfile, facts: DeviceFacts, asked: str, clock: Clock, monitor: Monitor, progress: Progress
) -> tuple[str, dict[str, float] | None]:
    """The dtype to run, and the seconds of the trial that chose it."""
    if asked != "auto":
        return parse_dtype(asked), None
    if facts.kind == "cpu":
        chosen, times = trial.fastest_dtype(torch, clock, monitor)
        listing = ", ".join(f"{name} {format_seconds(t)}" for name, t in times.items())
        progress(ProgressEvent("dtype", f"dtype auto: {chosen} is fastest here ({listing}: mean of a matrix and a vector product)"))
        return chosen, times
    chosen = model_dtype(model)
    if facts.kind == "cuda" and chosen == "bf16" and not torch.cuda.is_bf16_supported():
        chosen = "fp16"
    progress(ProgressEvent("dtype", f"dtype auto: {chosen}"))
    return chosen, None


def settle_formats(
    torch: Any, model: ModelProfile, facts: DeviceFacts, quantization: str | None, progress: Progress
) -> dict[str, str]:
    """Quantised weight formats by tensor role: the ones asked for, else the stored ones where this device multiplies in them. What is
    asked for stays, so that its cases say why they fail. Raises UsageError for a format without a product."""
    formats = formats_for(model, quantization, facts.kind)
    if quantization is None:
        for kind in sorted({weight_format(name).compute for name in formats.values()}):
            fault = lacking(torch, facts, kind)
            if fault:
                formats = {role: name for role, name in formats.items() if weight_format(name).compute != kind}
                progress(
                    ProgressEvent(
                        "formats", f"{kind} products are not available here, their weights are measured in 16 bit: {fault}"
                    )
                )
    if formats:
        listing = ", ".join(sorted(set(formats.values())))
        progress(ProgressEvent("formats", f"weights of the layers in {listing}, activations in it where they meet them"))
    return formats


def device_line(facts: DeviceFacts) -> str:
    """The device in one line."""
    cache = format_bytes(facts.cache_bytes) + ("" if facts.cache_reported else " assumed")
    return f"{facts.name} ({facts.torch_name}), {facts.threads} threads, last-level cache {cache}, {format_bytes(facts.free_bytes)} free"


def first_notices(model: ModelProfile, facts: DeviceFacts, dtype: str, formats: Mapping[str, str]) -> list[Notice]:
    """What may disturb or qualify the run, known before it begins."""
    found = []
    if not facts.cache_reported:
        message = f"the device does not tell its cache size; {format_bytes(facts.cache_bytes)} is assumed for cold operands"
        found.append(Notice("W_CACHE_ASSUMED", message))
    if facts.free_bytes // MEMORY_SHARE < 3 * facts.cache_bytes:
        message = (
            f"{format_bytes(facts.free_bytes)} are free, too little to rotate over three caches: operands may be warm; free memory"
        )
        found.append(Notice("W_CACHE_NOT_COVERED", message))
    if facts.kind == "cpu":
        found += host_notices(look(facts))
    measured = {dtype, *formats.values()}
    stored = {weight_format_name(name) for name in (model.storage.dtype, *model.storage.roles.values())}
    left = sorted(name for name in stored - measured if name not in ELEMENT_BYTES or name in ("fp8", "int8"))
    if left:
        message = f"the checkpoint stores {', '.join(left)}; those weights are measured in {', '.join(sorted(measured))} here"
        found.append(Notice("W_FORMAT_NOT_MEASURED", message))
    return found
