"""A measurement from the first question to the last round: device, dtype, ceilings, cases, comparison.

``measure`` is what the command calls; ``Session`` is the same chain with device, clock and monitor passed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from calc import files
from calc.errors import UsageError
from calc.measure import ceilings as ceiling_module
from calc.measure import planning
from calc.measure.cases import grid as grids
from calc.measure.cases.formats import stored_formats
from calc.measure.cases.operators import Workload, list_cases, workload
from calc.measure.ceilings import CeilingPlan
from calc.measure.comparing import comparison
from calc.measure.device import device as devices
from calc.measure.device import environment
from calc.measure.device.device import DeviceFacts
from calc.measure.device.disturbances import device_notices, noisy_because, steadier
from calc.measure.device.monitor import Monitor
from calc.measure.device.pinning import pin
from calc.measure.device.watching import open_monitor
from calc.measure.kernels.torch_module import require_torch
from calc.measure.preparation import device_line, first_notices, open_runner, settle_dtype, settle_formats
from calc.measure.progress import Progress, ProgressEvent, silent
from calc.measure.recording import datasheet_record, monitor_record, save
from calc.measure.records import MeasureResult, Notice
from calc.measure.rounds import Bench, State, is_contended, run_rounds
from calc.measure.runner import Clock, Runner, SystemClock
from calc.measure.sampling import StopRule
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile

__all__ = ["SUITES", "MeasureResult", "Session", "Suite", "datasheet_record", "list_cases", "measure"]


@dataclass(frozen=True, slots=True)
class Suite:
    """How long and how many rounds."""

    budget_s: float
    rounds: int


SUITES = {"quick": Suite(60.0, 5), "standard": Suite(300.0, 5), "full": Suite(1800.0, 7)}
_CEILING_SHARE = 0.15  # of the budget, for the search
_RESERVE_S = 2.0  # for the last sums, the file, and starting and leaving the process


def suite_named(name: str) -> str:
    """The name of a suite. Raises UsageError for another."""
    if name not in SUITES:
        raise UsageError(f"unknown suite {name!r}", "there are: " + ", ".join(SUITES))
    return name


def measure(
    model: ModelProfile,
    *,
    hardware: HardwareProfile | None = None,
    suite: str = "quick",
    budget_s: float | None = None,
    dtype: str = "auto",
    quantization: str | None = None,
    batch_size: int = 1,
    input_len: int = 512,
    context_len: int = 1024,
    device: str | None = None,
    seed: int = 0,
    only: str | Iterable[str] | None = None,
    tensor_parallel_size: int = 1,
    output: Path | None = None,
    progress: Progress = silent,
) -> MeasureResult:
    """Time the operators of a prefill and of a decode step on a local device and compare them with their predictions.

    ``budget_s`` seconds for everything (default: the suite's); ``device`` cpu, cuda, cuda:1, mps or xpu (default: cuda where
    present); ``dtype`` auto is the fastest in a short trial on a CPU and the checkpoint's 16-bit type on CUDA. ``quantization``
    none, fp8, fp8-channel, fp8-block or int8 is the format of the layers' weights; by default the stored one where it is among these
    and the device multiplies in it. ``output`` is written after every round. Ctrl-C returns what was measured, with ``interrupted`` set.

    Raises UsageError for names and sizes that make no sense, MeasurementError without torch, device or memory.
    """
    clock = SystemClock()
    start = clock.now()
    budget = SUITES[suite_named(suite)].budget_s if budget_s is None else budget_s
    if not 0 < budget < math.inf:
        raise UsageError(f"the budget must be above 0 seconds, not {budget}", "like 60")
    sizes = {
        "batch_size": batch_size,
        "input_len": input_len,
        "context_len": context_len,
        "tensor_parallel_size": tensor_parallel_size,
    }
    patterns = only if only is None or isinstance(only, str) else list(only)
    # Refuse what cannot be asked before torch is loaded; a whole id names a type, which auto does not know yet.
    known = dtype != "auto" and (quantization is not None or not stored_formats(model))
    grid = grids.for_suite(suite, "cuda")
    only_known = patterns if known else None
    list_cases(model, dtype=dtype, only=only_known, grid=grid, quantization=quantization, kind="cuda", **sizes)
    if output is not None:
        files.check_writable(output)
    torch = require_torch()
    kind, index = devices.choose(torch, device)
    facts = devices.describe(torch, kind, index)
    progress(ProgressEvent("device", f"{device_line(facts)}; {steadier(kind)}"))
    with ExitStack() as stack:
        monitor = open_monitor(kind, environment.device_uuid(torch, facts), index, amd=environment.is_rocm(torch))
        stack.callback(monitor.close)
        chosen, trial_s = settle_dtype(torch, model, facts, dtype, clock, monitor, progress)
        formats = settle_formats(torch, model, facts, quantization, progress)
        work = workload(model, chosen, only=patterns, grid=grids.for_suite(suite, kind), formats=formats, **sizes)
        settings = {
            "suite": suite, "budget_s": budget, "dtype_asked": dtype, "dtype": chosen, "dtype_trial_s": trial_s,
            "quantization": quantization, "weight_formats": formats, "seed": seed,
            "only": [patterns] if isinstance(patterns, str) else patterns or [], **sizes,
        }  # fmt: skip
        plan = ceiling_module.plan_for(kind)
        unpin = pin(facts)
        if unpin is not None:
            stack.callback(unpin)
        runner = open_runner(torch, facts, model, work, plan, seed)
        stack.callback(runner.close)
        record = environment.record(torch, facts, chosen, pinned=unpin is not None)
        session = Session(
            model, work, facts, runner, clock, monitor, settings, record, plan, rounds=SUITES[suite].rounds,
            working_sets=grids.for_suite(suite, kind).working_sets, hardware=hardware, output=output, progress=progress,
        )  # fmt: skip
        session.notices += first_notices(model, facts, chosen, formats)
        return session.run(start, start + budget)


@dataclass
class Session:
    """One run with everything passed in: ``runner`` times cases, ``clock`` tells and spends time, ``monitor`` watches."""

    model: ModelProfile
    work: Workload
    facts: DeviceFacts
    runner: Runner
    clock: Clock
    monitor: Monitor
    settings: dict[str, Any]
    environment: dict[str, Any]
    plan: CeilingPlan
    rounds: int = 5
    rule: StopRule = field(default_factory=StopRule)
    working_sets: tuple[int, ...] = ()
    hardware: HardwareProfile | None = None
    output: Path | None = None
    progress: Progress = silent
    notices: list[Notice] = field(default_factory=list)
    ceilings: list[State] = field(default_factory=list)
    cases: list[State] = field(default_factory=list)
    watched: dict[str, Any] = field(default_factory=dict)
    planned: int = 0
    start_s: float = 0.0
    interrupted: bool = False

    def run(self, start_s: float, deadline_s: float) -> MeasureResult:
        """Measure until the rounds are done or ``deadline_s`` on the clock; Ctrl-C keeps what there is."""
        self.start_s = start_s
        random = Random(self.settings.get("seed", 0))
        keep = self.facts.free_bytes // devices.MEMORY_SHARE
        bench = Bench(self.runner, self.clock, self.monitor, random, self.rule, self.progress, keep_bytes=keep)
        self.cases = [State(c) for c in self.work.cases]
        self.planned = self.rounds
        first = self.monitor.read()
        self.watched = monitor_record(self.monitor, first)
        self._tell(device_notices(first))
        try:
            self._measure(bench, deadline_s - _RESERVE_S)
            return self._finish()
        except KeyboardInterrupt:
            self.interrupted = True
            return self._finish()

    def _measure(self, bench: Bench, deadline_s: float) -> None:
        begin = self.clock.now()
        self.progress(ProgressEvent("ceilings", "looking for the ceilings of this device"))
        groups = ceiling_module.candidates(self.plan, self.work.dtype, self.work.cases)
        groups |= ceiling_module.working_sets(self.working_sets, self.work.dtype)
        self.ceilings = ceiling_module.search(bench, groups, _CEILING_SHARE * max(0.0, deadline_s - begin))
        for done, state in enumerate(self.cases):
            self.progress(ProgressEvent("prepare", f"first timing of {state.case.id}", done + 1, len(self.cases)))
            bench.first_timing(state)
        left_s, narrowed = deadline_s - self.clock.now(), bool(self.settings.get("only"))
        plan = planning.plan(self.cases, self.ceilings, self.rounds, self.rule, left_s, narrowed=narrowed)
        self.planned, bench.fewest_samples = plan.rounds, plan.samples
        self.settings["rounds_planned"] = plan.rounds
        self.notices += [plan.notice] if plan.notice else []
        self.progress(ProgressEvent("plan", plan.line))
        run_rounds(bench, self.ceilings + self.cases, plan.rounds, deadline_s, self._after_round)

    def _tell(self, notices: list[Notice]) -> None:
        self.notices += notices
        for notice in notices:
            self.progress(ProgressEvent("warning", notice.message))

    def _after_round(self, finished: int) -> None:
        self.settings["rounds_finished"] = finished
        self._save(complete=False)
        self.progress(ProgressEvent("round", f"round {finished} of {self.planned} done", finished, self.planned))

    def _save(self, *, complete: bool) -> MeasureResult:
        """The result so far, written where a run file is wanted."""
        result = self._result()
        if self.output is None:
            return result
        datasheet = datasheet_record(self.hardware) if self.hardware else None
        model = {"id": self.model.id, "name": self.model.name}
        fault = save(result, self.output, model, datasheet, self.progress, complete=complete)
        if fault is None:
            return replace(result, output=str(self.output))
        if fault not in self.notices:
            self._tell([fault])
        return replace(result, warnings=tuple(self.notices))

    def _finish(self) -> MeasureResult:
        contended = is_contended(self.cases)
        if contended and not any(n.code == "W_CONTENDED" for n in self.notices):
            message = "other processes had the processor throughout: all samples count and nothing is trusted; stop them and repeat"
            self.notices.append(Notice("W_CONTENDED", message))
        return self._save(complete=not self.interrupted)

    def _result(self) -> MeasureResult:
        """What is known so far, all of one kind: undisturbed, or contended where the run as a whole is."""
        contended, narrowed = is_contended(self.cases), bool(self.settings.get("only"))
        ceilings, cases = (
            tuple(s.result(self.planned, contended=contended, narrowed=narrowed) for s in part)
            for part in (self.ceilings, self.cases)
        )
        found = ceiling_module.collect(ceilings)
        rows, phases, faults = comparison.compare(self.work, cases, found, self.hardware)
        return MeasureResult(
            model_id=self.model.id,
            hardware_id=self.hardware.id if self.hardware else None,
            environment=self.environment,
            settings=self.settings,
            monitor=self.watched,
            ceilings=found,
            ceiling_cases=ceilings,
            cases=cases,
            rows=rows,
            phases=phases,
            not_measured=self.work.not_measured,
            warnings=(*self.notices, *faults),
            noisy=noisy_because(self.notices),
            interrupted=self.interrupted,
            duration_s=self.clock.now() - self.start_s,
        )
