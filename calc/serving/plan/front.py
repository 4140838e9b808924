"""The front of a plan: which replicas at which load no other beats in both latency and cost (or throughput per GPU)."""

from __future__ import annotations

from dataclasses import dataclass

from calc.serving import cost
from calc.serving.load.option import Option
from calc.serving.plan.search import Plan

#: Points of the front that are shown.
FRONT_POINTS = 12


@dataclass(frozen=True)
class Point:
    """A replica at a load: where no other is both faster and cheaper (or more productive where prices are unknown)."""

    option: Option
    in_flight: float
    tpot_s: float
    ttft_s: float
    output_tokens_per_s_per_gpu: float
    usd_per_million_output_tokens: float | None


def front(plan: Plan, count: int = FRONT_POINTS) -> list[Point]:
    """Replicas at loads that no other beats in both TPOT and USD per million output tokens (tokens/s per GPU where a price is
    unknown), among those that are not saturated and within the TTFT and end-to-end objectives (TPOT is an axis of its own, and shows what
    a looser one would buy); ``count`` of them, spread over the latencies."""
    import numpy as np

    priced = all(o.price for o in plan.options)
    output = plan.question.traffic.mean_output
    limits = {n: v for n, v in plan.question.objectives.given().items() if n != "tpot_s"}
    latency, worth, origin, index = [], [], [], []
    for number, option in enumerate(o for o in plan.options if o.limit >= 1):
        load = option.load
        held = np.isfinite(load.ttft_s) & (option.replica.in_flight >= 1)
        for name, most in limits.items():
            held &= getattr(load, name) <= most
        good = np.flatnonzero(held)
        per_gpu = load.rate[good] * output / option.ranks
        latency.append(load.tpot_s[good])
        worth.append(per_gpu / option.price.usd_per_hour if priced and option.price else per_gpu)
        origin.append(np.full(len(good), number))
        index.append(good)
    if not latency or not sum(map(len, latency)):
        return []
    seconds, value = np.concatenate(latency), np.concatenate(worth)
    order = np.lexsort((-value, seconds))
    best = np.maximum.accumulate(value[order])
    kept = order[np.flatnonzero(np.diff(best, prepend=-1.0) > 0)]
    if len(kept) > count:
        wanted = np.geomspace(seconds[kept[0]], seconds[kept[-1]], count)
        kept = kept[np.unique(np.searchsorted(seconds[kept], wanted * (1 - 1e-12)))]
    options = [o for o in plan.options if o.limit >= 1]
    origins, indices = np.concatenate(origin), np.concatenate(index)
    return [_point(options[origins[k]], int(indices[k]), output) for k in kept]


def _point(option: Option, at: int, output: float) -> Point:
    load = option.load
    per_gpu = float(load.rate[at]) * output / option.ranks
    usd = float(cost.usd_per_million(option.price.usd_per_hour, per_gpu)) if option.price else None
    return Point(option, float(option.replica.in_flight[at]), float(load.tpot_s[at]), float(load.ttft_s[at]), per_gpu, usd)
