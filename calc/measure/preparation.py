"""What is settled before a run begins: the dtype, the arena, and what may disturb or qualify the result."""

from __future__ import annotations

from typing import Any

from calc.errors import MeasurementError
from calc.measure import trial
from calc.measure.cases import Workload, model_dtype, parse_dtype
from calc.measure.ceilings import CeilingPlan, candidates, largest_operand_bytes
from calc.measure.device import MEMORY_SHARE, DeviceFacts
from calc.measure.host import busy_with_others
from calc.measure.monitor import Monitor
from calc.measure.progress import Progress, ProgressEvent
from calc.measure.records import Notice
from calc.measure.runner import Clock, OutOfMemory
from calc.measure.torch_module import is_out_of_memory
from calc.measure.torch_runner import TorchRunner
from calc.profiles.model import ModelProfile
from calc.units import format_bytes, format_seconds


def open_runner(torch: Any, facts: DeviceFacts, model: ModelProfile, work: Workload, plan: CeilingPlan, seed: int) -> TorchRunner:
    """The device with its arena. Raises MeasurementError when not even that fits."""
    tried = [c for group in candidates(plan, work.dtype, work.cases).values() for c in group]
    largest = largest_operand_bytes([*work.cases, *tried])
    try:
        return TorchRunner(torch, facts, work.dtype, largest_operand_bytes=largest, deviation=model.hidden_size**-0.5, seed=seed)
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


def device_line(facts: DeviceFacts) -> str:
    """The device in one line."""
    cache = format_bytes(facts.cache_bytes) + ("" if facts.cache_reported else " assumed")
    return f"{facts.name} ({facts.torch_name}), {facts.threads} threads, last-level cache {cache}, {format_bytes(facts.free_bytes)} free"


def first_notices(model: ModelProfile, facts: DeviceFacts, dtype: str) -> list[Notice]:
    """What may disturb or qualify the run, known before it begins."""
    found = []
    if not facts.cache_reported:
        message = f"the device does not tell its cache size; {format_bytes(facts.cache_bytes)} is assumed for cold operands"
        found.append(Notice("W_CACHE_ASSUMED", message))
    if facts.free_bytes // MEMORY_SHARE < 3 * facts.cache_bytes:
        message = f"{format_bytes(facts.free_bytes)} of free memory do not allow rotating over three caches: operands may be warm"
        found.append(Notice("W_CACHE_NOT_COVERED", message))
    load = busy_with_others(facts.threads)
    if facts.kind == "cpu" and load is not None:
        found.append(Notice("W_BUSY", f"load average {load:.1f} on {facts.threads} cores before the start: times may be noisy"))
    stored = {model.storage.dtype, *model.storage.roles.values()}
    plain = {"fp32", "float32", "bf16", "bfloat16", "fp16", "float16"}
    if stored - plain:
        message = f"the checkpoint stores {', '.join(sorted(stored - plain))}; everything is measured in {dtype} here"
        found.append(Notice("W_FORMAT_NOT_MEASURED", message))
    return found
