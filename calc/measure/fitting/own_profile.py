"""A hardware profile of a device that has none: the rates that it was measured to reach, without a model.

The rates are ceilings of kernels that torch has here, not of a datasheet; the profile says so in its sources and doubts. They are those
of the fastest samples, since nothing may beat a floor; the sources give the medians between rounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from random import Random
from typing import Any

from calc.errors import MeasurementError
from calc.measure import ceilings
from calc.measure.cases.formats import DTYPES
from calc.measure.cases.operators import Case
from calc.measure.ceilings import CeilingPlan
from calc.measure.device import device as devices
from calc.measure.device import environment
from calc.measure.device.detect import LocalDevice
from calc.measure.device.device import DeviceFacts
from calc.measure.device.monitor import Monitor
from calc.measure.device.watching import open_monitor
from calc.measure.kernels.operand_sizes import largest_operands
from calc.measure.kernels.torch_module import require_torch
from calc.measure.preparation import device_line
from calc.measure.progress import Progress, ProgressEvent
from calc.measure.records import Ceiling
from calc.measure.rounds import Bench, is_contended, run_rounds
from calc.measure.runner import Clock, OutOfMemory, Runner, SystemClock
from calc.measure.sampling import StopRule
from calc.measure.torch_runner import TorchRunner
from calc.profiles.hardware import HardwareProfile, PeakDenseTflops
from calc.profiles.schema import Source

BUDGET_S = 10.0  # of each type
ROUNDS = 3  # as many as an interval needs
_SEARCH_SHARE = 0.25  # of the budget
_DEVIATION = 1 / 32  # of random weights: 1024 columns or so, so that sums stay near one
#: Rates that make a profile: products by type, and whatever reads memory fastest.
_PRODUCT, _READS = "matmul", ("read", "read_sum")
_CLASSES = {"cpu": "cpu", "mps": "apu"}
_VENDORS = ("NVIDIA", "AMD", "Intel", "Apple", "Qualcomm", "Ampere", "Huawei", "IBM")
_NO_VENDOR = "unknown"


def measured_profile(local: LocalDevice, identifier: str | None, progress: Progress) -> HardwareProfile:
    """Measure the local device for about half a minute; ``identifier`` None makes one of its name. Raises MeasurementError without
    torch, memory, or any rate."""
    torch, clock = require_torch(), SystemClock()
    kind, index = devices.choose(torch, None)
    facts = devices.describe(torch, kind, index)
    progress(ProgressEvent("device", device_line(facts)))
    with ExitStack() as stack:
        monitor = open_monitor(kind, environment.device_uuid(torch, facts), index, amd=environment.is_rocm(torch))
        stack.callback(monitor.close)

        def runner(dtype: str, tried: list[Case]) -> Runner:
            try:
                return TorchRunner(torch, facts, dtype, largest=largest_operands(tried), deviation=_DEVIATION)
            except (OutOfMemory, MemoryError) as fault:
                raise MeasurementError(f"the device has no memory left for operands: {fault}", "free memory") from None

        found = rates(runner, clock, monitor, ceilings.plan_for(kind), DTYPES, progress)
    date = datetime.now(UTC).date().isoformat()
    return profile_of(local, facts, found, identifier=identifier, date=date, software=f"torch {torch.__version__}")


def rates(
    runner: Callable[[str, list[Case]], Runner],
    clock: Clock,
    monitor: Monitor,
    plan: CeilingPlan,
    dtypes: Iterable[str],
    progress: Progress,
    *,
    budget_s: float = BUDGET_S,
) -> list[Ceiling]:
    """Products and reads of each type within ``budget_s`` seconds each; a type that the device lacks gives none."""
    found: list[Ceiling] = []
    for dtype in dtypes:
        progress(ProgressEvent("ceilings", f"{dtype}: looking for the rates of products and reads"))
        tried = ceilings.candidates(plan, dtype, ())
        groups = {name: tried[name] for name in (_PRODUCT, *_READS)}
        with closing(runner(dtype, [c for group in groups.values() for c in group])) as opened:
            bench = Bench(opened, clock, monitor, Random(0), StopRule(), progress)
            deadline = clock.now() + budget_s
            states = ceilings.search(bench, groups, _SEARCH_SHARE * budget_s)
            run_rounds(bench, states, ROUNDS, deadline, lambda _: None)
        contended = is_contended(states)
        found += ceilings.collect(s.result(ROUNDS, contended=contended) for s in states)
    return found


def profile_of(
    local: LocalDevice, facts: DeviceFacts, found: Iterable[Ceiling], *, identifier: str | None, date: str, software: str
) -> HardwareProfile:
    """The profile. Raises MeasurementError where neither a product nor a read was measured."""
    known = list(found)
    products = {c.dtype: c for c in known if c.name == _PRODUCT}
    read = max((c for c in known if c.name in _READS), key=lambda c: c.best, default=None)
    if not products or read is None:
        raise MeasurementError("no rate could be measured on this device", "free memory, stop other jobs, and try again")
    vendor = next((v for v in _VENDORS if re.search(rf"\b{v}\b", local.name, re.IGNORECASE)), _NO_VENDOR)
    units = facts.details.get("sm_count") or facts.details.get("physical_cores")
    memory = local.memory_bytes or facts.memory_bytes
    if not memory:
        raise MeasurementError("the device does not tell how much memory it has", "write a profile by hand")
    peaks: dict[str, Any] = {dtype: _short(c.best / 1e12) for dtype, c in products.items()}
    unsure = sorted({f"{c.name} {c.dtype}" for c in (*products.values(), read) if c.status != "ok"})
    return HardwareProfile(
        id=identifier or re.sub(r"[^a-z0-9]+", "-", local.name.lower()).strip("-")[:100] + "-measured",
        name=f"{local.name}, measured",
        vendor=vendor,
        aliases=[local.name],
        device_class=_CLASSES.get(facts.kind, "measured"),  # type: ignore[arg-type]
        unit_of_account="the device as the runtime names it" if facts.kind != "cpu" else "the cores that the process may use",
        compute_capability=facts.details.get("compute_capability"),
        memory_capacity_gb=math.ceil(memory / 2**30),
        memory_reported_bytes=memory,
        memory_reported_source=f"read from the {'driver' if facts.kind == 'cuda' else 'system'} on {date}",
        memory_bandwidth_gb_per_s=_short(read.best / 1e9),
        last_level_cache_bytes=facts.cache_bytes if facts.cache_reported else None,
        compute_unit_count=int(units) if units else None,
        compute_unit_kind=None if not units else "core" if facts.kind == "cpu" else "SM",
        peak_dense_tflops=PeakDenseTflops(**peaks),
        vendor_sheet_quotes_sparse=False,  # what was measured is dense
        sources=_sources(products, read, date, software),
        doubts=[
            "Measured here: rates that kernels of torch reach, not of a datasheet; shares of them in an efficiency file may exceed 1.",
            *([f"not quiet while it was measured: {', '.join(unsure)}"] if unsure else []),
        ],
    )


def _sources(products: dict[str, Ceiling], read: Ceiling, date: str, software: str) -> list[Source]:
    best = ", ".join(f"{dtype} {_spread(c, 1e12)} TFLOP/s" for dtype, c in products.items())
    note = f"measured here with {software}: {best} ({ROUNDS} rounds, 95 %); {read.case_id} {_spread(read, 1e9)} GB/s"
    fields = [*products, "memory_bandwidth_gb_per_s"]
    return [
        Source(
            url="roofcast hardware detect --measure",
            fields=[*fields, "memory_reported_bytes"],
            date=date,
            access="measured",
            note=note,
        ),
        Source(
            url="arithmetic: 2 x M x N x K over the time of a product; bytes of the operand over the time of one that reads it once",
            fields=fields,
            access="arithmetic",
        ),
    ]


def _spread(ceiling: Ceiling, scale: float) -> str:
    middle = f"at best {ceiling.best / scale:.4g}, median {ceiling.value / scale:.4g}"
    if ceiling.interval is None:
        return middle
    return f"{middle} ({ceiling.interval[0] / scale:.4g} to {ceiling.interval[1] / scale:.4g})"


def _short(value: float) -> float:
    """Four digits: more than a measurement knows."""
    return float(f"{value:.4g}")
