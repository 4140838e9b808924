"""A measurement from the first question to the last round: device, dtype, ceilings, cases, comparison.

``measure`` is what the command calls; ``Session`` is the same chain with device, clock and monitor passed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from calc.errors import UsageError
from calc.measure import ceilings as ceiling_module
from calc.measure import comparison, environment, run_file
from calc.measure import device as devices
from calc.measure import grid as grids
from calc.measure.cases import Workload, list_cases, workload
from calc.measure.ceilings import CeilingPlan
from calc.measure.device import DeviceFacts
from calc.measure.monitor import Monitor, open_monitor
from calc.measure.preparation import device_line, first_notices, open_runner, settle_dtype
from calc.measure.progress import Progress, ProgressEvent, silent
from calc.measure.records import CaseResult, MeasureResult, Notice
from calc.measure.rounds import Bench, State, affordable_rounds, estimated_s, is_contended, run_rounds
from calc.measure.runner import Clock, Runner, SystemClock
from calc.measure.sampling import StopRule
from calc.measure.torch_module import require_torch
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.timing import roofline
from calc.units import format_seconds

__all__ = ["SUITES", "MeasureResult", "Session", "Suite", "list_cases", "measure"]


@dataclass(frozen=True, slots=True)
class Suite:
    """How long and how many rounds."""

    budget_s: float
    rounds: int


SUITES = {"quick": Suite(60.0, 5), "standard": Suite(300.0, 5), "full": Suite(1800.0, 7)}
_CEILING_SHARE = 0.15  # of the budget, for the search
_RESERVE_S = 2.0  # for the last sums, the file, and starting and leaving the process


def measure(
    model: ModelProfile,
    *,
    hardware: HardwareProfile | None = None,
    suite: str = "quick",
    budget_s: float | None = None,
    dtype: str = "auto",
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
    present); ``dtype`` auto is the fastest in a short trial on a CPU and the checkpoint's 16-bit type on CUDA. ``output`` is written
    after every round. Ctrl-C returns what was measured, with ``interrupted`` set.

    Raises UsageError for names and sizes that make no sense, MeasurementError without torch, device or memory.
    """
    clock = SystemClock()
    start = clock.now()
    if suite not in SUITES:
        raise UsageError(f"unknown suite {suite!r}", "there are: " + ", ".join(SUITES))
    budget = SUITES[suite].budget_s if budget_s is None else budget_s
    if not 0 < budget < math.inf:
        raise UsageError(f"the budget must be above 0 seconds, not {budget}")
    sizes = {
        "batch_size": batch_size,
        "input_len": input_len,
        "context_len": context_len,
        "tensor_parallel_size": tensor_parallel_size,
    }
    patterns = only if only is None or isinstance(only, str) else list(only)
    # Refuse what cannot be asked before torch is loaded; a whole id names a dtype, which auto does not know yet.
    list_cases(model, dtype=dtype, only=None if dtype == "auto" else patterns, grid=grids.for_suite(suite, "cuda"), **sizes)
    if output is not None:
        run_file.check_writable(output)
    torch = require_torch()
    kind, index = devices.choose(torch, device)
    facts = devices.describe(torch, kind, index)
    progress(ProgressEvent("device", device_line(facts)))
    with ExitStack() as stack:
        monitor = open_monitor(kind, environment.device_uuid(torch, facts), index)
        stack.callback(monitor.close)
        chosen, trial_s = settle_dtype(torch, model, facts, dtype, clock, monitor, progress)
        work = workload(model, chosen, only=patterns, grid=grids.for_suite(suite, kind), **sizes)
        settings = {
            "suite": suite, "budget_s": budget, "dtype_asked": dtype, "dtype": chosen, "dtype_trial_s": trial_s, "seed": seed,
            "only": [patterns] if isinstance(patterns, str) else patterns or [], **sizes,
        }  # fmt: skip
        plan = ceiling_module.plan_for(kind)
        runner = open_runner(torch, facts, model, work, plan, seed)
        stack.callback(runner.close)
        record = environment.record(torch, facts, chosen)
        session = Session(
            model, work, facts, runner, clock, monitor, settings, record, plan, rounds=SUITES[suite].rounds,
            working_sets=grids.for_suite(suite, kind).working_sets, hardware=hardware, output=output, progress=progress,
        )  # fmt: skip
        session.notices += first_notices(model, facts, chosen)
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
    planned: int = 0
    interrupted: bool = False

    def run(self, start_s: float, deadline_s: float) -> MeasureResult:
        """Measure until the rounds are done or ``deadline_s`` on the clock; Ctrl-C keeps what there is."""
        random = Random(self.settings.get("seed", 0))
        keep = self.facts.free_bytes // devices.MEMORY_SHARE
        bench = Bench(self.runner, self.clock, self.monitor, random, self.rule, self.progress, keep_bytes=keep)
        self.cases = [State(c) for c in self.work.cases]
        self.planned = self.rounds
        try:
            self._measure(bench, deadline_s - _RESERVE_S)
        except KeyboardInterrupt:
            self.interrupted = True
        return self._result(start_s)

    def _measure(self, bench: Bench, deadline_s: float) -> None:
        begin = self.clock.now()
        self.progress(ProgressEvent("ceilings", "looking for the ceilings of this device"))
        groups = ceiling_module.candidates(self.plan, self.work.dtype, self.work.cases)
        groups |= ceiling_module.working_sets(self.working_sets, self.work.dtype)
        self.ceilings = ceiling_module.search(bench, groups, _CEILING_SHARE * max(0.0, deadline_s - begin))
        for done, state in enumerate(self.cases):
            self.progress(ProgressEvent("prepare", f"first timing of {state.case.id}", done + 1, len(self.cases)))
            bench.first_timing(state)
        states = self.ceilings + self.cases
        left = deadline_s - self.clock.now()
        self.planned = affordable_rounds(states, self.rounds, left)
        expected = estimated_s(states, self.planned, self.rule, left)
        self.settings["rounds_planned"] = self.planned
        self.progress(ProgressEvent("plan", self._plan_line(expected, left)))
        run_rounds(bench, states, self.planned, deadline_s, self._after_round)

    def _plan_line(self, expected_s: float, left_s: float) -> str:
        line = f"{len(self.cases)} cases and {len(self.ceilings)} ceilings in {self.planned} rounds: about {format_seconds(expected_s)}"
        if expected_s > left_s + 1:
            self.notices.append(
                Notice("W_OVER_BUDGET", "one look at every case takes longer than the budget; narrow the run with --only")
            )
            line += f", more than the {format_seconds(max(0.0, left_s))} left: the budget cuts rounds, not coverage"
        elif self.planned < self.rounds:
            line += f" (the budget allows {self.planned} of {self.rounds} rounds)"
        return line

    def _after_round(self, finished: int) -> None:
        self.settings["rounds_finished"] = finished
        self._save(complete=False)

    def _save(self, *, complete: bool) -> str | None:
        """Write the run file, if one is wanted; a failure is a warning, since the measurement itself is good."""
        if self.output is None:
            return None
        results, cases = self._results()
        found = ceiling_module.collect(results)
        rows, phases, _ = comparison.compare(self.work, cases, found, self.hardware)
        run = run_file.document(
            model={"id": self.model.id, "name": self.model.name},
            environment=self.environment,
            settings=self.settings,
            monitor={"source": self.monitor.source, "interval_s": None},
            ceilings=found,
            ceiling_cases=results,
            cases=cases,
            hardware=datasheet_record(self.hardware) if self.hardware else None,
            rows=rows,
            phases=phases,
            not_measured=self.work.not_measured,
            warnings=self.notices,
            complete=complete,
        )
        try:
            run_file.write(run, self.output)
        except OSError as fault:
            notice = Notice("W_NOT_SAVED", f"cannot write the run file: {fault.strerror or fault}; the last good one is kept")
            if notice not in self.notices:
                self.notices.append(notice)
                self.progress(ProgressEvent("warning", notice.message))
            return None
        self.progress(ProgressEvent("saved", f"saved {self.output}"))
        return str(self.output)

    def _results(self) -> tuple[tuple[CaseResult, ...], tuple[CaseResult, ...]]:
        """(ceilings, cases) as far as they are known, all of one kind: undisturbed, or contended where the run as a whole is."""
        contended = is_contended(self.cases)
        ceilings, cases = (tuple(s.result(self.planned, contended=contended) for s in part) for part in (self.ceilings, self.cases))
        return ceilings, cases

    def _result(self, start_s: float) -> MeasureResult:
        ceiling_results, results = self._results()
        if is_contended(self.cases):
            message = (
                "other processes had the processor throughout: all samples count and nothing is trusted; repeat when it is quiet"
            )
            self.notices.append(Notice("W_CONTENDED", message))
        found = ceiling_module.collect(ceiling_results)
        rows, phases, faults = comparison.compare(self.work, results, found, self.hardware)
        self.notices += faults
        saved = self._save(complete=not self.interrupted)
        return MeasureResult(
            model_id=self.model.id,
            hardware_id=self.hardware.id if self.hardware else None,
            environment=self.environment,
            settings=self.settings,
            monitor={"source": self.monitor.source},
            ceilings=found,
            ceiling_cases=ceiling_results,
            cases=results,
            rows=rows,
            phases=phases,
            not_measured=self.work.not_measured,
            warnings=tuple(self.notices),
            interrupted=self.interrupted,
            output=saved,
            duration_s=self.clock.now() - start_s,
        )


def datasheet_record(hardware: HardwareProfile) -> dict[str, Any]:
    """The rates that predictions of this device start from."""
    rates = roofline.datasheet(hardware)
    return {
        "id": hardware.id,
        "name": hardware.name,
        "peak_flops_per_s": dict(rates.peaks),
        "bandwidth_bytes_per_s": rates.bandwidth,
        "memory_bytes": hardware.memory_capacity_gb * 1e9 if hardware.memory_capacity_gb else None,
    }
