"""The best matrix product in two thermal states: a cool device in its first moments, and one that has worked for seconds.

On parts that a power limit holds the two differ by physics, not by noise. Serving at saturation lives in the second.
"""

from __future__ import annotations

import math
from dataclasses import replace

from calc.measure.rounds import Bench, State
from calc.measure.runner import NotAvailable, OutOfMemory, Timed
from calc.measure.sampling import BATCH_S, StopRule, Visit, sample_case

NAMES = ("matmul_burst", "matmul_sustained")
IDLE_S, BURST_S, LOAD_S, SUSTAINED_S = 2.0, 0.05, 3.0, 0.3
NO_TIME = "not tried: the budget leaves no time for it"
#: As many turns as an interval needs, where there is time.
_TURNS = 3


def states(bench: Bench, best: State, limit_s: float) -> list[State]:
    """Burst and sustained rates of the case of ``best``, finished: burst after an idle time, sustained after a load. What ``limit_s``
    seconds do not hold is not tried and says so; the load alone is tried before the idle time."""
    burst_s, sustained_s = IDLE_S + BURST_S, LOAD_S + SUSTAINED_S
    wanted = NAMES if limit_s >= burst_s + sustained_s else NAMES[1:] if limit_s >= sustained_s else ()
    made = {name: _state(best, name) for name in NAMES}
    for name in NAMES:
        if name not in wanted:
            made[name].failure = NO_TIME
    timed = bench.open(best) if wanted else None
    if timed is None:
        for name in wanted:
            made[name].failure = best.failure
        return list(made.values())
    turns = min(_TURNS, int(limit_s // (sustained_s + (burst_s if len(wanted) > 1 else 0.0))))
    try:
        timed.begin()
        try:
            repeats = timed.repeats_for(best.call_s)
            timed.sample(repeats, 1)  # captures a graph before the device is left to cool
            for turn in range(turns):
                if len(wanted) > 1:
                    bench.clock.sleep(IDLE_S)
                    _visit(bench, timed, made[NAMES[0]], turn, BURST_S)
                _load(bench, timed, repeats, best.call_s)
                _visit(bench, timed, made[NAMES[1]], turn, SUSTAINED_S)
            for state in made.values():
                state.setup, state.repeats = timed.setup, repeats
        finally:
            timed.end()
    except (OutOfMemory, NotAvailable) as fault:
        for state in made.values():
            state.failure = state.failure or f"not available: {fault}"
    return list(made.values())


def _state(best: State, name: str) -> State:
    case = best.case
    of = case.id.replace(":matmul/", f":{name}/", 1)
    own = {"thermal": name.removeprefix("matmul_")}
    return State(replace(case, id=of, operation=name, parameters=case.parameters | own), call_s=best.call_s, once=True)


def _load(bench: Bench, timed: Timed, repeats: int, call_s: float) -> None:
    """Keep the device busy; nothing is kept of it."""
    end = bench.clock.now() + LOAD_S
    while bench.clock.now() < end:
        timed.sample(repeats, max(1, math.ceil(BATCH_S / max(call_s * repeats, 1e-9))))


def _visit(bench: Bench, timed: Timed, state: State, turn: int, length_s: float) -> None:
    """Samples for as long as the state lasts, at least one."""
    visit = Visit(turn)
    rule = StopRule(min_samples=1, min_time_s=math.inf, max_time_s=length_s)
    sample_case(timed, state.call_s, rule, length_s, bench.clock, bench.monitor, visit)
    taken = visit.record()
    if taken:
        state.rounds.append(taken)
