"""One deployment under load: what it carries at every load, which loads meet the objectives, how many replicas a demand takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from calc.formula import formula
from calc.memory.budget import Capacity
from calc.serving.cost import Price
from calc.serving.deployment import Deployment
from calc.serving.load import batching
from calc.serving.load.objectives import Rules, Shortfall
from calc.serving.load.replica import Load, Replica, replica
from calc.serving.speculation import Draft

#: Loads below one request in flight: independent users of an almost idle replica.
_LIGHT = tuple(2.0**-i for i in range(10, 0, -1))
#: Rates are compared with a tolerance for rounding: a replica that carries exactly what is asked carries it.
_SLACK = 1e-9
#: Loads between two rungs of the ladder that are tried at once, twice, to find a stated rate: the line between two of them is then
#: true to about one part in 10^8.
_BETWEEN = 64
#: Requests in flight that are tried at most where neither memory nor the engine limits them.
_MOST_IN_FLIGHT = 1 << 16


@formula("max(1, ceil(request_rate / (1 - headroom) * (1 - 1e-9) / most_rate))")
def replicas_for(request_rate: float, headroom: float, most_rate: float) -> int:
    """Fewest replicas of ``most_rate`` requests/s each that carry a rate with a share of it left free."""
    return max(1, math.ceil(request_rate / (1 - headroom) * (1 - _SLACK) / most_rate))


@dataclass(frozen=True)
class Option:
    """A deployment of one replica with its memory, and its draft. ``room`` is how many requests find memory at once, ``limit`` how many
    run. ``further`` are loads that are looked at beside those of the ladder."""

    deployment: Deployment
    held: Capacity
    price: Price | None
    rules: Rules
    room: float
    draft: Draft | None = None
    further: tuple[float, ...] = ()

    def __repr__(self) -> str:
        return f"<Option: {self.deployment!r}>"

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
        return int(min(self.room, self.engine_limit, _MOST_IN_FLIGHT)) if self.held.fits else 0

    @property
    def engine_limit(self) -> float:
        """Requests at once that the engine takes: as asked, else its default."""
        return self.held.sequence_limit or math.inf

    @cached_property
    def replica(self) -> Replica:
        """The replica at every load that is tried."""
        import numpy as np

        demand = self.rules.demand
        points: set[float] = {*batching.batch_ladder(self.limit), *self.further}
        if not demand.closed:
            points |= set(_LIGHT)
        elif demand.concurrency is not None:
            points |= {demand.users(r) for r in range(1, self.most_replicas + 1) if demand.users(r) <= self.limit}
        return self._replica_at(np.array(sorted(points), dtype=float))

    def _replica_at(self, loads: Any) -> Replica:
        rules = self.rules
        traffic = rules.traffic.cached_in_blocks(self.held.block_tokens)
        return replica(
            self.deployment, self.held, traffic, loads, closed=rules.demand.closed, draft=self.draft, composition=rules.composition
        )

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

    def rate(self, replicas: int) -> float | None:
        """Requests/s that ``replicas`` of it answer under the demand; None where they do not carry it. A number of users that does not
        divide by the replicas is taken to be as slow everywhere as on the busiest one: more replicas than users answer nothing more."""
        demand, at = self.rules.demand, self.index(replicas)
        if at is None or demand.request_rate is not None:
            return None if at is None else demand.request_rate
        busy = replicas if demand.concurrency is None else demand.concurrency / demand.users(replicas)
        return busy * float(self.load.rate[at])

    def at_rate(self, replicas: int) -> Option:
        """The option with the very load among its points at which ``replicas`` of it carry a stated rate: rungs of the ladder carry
        more. Itself where no rate is stated or it is not carried."""
        import numpy as np

        rate, at = self.rules.demand.request_rate, self.index(replicas)
        if rate is None or at is None:
            return self
        wanted = rate / replicas
        loads, rates = np.append(0.0, self.replica.in_flight), np.append(0.0, self.load.rate)
        over = at + 1
        for _ in range(2):
            loads = np.linspace(loads[over - 1], loads[over], _BETWEEN + 1)
            rates = np.append(rates[over - 1], self._replica_at(loads[1:]).at(self.rules.part).rate)
            enough = np.flatnonzero(rates >= wanted)
            if not len(enough) or not enough[0]:  # a rung, but for rounding
                return self
            over = int(enough[0])
        return replace(self, further=(float(np.interp(wanted, rates[over - 1 : over + 1], loads[over - 1 : over + 1])),))

    @cached_property
    def fewest_replicas(self) -> int | None:
        """Fewest replicas that carry the demand, however many GPUs that takes; None: no number of them does."""
        demand = self.rules.demand
        if self.best is None:
            return None
        if demand.request_rate is not None:
            return replicas_for(demand.request_rate, demand.headroom, self.most_rate)
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
            broken = [s for s in self.broken_at(best + 1) if math.isfinite(s.found)]
            return broken[0] if broken else Shortfall("prefill", float(points[best + 1]), float(points[best]))
        if self.room < self.engine_limit:
            return Shortfall("kv_cache", self.room, self.room)
        return Shortfall("batch_limit", float(self.limit), float(self.limit))

    def _memory_shortfall(self) -> Shortfall:
        held = self.held
        if not held.loaded:
            return Shortfall("weights", float(held.fixed_bytes_per_gpu), float(held.limit_bytes_per_gpu))
        return Shortfall("kv_cache", float(self.room if self.held.fits else min(self.room, held.max_concurrency)), 1.0)
