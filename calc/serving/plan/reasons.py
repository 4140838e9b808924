"""What a plan says beside its answers: why the next cheaper deployments fail, what misses by least, which objective would have to give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calc.serving.load.answer import Answer
from calc.serving.load.objectives import Shortfall
from calc.serving.load.option import Option
from calc.serving.plan import instances
from calc.serving.plan.search import Plan


@dataclass(frozen=True)
class Failure:
    """``replicas`` of an option do not carry the demand: why, worst first."""

    option: Option
    replicas: int
    usd_per_hour: float | None
    shortfalls: tuple[Shortfall, ...]

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.option.ranks

    @property
    def excess(self) -> float:
        """How far it misses: the largest factor."""
        return max(s.excess for s in self.shortfalls)


@dataclass(frozen=True)
class Concession:
    """Everything else holds if ``objective`` gives way from ``asked`` to ``needed``: ``replicas`` of ``option`` then meet all."""

    objective: str
    asked: float
    needed: float
    option: Option
    replicas: int


def _failure(option: Option, replicas: int) -> Failure:
    usd = instances.bill(option, replicas * option.ranks)
    return Failure(option, replicas, usd, tuple(option.shortfalls(replicas)))


def _one_per_device(failures: Iterable[Failure], count: int) -> list[Failure]:
    found: dict[str, Failure] = {}
    for failure in failures:
        found.setdefault(failure.option.deployment.hardware.name, failure)
    return list(found.values())[:count]


def cheaper_failures(plan: Plan, count: int = 3) -> list[Failure]:
    """The most expensive deployment of each device that is still cheaper than the best answer, and why it fails; those that fit in
    memory first. Only where less of something is the goal (cost, GPUs)."""
    goal = plan.question.goal
    if not plan.answers or goal not in ("cost", "gpus"):
        return []
    best = plan.answers[0]
    found = []
    for option in plan.options:
        usd = best.usd_per_hour if goal == "cost" and option.price else None
        gpus = best.gpus - 1 if usd is None else instances.affordable(option, usd)
        replicas = min(gpus // option.ranks, option.most_replicas)
        if replicas >= 1:
            failure = _failure(option, replicas)
            found.append((float(failure.gpus) if usd is None else failure.usd_per_hour or 0.0, failure))
    failed = [(price, failure) for price, failure in found if failure.shortfalls]
    failed.sort(key=lambda f: (f[1].option.limit < 1, -f[0], f[1].excess))
    return _one_per_device((f for _, f in failed), count)


def fewest_gpus(plan: Plan, chosen: Answer) -> int:
    """Fewest GPUs of an answer's kind that would carry the demand too: whole instances cost the same with more of theirs in use."""
    alike = (o for o in plan.options if o.deployment.hardware.name == chosen.deployment.hardware.name)
    return min((n * o.ranks for o in alike if (n := o.fewest_replicas) and n <= o.most_replicas), default=chosen.gpus)


def nearest_misses(plan: Plan, count: int = 5) -> list[Failure]:
    """With all the GPUs allowed: the deployment of each device that misses by the smallest factor, those first that fit in memory."""
    failures = (_failure(o, o.most_replicas) for o in plan.options if o.most_replicas >= 1)
    failed = [f for f in failures if f.shortfalls]
    return _one_per_device(sorted(failed, key=lambda f: (f.option.limit < 1, f.excess)), count)


def concessions(plan: Plan) -> list[Concession]:
    """For each objective, and for the demand and the number of GPUs: what it would have to be so that some deployment meets all the
    others; those that no value of theirs alone would help are left out. Smallest concession first."""
    question = plan.question
    found = [c for name, asked in question.objectives.given().items() if (c := _latency_concession(plan, name, asked))]
    found += [c for c in (_demand_concession(plan), _gpu_concession(plan)) if c]
    return sorted(found, key=lambda c: max(c.needed, c.asked) / max(min(c.needed, c.asked), 1e-12))


def compromise(plan: Plan) -> list[Concession]:
    """What the latency objectives would have to be together, where no single one is enough: the deployment and load that carries the
    demand and exceeds them by the smallest factor."""
    given = plan.question.objectives.given()
    best: tuple[float, Option, int, int] | None = None
    for option in plan.options if given else ():
        for replicas, at in _loads(option):
            excess = max(float(getattr(option.load, n)[at]) / v for n, v in given.items())
            if math.isfinite(excess) and (best is None or excess < best[0]):
                best = (excess, option, replicas, at)
    if best is None:
        return []
    _, option, replicas, at = best
    found = [Concession(n, v, float(getattr(option.load, n)[at]), option, replicas) for n, v in given.items()]
    return [c for c in found if c.needed > c.asked]


def _loads(option: Option) -> Iterator[tuple[int, int]]:
    """(replicas, index of the load) of every way to carry the demand with the GPUs allowed, latency apart."""
    import numpy as np

    demand = option.rules.demand
    replicas = option.most_replicas
    if option.limit < 1 or replicas < 1:
        return
    if demand.request_rate is not None:
        load = option.load
        enough = np.flatnonzero((load.rate * replicas >= demand.needed_rate) & np.isfinite(load.ttft_s))
        yield from ((replicas, int(i)) for i in enough)
    else:
        for many in range(1, replicas + 1):
            users = demand.users(many)
            if users <= option.limit:
                yield many, int(np.searchsorted(option.replica.in_flight, users))


def _latency_concession(plan: Plan, name: str, asked: float) -> Concession | None:
    best: Concession | None = None
    others = {n: v for n, v in plan.question.objectives.given().items() if n != name}
    for option in plan.options:
        for replicas, at in _loads(option):
            value = float(getattr(option.load, name)[at])
            others_hold = math.isfinite(value) and all(getattr(option.load, n)[at] <= v for n, v in others.items())
            if others_hold and (best is None or value < best.needed):
                best = Concession(name, asked, value, option, replicas)
    return best


def _demand_concession(plan: Plan) -> Concession | None:
    demand = plan.question.demand
    able = [o for o in plan.options if o.best is not None and o.most_replicas >= 1]
    if not able or (demand.request_rate is None and demand.concurrency is None):
        return None
    if demand.request_rate is not None:
        best = max(able, key=lambda o: o.most_rate * o.most_replicas)
        needed = best.most_rate * best.most_replicas * (1 - demand.headroom)
        return Concession("request_rate", demand.request_rate, needed, best, best.most_replicas)

    def users(option: Option) -> int:
        return int(option.replica.in_flight[option.meets].max()) * option.most_replicas

    best = max(able, key=users)
    return Concession("concurrency", float(demand.concurrency or 1), float(users(best)), best, best.most_replicas)


def _gpu_concession(plan: Plan) -> Concession | None:
    able = [(o.fewest_replicas * o.ranks, i) for i, o in enumerate(plan.options) if o.fewest_replicas and o.best is not None]
    if not able:
        return None
    gpus, index = min(able)
    option = plan.options[index]
    return Concession("max_gpus", float(option.rules.max_gpus), float(gpus), option, gpus // option.ranks)
