"""A plan small enough to be checked by trying everything: a toy model, three devices, and every load looked at alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from calc.memory.options import MemoryOptions
from calc.serving.deployment import DeploymentOptions, resolve
from calc.serving.load.memory import room
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.replica import replica
from calc.serving.load.traffic import Traffic, uniform
from calc.serving.plan.search import GoalName, Plan, Question, plan
from calc.serving.plan.space import Space
from tests.support.profiles import attention, decoder, device, loaded

MODEL = decoder(hidden=1024, layers=6, mixers=attention(16, 4, 64), width=4096, vocab=32000, id="toy")
SMALL = device(id="small", memory_capacity_gb=2.0, memory_reported_mib=2048.0, cloud_price_usd_per_hour={"value": 1.0}, tdp_w=100.0)
LARGE = device(
    id="large", memory_capacity_gb=8.0, memory_reported_mib=8192.0, memory_bandwidth_gb_per_s=3000.0,
    peaks={"fp32": 30.0, "fp16": 400.0, "bf16": 400.0}, cloud_price_usd_per_hour={"value": 3.5}, tdp_w=300.0,
)  # fmt: skip
CHEAP = device(
    id="cheap", memory_capacity_gb=4.0, memory_reported_mib=4096.0, memory_bandwidth_gb_per_s=700.0,
    cloud_price_usd_per_hour={"value": 0.4},
)  # fmt: skip
DEVICES = {d.id: d for d in (SMALL, LARGE, CHEAP)}
TENSOR, PIPELINE, MAX_GPUS, SEQUENCES, BUDGET = (1, 2), (1, 2), 4, 12, 1024
BASE = DeploymentOptions(engine="ideal", memory=MemoryOptions(gpu_memory_utilization=0.9))
SPACE = Space(
    base=BASE, max_num_seqs=(SEQUENCES,), max_num_batched_tokens=(BUDGET,), tensor=TENSOR, pipeline=PIPELINE, max_gpus=MAX_GPUS
)  # fmt: skip


def ask(
    names: tuple[str, ...],
    traffic: Traffic,
    objectives: Objectives,
    demand: Demand,
    goal: GoalName = "cost",
    conservative: bool = False,
) -> Plan:
    """The plan of the small space."""
    hardware = tuple(loaded(DEVICES[n]) for n in names)
    return plan(Question(loaded(MODEL), hardware, traffic, objectives, demand, goal, conservative, space=SPACE))


@dataclass(frozen=True)
class Tried:
    """One way to run, tried on its own: seconds and requests/s of a replica."""

    tpot_s: float
    ttft_s: float
    e2e_s: float
    rate: float

    def meets(self, objectives: Objectives) -> bool:
        """Whether all objectives hold."""
        return all(getattr(self, n) <= v for n, v in objectives.given().items())


@cache
def tried(deployment_id: tuple[str, int, int], length: tuple[int, int], users: float, closed: bool, part: str) -> Tried:
    """A replica at one number of requests, looked at alone."""
    name, tensor, stages = deployment_id
    deployment = resolve(loaded(MODEL), loaded(DEVICES[name]), options(tensor, stages, sum(length)))
    held = deployment.engine.capacity(deployment.question())
    one = replica(deployment, held, uniform(*length), np.array([users]), closed=closed).at(part)
    return Tried(float(one.tpot_s[0]), float(one.ttft_s[0]), float(one.e2e_s[0]), float(one.rate[0]))


def options(tensor: int, stages: int, length: int) -> DeploymentOptions:
    """Options of one deployment of the space."""
    memory = replace(BASE.memory, max_model_len=length, max_num_seqs=SEQUENCES, max_num_batched_tokens=BUDGET)
    return replace(BASE, tensor_parallel_size=tensor, pipeline_parallel_size=stages, data_parallel_size=1, memory=memory)


def brute_force(
    names: tuple[str, ...], length: tuple[int, int], objectives: Objectives, demand: Demand, conservative: bool
) -> float | None:
    """USD per hour of the cheapest deployment, every one tried with every number of replicas and every number of requests."""
    best: float | None = None
    for name in names:
        price = DEVICES[name].cloud_price_usd_per_hour
        assert price is not None
        for tensor in TENSOR:
            for stages in PIPELINE:
                deployment = resolve(loaded(MODEL), loaded(DEVICES[name]), options(tensor, stages, sum(length)))
                held = deployment.engine.capacity(deployment.question())
                fit = min(int(room(held, uniform(*length), conservative=conservative)), SEQUENCES) if held.fits else 0
                for replicas in range(1, MAX_GPUS // (tensor * stages) + 1):
                    usd = price.value * tensor * stages * replicas
                    if (best is None or usd < best) and _carries(
                        (name, tensor, stages), length, objectives, demand, replicas, fit, "high" if conservative else "expected"
                    ):
                        best = usd
    return best


def _carries(
    deployment_id: tuple[str, int, int],
    length: tuple[int, int],
    objectives: Objectives,
    demand: Demand,
    replicas: int,
    fit: int,
    part: str,
) -> bool:
    if demand.concurrency is not None:
        users = math.ceil(demand.concurrency / replicas)
        return users <= fit and tried(deployment_id, length, float(users), True, part).meets(objectives)
    loads = [2.0**-i for i in range(1, 11)] + [float(n) for n in range(1, fit + 1)] if fit else []
    points = [tried(deployment_id, length, load, False, part) for load in loads]
    most = max((p.rate for p in points if p.meets(objectives) and math.isfinite(p.ttft_s)), default=0.0)
    return most > 0 and replicas * most >= demand.needed_rate * (1 - 1e-9)
