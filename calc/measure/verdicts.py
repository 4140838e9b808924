"""From rounds to a case result: time with interval, status, warnings, and what the device was seen to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from calc.measure import advice
from calc.measure.cases.operators import Case
from calc.measure.records import CaseResult, Notice, Round
from calc.measure.runner import Setup
from calc.measure.statistics import log_interval, median, median_interval, quantile
from calc.units import format_count

_LABELLED = 0.5  # of the looks
_ENERGY_WINDOW_S = 0.5  # the counter is refreshed too seldom for less


def failed(case: Case, why: str) -> CaseResult:
    """A case without a time."""
    return CaseResult(case, "failed", failure=why)


def conclude(
    case: Case, setup: Setup, repeats: int, rounds: Sequence[Round], planned_rounds: int, *, contended: bool = False,
    narrowed: bool = False, lost: Counter[str] | None = None,
) -> CaseResult:  # fmt: skip
    """The result of a case that has at least one round.

    Rounds that other processes spoilt stay in the record but give no value where a quiet one exists. In a ``contended`` run all
    samples of all rounds count, so that prediction and measurement are of the same kind, and nothing is trusted. ``narrowed`` and
    ``lost`` are those of the warnings (see ``advice``).
    """
    used = [r for r in rounds if r.quiet] if not contended else []
    spoilt = not used
    used = used or list(rounds)
    samples = [r.used_s(contended=contended) for r in used]
    values = {r.index: median(s) for r, s in zip(used, samples, strict=True)}
    time_s, interval = log_interval(list(values.values()))
    ordered = sorted(s for part in samples for s in part)
    found = advice.of_samples(samples, used, interval, time_s, setup=setup, narrowed=narrowed)
    found += advice.of_the_device(rounds, len(ordered), lost or Counter(), spoilt=spoilt)
    if len(used) < 3:
        cause = "the budget allows no more; use a larger --budget" + ("" if narrowed else " or --only")
        if len(used) < planned_rounds:
            cause = "Ctrl-C, a neighbour or the end of the budget took the others"
        found.append(Notice("W_FEW_ROUNDS", f"{format_count(len(used), 'round')}, so there is no interval: {cause}"))
    clocks = [r.sm_clock_hz for r in used if r.sm_clock_hz]
    return CaseResult(
        case,
        _status({n.code for n in found}),
        time_s=time_s,
        interval_s=interval,
        minimum_s=ordered[0],
        quartiles_s=(quantile(ordered, 0.25), quantile(ordered, 0.75)),
        p95_s=quantile(ordered, 0.95),
        sample_interval_s=median_interval(sorted(samples[-1])),
        rounds=tuple(rounds),
        round_values_s=values,
        timer=setup.timer,
        repeats_per_sample=repeats,
        operand_copies=setup.copies,
        cache=setup.cache,
        launch=setup.launch,
        kernel=setup.kernel,
        launches=setup.launches,
        labels=("power_limited",) if _power_limited(used) else (),
        cycles=time_s * log_interval(clocks)[0] if clocks else None,
        energy_per_call_j=_energy_per_call(rounds),
        warnings=tuple(found),
    )


def _status(codes: set[str]) -> str:
    if codes & {"W_UNRELIABLE", "W_DROPPED", "W_CONTENDED"}:
        return "unreliable"
    return "noisy" if codes & {"W_NOISY", "W_ROUNDS_DIFFER", "W_PREEMPTED", "W_IDLE"} else "ok"


def _power_limited(rounds: Sequence[Round]) -> bool:
    return sum(r.labels.get("power_limited", 0.0) > _LABELLED for r in rounds) > len(rounds) / 2


def _energy_per_call(rounds: Sequence[Round]) -> float | None:
    """Joules of one call from the counter, None where nobody told or for less than half a second."""
    told = [r for r in rounds if r.energy_j is not None and r.calls]
    if sum(r.elapsed_s for r in told) < _ENERGY_WINDOW_S:
        return None
    return sum(r.energy_j or 0.0 for r in told) / sum(r.calls for r in told)
