"""What a budget allows, once every case has been timed for the first time: rounds, samples, and what to say about it."""

from __future__ import annotations

from dataclasses import dataclass

from calc.measure.records import Notice
from calc.measure.rounds import FEWEST_SAMPLES, State
from calc.measure.sampling import StopRule
from calc.units import format_count, format_seconds

_FEWEST_ROUNDS = 3  # below it there is no interval


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds, the samples that each holds at least of each case, one line about it, and a warning where the budget is too small."""

    rounds: int
    samples: int
    line: str
    notice: Notice | None


def plan(cases: list[State], ceilings: list[State], wanted: int, rule: StopRule, left_s: float, *, narrowed: bool) -> Plan:
    """As much of the ``wanted`` rounds as ``left_s`` seconds allow. ``narrowed``: --only is in use."""
    states = ceilings + cases
    rounds, samples = affordable_rounds(states, wanted, left_s)
    expected_s = estimated_s(states, rounds, samples, rule, left_s)
    work = f"{format_count(len(cases), 'case')} and {format_count(len(ceilings), 'ceiling')} in {format_count(rounds, 'round')}"
    line = f"{work}: about {format_seconds(expected_s)}"
    if left_s > 0 and expected_s <= left_s + 1:
        allowed = f" (the budget allows {rounds} of {wanted} rounds)" if rounds < wanted else ""
        return Plan(rounds, samples, line + allowed, None)
    left = f"more than the {format_seconds(left_s)} left" if left_s > 0 else "and no time is left"
    line += f", {left}: what no round reaches keeps its first timing"
    helps = "--only is in use already, so give it a larger --budget or a shorter --input-len"
    if not narrowed:
        helps = "narrow the run with --only, or give it a larger --budget"
    notice = Notice("W_OVER_BUDGET", f"one round takes longer than the budget, so first timings stand in; {helps}")
    return Plan(rounds, samples, line, notice)


def affordable_rounds(states: list[State], wanted: int, left_s: float) -> tuple[int, int]:
    """(rounds, samples of each case in a round) that fit into ``left_s`` seconds: at least one round, whatever the budget. Where
    three samples leave no three rounds there are fewer samples, since the interval comes from the rounds."""
    living = [s for s in states if s.in_rounds]
    rounds, samples = wanted, FEWEST_SAMPLES
    for samples in range(FEWEST_SAMPLES, 0, -1):
        least = sum(s.least_s(samples) for s in living)
        rounds = min(wanted, int(left_s / least) if least > 0 else wanted)
        if rounds >= min(_FEWEST_ROUNDS, wanted):
            break
    return max(1, rounds), samples


def estimated_s(states: list[State], rounds: int, samples: int, rule: StopRule, left_s: float) -> float:
    """Seconds that the rounds will take: noise may prolong them up to the budget, coverage beyond it."""
    living = [s for s in states if s.in_rounds]
    least = rounds * sum(s.least_s(samples) for s in living)
    need = sum(s.need_s(rule) for s in living) + (rounds - 1) * sum(s.need_s(rule, warm=True) for s in living)
    return max(least, min(left_s, need))
