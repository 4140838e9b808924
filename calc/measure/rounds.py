"""Rounds: every case once in a fresh random order, so that drift and neighbours hit all alike. A budget cuts rounds, never coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from calc.measure.cases.operators import Case
from calc.measure.device.monitor import WAITED_SHARE, Monitor, Reading, waited_s
from calc.measure.progress import CaseProgress, Progress, ProgressEvent
from calc.measure.records import CaseResult, Round
from calc.measure.runner import Clock, NotAvailable, OutOfMemory, Runner, Setup, Timed
from calc.measure.sampling import WARM_UP_S, StopRule, Visit, sample_case, warm_up
from calc.measure.timers import BLOCK_S
from calc.measure.verdicts import conclude, failed
from calc.units import format_seconds

_WARM_UP_SHARE = 1 / 3  # of a case's time in its first round
FEWEST_SAMPLES = 3  # what a round should at least hold of each case when the budget is planned
_CONTENDED_SHARE = 0.25  # of a phase's time
_SLOW_CALL_S = 1.0  # such a call is timed once, not twice, before the rounds


@dataclass
class State:
    """A case on its way through the run."""

    case: Case
    timed: Timed | None = None
    setup: Setup | None = None
    call_s: float = 0.0
    repeats: int = 1
    warm: bool = False
    failure: str | None = None
    once: bool = False  # measured apart from the rounds (a thermal state)
    first: Round | None = None  # the first timing: what there is where no round came, for lack of time or by Ctrl-C
    rounds: list[Round] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)  # samples dropped in rounds that kept none

    @property
    def in_rounds(self) -> bool:
        """Whether rounds visit the case."""
        return self.failure is None and not self.once

    @property
    def taken(self) -> list[Round]:
        """The rounds, or the first timing where there is none and nothing failed."""
        return self.rounds or ([self.first] if self.first is not None and self.failure is None else [])

    def need_s(self, rule: StopRule, *, warm: bool | None = None) -> float:
        """Seconds that a round takes when the stop rule is met without trouble; ``warm`` None: as the case is now."""
        sample_s = max(self.call_s, BLOCK_S)
        is_warm = self.warm if warm is None else warm
        return min(rule.max_time_s, max(rule.min_samples * sample_s, rule.min_time_s)) + (0.0 if is_warm else WARM_UP_S)

    def least_s(self, samples: int) -> float:
        """Seconds that a round with so many samples takes, and a call to warm up."""
        return (samples + 1) * max(self.call_s, BLOCK_S)

    def result(self, planned: int, *, contended: bool = False, narrowed: bool = False) -> CaseResult:
        """What is known of the case so far."""
        taken = self.taken
        if not taken or self.setup is None:
            held_back = f"the device was held back all the time ({', '.join(sorted(self.lost))})" if self.lost else None
            return failed(self.case, self.failure or held_back or "the run ended before it was measured")
        return conclude(self.case, self.setup, self.repeats, taken, planned, contended=contended, narrowed=narrowed, lost=self.lost)


@dataclass
class Bench:
    """A run in progress: what times, what watches, how long, in which order."""

    runner: Runner
    clock: Clock
    monitor: Monitor
    random: Random
    rule: StopRule
    progress: Progress
    keep_bytes: int = 1 << 40  # activations that may stay allocated between rounds
    fewest_samples: int = FEWEST_SAMPLES
    _kept: int = 0

    def open(self, state: State) -> Timed | None:
        """The prepared case; a case that does not fit or does not exist here fails and stays failed."""
        if state.timed is None and state.failure is None:
            try:
                state.timed = self.runner.prepare(state.case)
            except (OutOfMemory, NotAvailable, MemoryError) as fault:
                self.fail(state, fault)
        return state.timed

    def fail(self, state: State, fault: Exception) -> None:
        """Note why a case ends here; the run goes on."""
        kind = "not available" if isinstance(fault, NotAvailable) else "out of memory"
        state.failure = f"{kind}: {fault}"
        if state.timed is not None:
            state.timed.close()
            state.timed = None
        self.progress(ProgressEvent("warning", f"{state.case.id} failed: {state.failure}"))

    def first_timing(self, state: State) -> None:
        """Check the kernel against float32 and estimate its time; keep it prepared where memory allows."""
        timed = self.open(state)
        if timed is None:
            return
        try:
            timed.begin()
            try:
                wrong = timed.check()
                before, taken = self.monitor.read(), timed.sample(1, 1)
                if taken[0] < _SLOW_CALL_S:
                    taken += timed.sample(1, 1)
                state.first, state.call_s = _first_round(taken, before, self.monitor.read()), min(taken)
            finally:
                timed.end()
        except (OutOfMemory, NotAvailable, MemoryError) as fault:
            self.fail(state, fault)
            return
        if not wrong <= 1:  # NaN too
            self.fail(state, NotAvailable(f"wrong result: off a float32 reference by {wrong:.3g} times the tolerance"))
            return
        state.setup = timed.setup
        self._kept += timed.setup.held_bytes
        if self._kept > self.keep_bytes:
            self._kept -= timed.setup.held_bytes
            timed.close()
            state.timed = None

    def visit(self, state: State, index: int, limit_s: float) -> None:
        """One round of one case within ``limit_s`` seconds; what was sampled is kept when Ctrl-C ends it."""
        keep = state.timed is not None
        timed = self.open(state)
        if timed is None:
            return
        visit = Visit(index)
        start = self.clock.now()
        try:
            timed.begin()
            try:
                self._warm(state, timed, limit_s)
                state.repeats = timed.repeats_for(state.call_s)
                left = max(0.0, limit_s - (self.clock.now() - start))
                sample_case(timed, state.call_s, self.rule, left, self.clock, self.monitor, visit)
                state.setup = timed.setup  # a timer may have fallen back
            finally:
                timed.end()
                taken = visit.record()
                if taken:
                    state.rounds.append(taken)
                    # A round among neighbours must not make the next samples too short for the timer.
                    state.call_s = taken.median_s if taken.quiet else min(state.call_s, taken.median_s)
                else:
                    state.lost.update(visit.dropped)
        except (OutOfMemory, NotAvailable, MemoryError) as fault:
            self.fail(state, fault)
            return
        if not keep:
            timed.close()
            state.timed = None

    def _warm(self, state: State, timed: Timed, limit_s: float) -> None:
        """Warm up by time in the first round, by a block in later ones; slow calls were warmed by their first timing."""
        slow = 4 * state.call_s > limit_s
        if not state.warm and not slow:
            state.call_s = warm_up(timed, self.clock, _WARM_UP_SHARE * limit_s)
        elif not slow:
            timed.sample(timed.repeats_for(state.call_s), 1)
        state.warm = True

    def round(self, states: list[State], index: int, planned: int, end_s: float, last_s: float) -> None:
        """Every case once in random order until ``end_s``; time that one leaves over goes to those after it. Where the budget holds
        a few samples of each, a case gets them even when those before it took more than their share. ``last_s`` ends the run: a case
        that no round has reached by then keeps its first timing."""
        order = [s for s in states if s.in_rounds]
        self.random.shuffle(order)
        fits = sum(s.least_s(self.fewest_samples) for s in order) <= end_s - self.clock.now()
        for done, state in enumerate(order):
            needs = [s.need_s(self.rule) for s in order[done:]]
            left = end_s - self.clock.now()
            if state.taken and not state.rounds and self.clock.now() >= last_s:
                continue
            self.visit(state, index, max(left * needs[0] / sum(needs), state.least_s(self.fewest_samples) if fits else 0.0))
            if state.rounds:
                ahead = sum(needs[1:]) + (planned - index - 1) * sum(s.need_s(self.rule) for s in order)
                left_s = max(0.0, min(ahead, last_s - self.clock.now()))
                self.progress(_case_event(state, index, planned, left_s, done + 1, len(order)))


def _first_round(samples: list[float], before: Reading, after: Reading) -> Round | None:
    """The first timing as a round, None where the device was unwell. The first of two calls loads libraries and does not count."""
    kept = tuple(samples[-1:])
    if after.unwell:
        return None
    if waited_s(before, after) > WAITED_SHARE * sum(samples):
        return Round(0, (), "budget", preempted_s=kept)
    return Round(0, kept, "budget")


def _case_event(state: State, index: int, planned: int, left_s: float, done: int, total: int) -> ProgressEvent:
    """A visit for whoever watches: the case so far."""
    known = state.result(planned)
    time_s = known.time_s if known.time_s is not None else state.rounds[-1].median_s
    case = CaseProgress(state.case.id, index + 1, planned, time_s, known.interval_s, known.status, left_s)
    text = f"round {index + 1}/{planned}  {state.case.id}  {format_seconds(time_s)}  {known.status}"
    return ProgressEvent("case", text, done, total, case)


def run_rounds(bench: Bench, states: list[State], rounds: int, deadline_s: float, after: Callable[[int], None]) -> int:
    """Up to ``rounds`` rounds before ``deadline_s`` on the clock; ``after`` is called with the number of finished ones.

    Returns how many were finished. A round that would begin after the deadline is left out, the first one never.
    """
    for index in range(rounds):
        now = bench.clock.now()
        if index and now >= deadline_s:
            return index
        bench.round(states, index, rounds, now + (deadline_s - now) / (rounds - index), deadline_s)
        after(index + 1)
    return rounds


def is_contended(states: list[State]) -> bool:
    """Whether other processes spoilt a run as a whole: cases without any quiet round take a good part of a phase. Then ceilings must
    not come from the few quiet moments that only short calls find."""
    spent: dict[tuple[str, bool], float] = {}
    for state in states:
        if state.taken:
            quiet = any(r.quiet for r in state.taken)
            key = (state.case.phase, quiet)
            spent[key] = spent.get(key, 0.0) + state.case.calls * state.call_s
    return any(
        time_s > _CONTENDED_SHARE * (time_s + spent.get((phase, True), 0.0))
        for (phase, quiet), time_s in spent.items()
        if not quiet
    )
