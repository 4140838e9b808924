"""One deployment as a plan sees it: what it carries at every load, which loads meet the objectives, how many replicas a demand takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from calc.errors import UsageError, require
from calc.memory.budget import Capacity
from calc.serving.cost import Price
from calc.serving.deployment import Deployment
from calc.serving.load import batching
from calc.serving.load.replica import LOADED, SATURATED, Load, Replica, replica
from calc.serving.load.traffic import Traffic
from calc.serving.speculation import Draft

GoalName = Literal["cost", "gpus", "tpot", "ttft", "throughput"]
#: Loads below one request in flight: independent users of an almost idle replica.
_LIGHT = tuple(2.0**-i for i in range(10, 0, -1))
#: Rates are compared with a tolerance for rounding: a replica that carries exactly what is asked carries it.
_SLACK = 1e-9
#: Most sequences of a llama.cpp context (LLAMA_MAX_SEQ in llama-cparams.h).
LLAMA_CPP_SLOTS = 256


@dataclass(frozen=True)
class Objectives:
    """Latencies in seconds that the tail request must meet; None: no such objective."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            require(getattr(self, name), name, 0.0)

    def given(self) -> dict[str, float]:
        """Objectives that were set, by the name of the figure they hold."""
        return {n: v for n in ("ttft_s", "tpot_s", "e2e_s") if (v := getattr(self, n)) is not None}


@dataclass(frozen=True)
class Demand:
    """What has to be carried: ``request_rate`` (requests/s of independent users) or ``concurrency`` (users who ask again as soon as
    they are answered); neither: as much as the devices can. ``headroom`` is the share of the sustainable rate left free."""

    request_rate: float | None = None
    concurrency: int | None = None
    headroom: float = 0.2

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


@dataclass(frozen=True)
class Option:
    """A deployment of one replica with its memory, and its draft. ``room`` is how many requests find memory at once, ``limit`` how many
    run."""

    deployment: Deployment
    held: Capacity
    price: Price | None
    rules: Rules
    room: float
    draft: Draft | None = None

    @property
    def ranks(self) -> int:
        """GPUs of a replica."""
        return self.deployment.sharding.gpus

    @property
    def most_replicas(self) -> int:
        """Replicas that the allowed GPUs make."""
        return self.rules.max_gpus // self.ranks

    @property
    def limit(self) -> int:
        """Most requests that run at once: memory, and the engine's own limit."""
        return int(min(self.room, self.engine_limit)) if self.held.fits else 0

    @property
    def engine_limit(self) -> int:
        """Requests at once that the engine takes: as asked, else its default; llama.cpp takes as many slots as it is told to."""
        if self.deployment.engine.NAME == "llama.cpp":
            return self.deployment.memory.max_num_seqs or LLAMA_CPP_SLOTS
        return self.held.sequence_limit or 1 << 16

    @cached_property
    def replica(self) -> Replica:
        """The replica at every load that is tried."""
        import numpy as np

        demand = self.rules.demand
        points: set[float] = set(batching.batch_ladder(self.limit))
        if not demand.closed:
            points |= set(_LIGHT)
        elif demand.concurrency is not None:
            points |= {demand.users(r) for r in range(1, self.most_replicas + 1) if demand.users(r) <= self.limit}
        traffic = self.rules.traffic.cached_in_blocks(self.held.block_tokens)
        loads = np.array(sorted(points), dtype=float)
        kind = self.rules.composition
        return replica(self.deployment, self.held, traffic, loads, closed=demand.closed, draft=self.draft, composition=kind)

    @cached_property
    def load(self) -> Load:
        """Figures at the judged end of the range."""
        return self.replica.at(self.rules.part)

    @cached_property
    def meets(self) -> Any:
        """Loads at which every latency objective holds."""
        import numpy as np

        good = np.isfinite(self.load.ttft_s)
        for name, most in self.rules.objectives.given().items():
            good = good & (getattr(self.load, name) <= most)
        return good

    @cached_property
    def best(self) -> int | None:
        """Index of the load with the highest rate that meets the objectives; None: there is none."""
        import numpy as np

        if self.limit < 1 or not self.meets.any():
            return None
        return int(np.where(self.meets, self.load.rate, -1.0).argmax())

    @property
    def most_rate(self) -> float:
        """Requests/s of a replica at that load; 0 where no load meets the objectives."""
        return float(self.load.rate[self.best]) if self.best is not None else 0.0

    def index(self, replicas: int) -> int | None:
        """Index of the load of each of ``replicas`` under the demand; None where they do not carry it within the objectives."""
        import numpy as np

        demand = self.rules.demand
        if self.limit < 1 or replicas < 1:
            return None
        if demand.request_rate is not None:
            if replicas * self.most_rate < demand.needed_rate * (1 - _SLACK):
                return None
            enough = self.meets & (self.load.rate * replicas >= demand.request_rate * (1 - _SLACK))
            return int(np.flatnonzero(enough)[0])
        if demand.concurrency is None:
            return self.best
        at = int(np.searchsorted(self.replica.in_flight, demand.users(replicas)))
        return at if demand.users(replicas) <= self.limit and bool(self.meets[at]) else None

    @cached_property
    def fewest_replicas(self) -> int | None:
        """Fewest replicas that carry the demand, however many GPUs that takes; None: no number of them does."""
        demand = self.rules.demand
        if self.best is None:
            return None
        if demand.request_rate is not None:
            return max(1, math.ceil(demand.needed_rate * (1 - _SLACK) / self.most_rate))
        within = next((r for r in range(1, self.most_replicas + 1) if self.index(r) is not None), None)
        if within is not None or demand.concurrency is None:
            return within
        return -(-demand.concurrency // int(self.replica.in_flight[self.meets].max()))

    def shortfalls(self, replicas: int) -> list[Shortfall]:
        """What keeps ``replicas`` of it from carrying the demand, worst first; empty where nothing does."""
        if self.limit < 1:
            return [self._memory_shortfall()]
        demand = self.rules.demand
        if self.index(replicas) is not None:
            return []
        if demand.request_rate is not None and self.best is not None:
            carried = replicas * self.most_rate * (1 - demand.headroom)
            return [Shortfall("request_rate", carried, demand.request_rate, self.limited_by().kind)]
        if demand.concurrency is not None and demand.users(replicas) > self.limit:
            kind = "kv_cache" if self.room < self.engine_limit else "batch_limit"
            return [Shortfall(kind, float(self.limit * replicas), float(demand.concurrency)), *self.broken_at(-1)]
        if demand.concurrency is None:
            return [replace(s, because="any load") for s in self.broken_at(0)]
        return self.broken_at(int((self.replica.in_flight < demand.users(replicas)).sum()))

    def broken_at(self, at: int) -> list[Shortfall]:
        """Latency objectives that do not hold at a load, worst first."""
        broken = [
            Shortfall(name, float(getattr(self.load, name)[at]), most)
            for name, most in self.rules.objectives.given().items()
            if not getattr(self.load, name)[at] <= most
        ]
        return sorted(broken, key=lambda s: -s.excess)

    def limited_by(self) -> Shortfall:
        """What fails at the first load beyond the best one: an objective, prefill, or the room for one more request."""
        points, best = self.replica.in_flight, self.best
        assert best is not None
        if best + 1 < len(points):
            broken = self.broken_at(best + 1)
            return broken[0] if broken else Shortfall("prefill", float(points[best + 1]), float(points[best]))
        if self.room < self.engine_limit:
            return Shortfall("kv_cache", self.room, self.room)
        return Shortfall("batch_limit", float(self.limit), float(self.limit))

    def _memory_shortfall(self) -> Shortfall:
        held = self.held
        usable = held.capacity_bytes_per_gpu * held.gpu_memory_utilization
        fixed = held.weights_bytes_per_gpu + held.activation_bytes_per_gpu + held.runtime_bytes_per_gpu + held.graph_bytes_per_gpu
        if held.kv_cache_bytes_per_gpu <= 0:
            return Shortfall("weights", float(fixed), usable)
        return Shortfall("kv_cache", float(self.room if self.held.fits else min(self.room, held.max_concurrency)), 1.0)
