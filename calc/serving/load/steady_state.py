"""One deployment under a stated load: the same steady state that a plan looks at, for a deployment that is settled already."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.serving.deployment import Deployment
from calc.serving.load.answer import Answer, answer
from calc.serving.load.memory import framed, option
from calc.serving.load.objectives import Demand, Objectives, Rules, Shortfall
from calc.serving.load.traffic import uniform
from calc.serving.request import Workload
from calc.serving.speculation import Draft


@dataclass(frozen=True)
class ServedLoad:
    """A demand on all replicas of a deployment: ``answer`` where they carry it, else why not (worst first); neither where no times
    are answered."""

    demand: Demand
    replicas: int
    answer: Answer | None
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def carried(self) -> bool | None:
        """Whether they carry it; None: not answered."""
        return True if self.answer is not None else False if self.shortfalls else None


def served_load(deployment: Deployment, workload: Workload, demand: Demand, draft: Draft | None = None) -> ServedLoad:
    """Requests of the workload's lengths (its batch and context apart) under a demand. Data-parallel replicas share it evenly; groups
    of ranks that share their experts are one replica. Not answered without rates."""
    sharding = deployment.sharding
    replicas = sharding.replicas
    if not deployment.has_rates:
        return ServedLoad(demand, replicas, None)
    traffic = uniform(workload.input_len, workload.output_len, workload.cached_len)
    one = replace(deployment, memory=framed(deployment.memory, traffic))
    if replicas > 1:
        one = replace(one, sharding=replace(sharding, data=1))
    rules = Rules(traffic, Objectives(), demand, max_gpus=sharding.gpus)
    found = option(one, None, rules, draft)
    if found.index(replicas) is None:
        return ServedLoad(demand, replicas, None, tuple(found.shortfalls(replicas)))
    return ServedLoad(demand, replicas, answer(found, replicas))
