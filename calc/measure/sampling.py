"""Samples of one case in one round: warm-up by time, the stop rule, and samples dropped for a recorded physical reason."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from calc.measure.device.monitor import IDLE, POWER_LIMITED, WAITED_SHARE, Monitor, Reading, merged, waited_s
from calc.measure.records import Round
from calc.measure.runner import Clock, Timed
from calc.measure.statistics import Running, median

WARM_UP_S, _WARM_UP_CALLS, _LONGEST_WARM_UP_S = 0.2, 10, 2.0
BATCH_S = 0.05  # the monitor, the stop rule and Ctrl-C are looked at this often
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0
_LONGEST_STRETCH = 8  # times the usual calls per sample, where the device stays idle
_LABELS = {"power_limited": POWER_LIMITED, "idle": IDLE}


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a case has enough samples in a round: all of the first three, or one of the rest."""

    min_samples: int = 20
    min_time_s: float = 0.1
    precision: float = 0.01  # relative half-width of the order-statistic interval of the median
    max_time_s: float = 2.0
    flat_window: int = 64  # noise estimates that no longer fall: nvbench's criterion
    flat_spread: float = 0.05

    def reason(self, running: Running, timed_s: float, elapsed_s: float, limit_s: float) -> str | None:
        """Why sampling stops now: precise, flat, time (the rule's own limit) or budget (a tighter one); None to go on."""
        if len(running.arrived) >= self.min_samples and timed_s >= self.min_time_s:
            width = running.relative_half_width
            if width is not None and width < self.precision:
                return "precise"
            if running.noise_is_flat(self.flat_window, self.flat_spread):
                return "flat"
        if elapsed_s >= min(limit_s, self.max_time_s):
            return "time" if limit_s >= self.max_time_s else "budget"
        return None


@dataclass
class Visit:
    """Samples of one case in one round while they are taken; ``record`` freezes it, also when Ctrl-C ends it early.

    ``disturbed`` holds samples during which other processes had the processor.
    """

    index: int
    running: Running = field(default_factory=Running)
    disturbed: list[float] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    looks: list[Reading] = field(default_factory=list)
    calls: int = 0
    elapsed_s: float = 0.0
    stop: str = "interrupted"

    def record(self) -> Round | None:
        """The round, or None when no sample was kept."""
        if not self.running.arrived and not self.disturbed:
            return None
        found = merged(self.looks[1:] or self.looks)  # the first look came before the samples
        energies = [r.energy_j for r in self.looks if r.energy_j is not None]
        told = [r.reasons for r in self.looks[1:] if r.reasons is not None]
        labels = {name: sum(bool(r & bit) for r in told) / len(told) for name, bit in _LABELS.items()} if told else {}
        return Round(
            index=self.index,
            samples_s=tuple(self.running.arrived),
            stop=self.stop,
            preempted_s=tuple(self.disturbed),
            dropped=dict(self.dropped),
            sm_clock_hz=found.sm_clock_hz,
            memory_clock_hz=found.memory_clock_hz,
            temperature_c=found.temperature_c,
            power_w=found.power_w,
            energy_j=energies[-1] - energies[0] if len(energies) > 1 else None,
            calls=self.calls,
            elapsed_s=self.elapsed_s,
            labels=labels,
        )

    def take(self, samples: list[float], repeats: int, spoilt: str | None, *, preempted: bool) -> None:
        """Keep samples, set them aside, or drop and count them."""
        self.calls += len(samples) * repeats
        if spoilt:
            self.dropped[spoilt] += len(samples)
        elif preempted:
            self.disturbed += samples
        else:
            self.running.add(samples)

    def drop_all(self, why: str) -> None:
        """Drop what was kept: only a look after the last sample tells that the device was unwell."""
        self.dropped[why] += len(self.running.arrived) + len(self.disturbed)
        self.running, self.disturbed = Running(), []


def warm_up(timed: Timed, clock: Clock, limit_s: float) -> float:
    """Run until steady: at least 200 ms and 10 calls, then until two successive window medians differ by less than 1 %, at most 2 s
    or ``limit_s``. Returns seconds per call of the fastest window. First calls load libraries, pick algorithms and raise clocks."""
    limit = min(_LONGEST_WARM_UP_S, limit_s)
    start, calls, last, best = clock.now(), 0, None, math.inf
    call_s = timed.sample(1, 1)[0]
    while True:
        count = max(1, min(_WARM_UP_CALLS, int(BATCH_S / max(call_s, 1e-9))))
        window = median(timed.sample(1, count))
        calls += count
        best = min(best, window)
        elapsed = clock.now() - start
        steady = last is not None and abs(window - last) < 0.01 * last
        if elapsed >= limit or (elapsed >= WARM_UP_S and calls >= _WARM_UP_CALLS and steady):
            return best
        last = call_s = window


def sample_case(timed: Timed, call_s: float, rule: StopRule, limit_s: float, clock: Clock, monitor: Monitor, visit: Visit) -> None:
    """Take samples into ``visit`` until the rule is met or ``limit_s`` seconds are spent; at least one sample is taken.

    Samples taken while the device was unwell are dropped and counted, with a pause that doubles from 0.5 s to 10 s (at most half of
    what is left). Samples during which this process waited for a processor are set aside: they tell of its neighbours. A device that
    every look finds idle gets longer samples: the host does not feed it.
    """
    repeats = timed.repeats_for(call_s)
    start, timed_s, pause_s, longer = clock.now(), 0.0, _FIRST_PAUSE_S, 1
    before = monitor.read()
    visit.looks.append(before)
    while True:
        sample_s = max(call_s * repeats, 1e-9)
        left = limit_s - (clock.now() - start)
        count = max(1, min(int(min(BATCH_S, left) / sample_s), 10 * rule.min_samples))
        if before.waited_s is not None:
            count = 1  # so that each sample is judged by itself
        samples = timed.sample(repeats, count)
        after = before if monitor.slow else monitor.read()
        preempted = waited_s(before, after) > WAITED_SHARE * sum(samples) * repeats
        visit.take(samples, repeats, after.unwell, preempted=preempted)
        visit.elapsed_s = clock.now() - start
        if after.unwell:
            clock.sleep(min(pause_s, max(0.0, limit_s - visit.elapsed_s) / 2))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            after = monitor.read() if monitor.slow else after
        elif not preempted:
            timed_s += sum(samples) * repeats
        if not monitor.slow:
            visit.looks.append(after)
            if (after.reasons or 0) & IDLE and longer < _LONGEST_STRETCH:
                longer *= 2
                repeats = timed.repeats_for(call_s / longer)
        before = after
        stop = rule.reason(visit.running, timed_s, clock.now() - start, limit_s)
        if stop:
            visit.stop = stop
            break
    if monitor.slow:
        last = monitor.read()
        visit.looks.append(replace(last, reasons=None if last.reasons is None else last.reasons & ~IDLE))  # idle by now
        if last.unwell:
            visit.drop_all(last.unwell)
