"""What a load is held to: latency objectives, the demand, and what a deployment lacks to meet them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calc.errors import UsageError, require
from calc.serving.load.effect import LOADED, SATURATED
from calc.serving.load.traffic import Traffic

#: Share of the sustainable rate that is left free unless said otherwise: arrivals of a day are not even.
HEADROOM = 0.2
#: Shortest latency that can be asked for, in seconds: no step is near it.
LEAST_S = 1e-9


@dataclass(frozen=True)
class Objectives:
    """Latencies in seconds, above 0, that the tail request must meet; None: no such objective."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            require(getattr(self, name), name, LEAST_S)

    def given(self) -> dict[str, float]:
        """Objectives that were set, by the name of the figure they hold."""
        return {n: v for n in ("ttft_s", "tpot_s", "e2e_s") if (v := getattr(self, n)) is not None}


@dataclass(frozen=True)
class Demand:
    """What has to be carried: ``request_rate`` (requests/s of independent users) or ``concurrency`` (users who ask again as soon as
    they are answered); neither: as much as the devices can. ``headroom`` is the share of the sustainable rate left free."""

    request_rate: float | None = None
    concurrency: int | None = None
    headroom: float = HEADROOM

    def __post_init__(self) -> None:
        if self.request_rate is not None and self.concurrency is not None:
            raise UsageError("a request rate and a number of users contradict each other", "say one of them")
        require(self.request_rate, "request_rate", 1e-12, 1e12)
        require(self.concurrency, "concurrency", 1, 1 << 24)
        require(self.headroom, "headroom", 0.0, 0.95)

    @property
    def closed(self) -> bool:
        """A fixed number of users."""
        return self.request_rate is None

    @property
    def needed_rate(self) -> float:
        """Requests/s that the objectives must hold at."""
        return (self.request_rate or 0.0) / (1 - self.headroom)

    def users(self, replicas: int) -> int:
        """Users of the busiest replica."""
        return -(-(self.concurrency or 1) // replicas)


@dataclass(frozen=True)
class Shortfall:
    """What a deployment lacks: ``kind`` is weights, kv_cache, batch_limit, prefill, ttft_s, tpot_s, e2e_s or request_rate; ``found``
    against ``limit``. ``because`` is the kind that keeps a rate so low; ``any load`` where not even an idle replica is fast enough."""

    kind: str
    found: float
    limit: float
    because: str | None = None

    @property
    def excess(self) -> float:
        """How far from the limit: 1 is on it, 2 misses it by a factor of two."""
        worse, better = (
            (self.limit, self.found) if self.kind in ("request_rate", "kv_cache", "batch_limit") else (self.found, self.limit)
        )
        return worse / better if better > 0 else math.inf


@dataclass(frozen=True)
class Rules:
    """What every option is held to. ``part`` is the end of the range that is judged."""

    traffic: Traffic
    objectives: Objectives
    demand: Demand
    max_gpus: int
    conservative: bool = False

    @property
    def part(self) -> str:
        """``expected``, or ``high`` when conservative."""
        return "high" if self.conservative else "expected"

    @property
    def composition(self) -> str:
        """Which fitted effect the steps take: as published throughput was measured where nothing but throughput is asked for (all
        requests wait from the start), else as under a stated load."""
        demand = self.demand
        offline = demand.request_rate is None and demand.concurrency is None and not self.objectives.given()
        return SATURATED if offline else LOADED
