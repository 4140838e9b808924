"""Warnings of a case: what was seen, the likely cause, and the option that helps, or what to do where that option is already on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from calc.measure.records import Notice, Round
from calc.measure.runner import Setup
from calc.measure.statistics import CLUSTER_GAP, median, outliers, quantile, two_clusters
from calc.units import format_number, format_percent, format_seconds

NOISY_SPREAD, UNRELIABLE_SPREAD = 0.10, 0.25  # quartile spread over the median
_OUTLIER_SHARE, _SLOW_FIRST, _DROPPED_SHARE = 0.05, 1.20, 0.10
_FEWEST_JUDGED = 10  # samples of a round: the deviations of a few say nothing
_ROUNDS_APART = 0.25
_SET_ASIDE_SHARE = 0.5
_MOST = 0.5  # of the looks at the device


def of_samples(
    samples: list[tuple[float, ...]], rounds: Sequence[Round], interval: tuple[float, float] | None, time_s: float, *, setup: Setup,
    narrowed: bool,
) -> list[Notice]:  # fmt: skip
    """What the samples in use show by themselves: one tuple of samples for each of ``rounds``. ``narrowed``: --only is in use."""
    found: list[Notice] = []
    helps = _helps(rounds, narrowed=narrowed)
    spread = median([_quartile_spread(r) for r in samples])
    if spread > NOISY_SPREAD:
        code = "W_UNRELIABLE" if spread > UNRELIABLE_SPREAD else "W_NOISY"
        message = f"half of the samples spread over {format_percent(spread)} of the median: a shared or throttled machine; {helps}"
        found.append(Notice(code, message))
    if interval and (interval[1] - interval[0]) / 2 / time_s > _ROUNDS_APART:
        message = f"rounds differ, 95 % interval {format_seconds(interval[0])} to {format_seconds(interval[1])}: "
        found.append(Notice("W_ROUNDS_DIFFER", message + f"clock drift or another load; {helps}"))
    judged = [r for r in samples if len(r) >= _FEWEST_JUDGED]
    count, wild = sum(map(len, judged)), sum(map(outliers, judged))
    if wild > _OUTLIER_SHARE * count:
        message = f"{wild} of {count} samples lie more than 10 deviations out: something interrupts now and then; {helps}"
        found.append(Notice("W_OUTLIERS", message))
    slow = [r for r in samples if len(r) > 2 and r[0] > _SLOW_FIRST * median(r)]
    if len(slow) > len(samples) / 2:
        found.append(Notice("W_SLOW_FIRST", _slow_first(rounds, narrowed=narrowed)))
    # Two clusters in most rounds: a single disturbed round is noise, not a second algorithm.
    pairs = [p for p in map(two_clusters, samples) if p]
    if len(pairs) > len(samples) / 2:
        low, high = (format_seconds(t) for t in pairs[-1])
        found.append(Notice("W_BIMODAL", f"samples form two groups, at {low} and {high}: {_two_of_what(rounds, setup)}"))
    return found


def of_the_device(rounds: Sequence[Round], kept: int, lost: Counter[str], *, spoilt: bool) -> list[Notice]:
    """What was seen of the device and its neighbours. ``kept`` samples gave the value, ``lost`` ones were dropped in rounds that
    kept none; ``spoilt``: no round was undisturbed."""
    found: list[Notice] = []
    reasons = Counter(lost)
    for r in rounds:
        reasons.update(r.dropped)
    dropped, total = sum(reasons.values()), sum(len(r.samples_s) + len(r.preempted_s) for r in rounds)
    if dropped > _DROPPED_SHARE * (kept + dropped):
        message = (
            f"{dropped} of {kept + dropped} samples were taken while the device was held back ({', '.join(sorted(reasons))}): "
        )
        found.append(Notice("W_DROPPED", message + "cool it, check its power supply, and run again"))
    if spoilt:
        message = "other processes had the processor in every round; stop them, or repeat when the machine is quiet"
        found.append(Notice("W_CONTENDED", message))
    elif total - kept > _SET_ASIDE_SHARE * total:
        message = f"{total - kept} of {total} samples were set aside: other processes had the processor meanwhile; stop them"
        found.append(Notice("W_PREEMPTED", message))
    clocks = _clocks(rounds)
    if clocks and clocks[0] < (1 - CLUSTER_GAP) * median(clocks):
        message = f"the clock was {_hertz(clocks[0])} in one round and {_hertz(median(clocks))} in others: power or heat; "
        found.append(Notice("W_CLOCK", message + "the administrator can lock it, or run again when the device is cool"))
    if sum(r.labels.get("idle", 0.0) > _MOST for r in rounds) > len(rounds) / 2:
        message = (
            "the device was idle at most looks although samples were made longer: the host does not feed it; stop other jobs on it"
        )
        found.append(Notice("W_IDLE", message))
    return found


def _helps(rounds: Sequence[Round], *, narrowed: bool) -> str:
    """The option that gives a case more or better samples; another text where it has all that options can give."""
    if any(r.stop == "budget" for r in rounds):
        return "a larger --budget gives it more samples" + ("" if narrowed else ", and so does --only")
    if not narrowed:
        return "measure it alone with --only, or repeat when the machine is quiet"
    return "it already runs alone with all the samples it asks for, so no option helps: stop other jobs, or have the clocks locked"


def _slow_first(rounds: Sequence[Round], *, narrowed: bool) -> str:
    seen = "the first sample of most rounds is over 20 % slow: "
    if any(r.stop == "budget" for r in rounds):
        return seen + "the budget cuts the warm-up; use a larger --budget" + ("" if narrowed else " or --only")
    return seen + "the warm-up was whole, so clocks or caches fall back between cases; the median hardly sees it"


def _two_of_what(rounds: Sequence[Round], setup: Setup) -> str:
    clocks = _clocks(rounds)
    if not clocks:
        unseen = "two algorithms, two clocks or a neighbour"
        return unseen if setup.timer == "wall" else f"{unseen}; install nvidia-ml-py, so that the clock is watched"
    if clocks[0] < (1 - CLUSTER_GAP) * clocks[-1]:
        return f"two clocks, {_hertz(clocks[0])} and {_hertz(clocks[-1])}; the administrator can lock one"
    return "two algorithms or a neighbour, since the clock stayed the same; measure it alone with --only"


def _clocks(rounds: Sequence[Round]) -> list[float]:
    """Clocks of the rounds from the slowest, where they were read."""
    return sorted(r.sm_clock_hz for r in rounds if r.sm_clock_hz)


def _hertz(clock_hz: float) -> str:
    return f"{format_number(clock_hz / 1e9, 3)} GHz"


def _quartile_spread(samples: tuple[float, ...]) -> float:
    ordered = sorted(samples)
    return (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / quantile(ordered, 0.5)
