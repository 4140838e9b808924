"""From rounds to a case result: time with interval, status, and warnings that say what was seen, the likely cause and what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from calc.measure.cases import Case
from calc.measure.records import CaseResult, Notice, Round
from calc.measure.runner import Setup
from calc.measure.statistics import log_interval, median, median_interval, outliers, quantile, two_clusters
from calc.units import format_percent, format_seconds

NOISY_SPREAD, UNRELIABLE_SPREAD = 0.10, 0.25  # quartile spread over the median
_OUTLIER_SHARE, _SLOW_FIRST, _DROPPED_SHARE = 0.05, 1.20, 0.10
_ROUNDS_APART = 0.25
_SET_ASIDE_SHARE = 0.5


def failed(case: Case, why: str) -> CaseResult:
    """A case without a time."""
    return CaseResult(case, "failed", failure=why)


def conclude(
    case: Case, setup: Setup, repeats: int, rounds: Sequence[Round], planned_rounds: int, *, contended: bool = False
) -> CaseResult:
    """The result of a case that has at least one round.

    Rounds that other processes spoilt stay in the record but give no value where a quiet one exists. In a ``contended`` run all
    samples of all rounds count, so that prediction and measurement are of the same kind, and nothing is trusted.
    """
    used = [r for r in rounds if r.quiet] if not contended else []
    spoilt = not used
    used = used or list(rounds)
    samples = [r.used_s(contended=contended) for r in used]
    values = {r.index: median(s) for r, s in zip(used, samples, strict=True)}
    time_s, interval = log_interval(list(values.values()))
    ordered = sorted(s for part in samples for s in part)
    found = _sample_notices(samples, interval, time_s) + _physical_notices(rounds, len(ordered), spoilt=spoilt)
    if len(used) < 3:
        cause = "Ctrl-C or a neighbour took the others" if len(used) < planned_rounds else "the budget allows no more"
        found.append(Notice("W_FEW_ROUNDS", f"{len(used)} round(s), so there is no interval: {cause}"))
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
        warnings=tuple(found),
    )


def _status(codes: set[str]) -> str:
    if codes & {"W_UNRELIABLE", "W_DROPPED", "W_CONTENDED"}:
        return "unreliable"
    return "noisy" if codes & {"W_NOISY", "W_ROUNDS_DIFFER", "W_PREEMPTED"} else "ok"


def _sample_notices(rounds: list[tuple[float, ...]], interval: tuple[float, float] | None, time_s: float) -> list[Notice]:
    """What the samples in use show by themselves; one tuple of samples per round."""
    found: list[Notice] = []
    spread = median([_quartile_spread(r) for r in rounds])
    if spread > NOISY_SPREAD:
        code = "W_UNRELIABLE" if spread > UNRELIABLE_SPREAD else "W_NOISY"
        cause = "a shared or throttled machine: stop other jobs, or repeat when it is quiet"
        found.append(Notice(code, f"half of the samples spread over {format_percent(spread)} of the median; {cause}"))
    if interval and (interval[1] - interval[0]) / 2 / time_s > _ROUNDS_APART:
        message = f"rounds differ: 95 % interval {format_seconds(interval[0])} to {format_seconds(interval[1])}; "
        found.append(Notice("W_ROUNDS_DIFFER", message + "clock drift or another load; run again when the machine is quiet"))
    count, wild = sum(map(len, rounds)), sum(map(outliers, rounds))
    if wild > _OUTLIER_SHARE * count:
        message = f"{wild} of {count} samples lie more than 10 deviations out; "
        found.append(Notice("W_OUTLIERS", message + "another process interrupts: stop it or use a larger --budget"))
    slow = [r for r in rounds if len(r) > 2 and r[0] > _SLOW_FIRST * median(r)]
    if len(slow) > len(rounds) / 2:
        message = "the first sample of most rounds is over 20 % slow: the warm-up was cut; use a larger --budget"
        found.append(Notice("W_SLOW_FIRST", message))
    # Two clusters in most rounds: a single disturbed round is noise, not a second algorithm.
    pairs = [p for p in map(two_clusters, rounds) if p]
    if len(pairs) > len(rounds) / 2:
        low, high = (format_seconds(t) for t in pairs[-1])
        found.append(
            Notice("W_BIMODAL", f"samples form two groups, at {low} and {high}: two algorithms, two clocks or a neighbour")
        )
    return found


def _physical_notices(rounds: Sequence[Round], kept: int, *, spoilt: bool) -> list[Notice]:
    """Samples that a recorded reason spoils: dropped ones, and preempted ones that were set aside or had to be used."""
    found: list[Notice] = []
    reasons = Counter[str]()
    for r in rounds:
        reasons.update(r.dropped)
    dropped, total = sum(reasons.values()), sum(len(r.samples_s) + len(r.preempted_s) for r in rounds)
    if dropped > _DROPPED_SHARE * (kept + dropped):
        message = (
            f"{dropped} samples were taken while the device was held back ({', '.join(sorted(reasons))}); cool it and run again"
        )
        found.append(Notice("W_DROPPED", message))
    if spoilt:
        message = "other processes had the processor in every round; stop them, or repeat when the machine is quiet"
        found.append(Notice("W_CONTENDED", message))
    elif total - kept > _SET_ASIDE_SHARE * total:
        message = f"{total - kept} of {total} samples were set aside: other processes had the processor meanwhile"
        found.append(Notice("W_PREEMPTED", message))
    return found


def _quartile_spread(samples: tuple[float, ...]) -> float:
    ordered = sorted(samples)
    return (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / quantile(ordered, 0.5)
