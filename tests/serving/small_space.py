"""A plan small enough to be checked by trying everything: toy models, three devices, and every load looked at alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from calc.memory.options import MemoryOptions
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.serving.load.memory import room
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.replica import replica
from calc.serving.load.traffic import Traffic, uniform
from calc.serving.plan.search import GoalName, Plan, Question, plan
from calc.serving.plan.space import Space
from tests.support.profiles import attention, decoder, device, loaded

MODEL = decoder(hidden=1024, layers=6, mixers=attention(16, 4, 64), width=4096, vocab=32000, id="toy")
EXPERTS = decoder(
    hidden=1024, layers=6, mixers=attention(16, 1, 64), width=1024, vocab=32000, id="toy-experts",
    feed_forward={"kind": "experts", "num_experts": 4, "num_experts_per_token": 2, "intermediate_size": 1024},
)  # fmt: skip
MODELS = {m.id: m for m in (MODEL, EXPERTS)}
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
#: A limit on each data-parallel rank, small enough that every load of all of them is tried.
EXPERTS_SEQUENCES = 4
SPACES = {"toy": SPACE, "toy-experts": replace(SPACE, max_num_seqs=(EXPERTS_SEQUENCES,))}


def ask(
    names: tuple[str, ...],
    traffic: Traffic,
    objectives: Objectives,
    demand: Demand,
    goal: GoalName = "cost",
    conservative: bool = False,
    model: str = "toy",
) -> Plan:
    """The plan of the small space."""
    hardware = tuple(loaded(DEVICES[n]) for n in names)
    return plan(Question(loaded(MODELS[model]), hardware, traffic, objectives, demand, goal, conservative, space=SPACES[model]))


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


@dataclass(frozen=True)
class Way:
    """A split of a model on a device."""

    model: str
    device: str
    tensor: int
    stages: int
    data: int = 1
    whole_experts: bool = False

    @property
    def ranks(self) -> int:
        """Devices of a replica."""
        return self.tensor * self.stages * self.data

    def deployment(self, length: int) -> Deployment:
        """The replica, for requests of ``length`` tokens."""
        sequences = SPACES[self.model].max_num_seqs[0]
        memory = replace(BASE.memory, max_model_len=length, max_num_seqs=sequences, max_num_batched_tokens=BUDGET)
        options = replace(
            BASE, tensor_parallel_size=self.tensor, pipeline_parallel_size=self.stages, data_parallel_size=self.data,
            enable_expert_parallel=self.whole_experts, memory=memory,
        )  # fmt: skip
        return resolve(loaded(MODELS[self.model]), loaded(DEVICES[self.device]), options)


def ways(model: str, name: str) -> Iterator[Way]:
    """Every split of the small space."""
    for tensor in TENSOR:
        for stages in PIPELINE:
            yield Way(model, name, tensor, stages)
            if model == "toy-experts":
                if tensor > 1:
                    yield Way(model, name, tensor, stages, whole_experts=True)
                for data in (2, 3, 4):
                    if tensor * stages * data <= MAX_GPUS and 4 % (tensor * data) == 0:
                        yield Way(model, name, tensor, stages, data, whole_experts=True)


@cache
def tried(way: Way, length: tuple[int, int], users: float, closed: bool, part: str) -> Tried:
    """A replica at one number of requests, looked at alone."""
    deployment = way.deployment(sum(length))
    held = deployment.engine.capacity(deployment.question())
    one = replica(deployment, held, uniform(*length), np.array([users]), closed=closed).at(part)
    return Tried(float(one.tpot_s[0]), float(one.ttft_s[0]), float(one.e2e_s[0]), float(one.rate[0]))


def fitting(way: Way, length: tuple[int, int], conservative: bool) -> int:
    """Requests at once: those that find room on a data-parallel rank, on each of them."""
    deployment = way.deployment(sum(length))
    held = deployment.engine.capacity(deployment.question())
    each = min(int(room(held, uniform(*length), conservative=conservative) / way.data), held.max_num_seqs)
    return each * way.data if held.fits else 0


def brute_force(
    names: tuple[str, ...], length: tuple[int, int], objectives: Objectives, demand: Demand, conservative: bool, model: str = "toy"
) -> float | None:
    """USD per hour of the cheapest deployment, every one tried with every number of replicas and every number of requests."""
    best: float | None = None
    part = "high" if conservative else "expected"
    for name in names:
        price = DEVICES[name].cloud_price_usd_per_hour
        assert price is not None
        for way in ways(model, name):
            fit = fitting(way, length, conservative)
            for replicas in range(1, MAX_GPUS // way.ranks + 1):
                usd = price.value * way.ranks * replicas
                if (best is None or usd < best) and _carries(way, length, objectives, demand, replicas, fit, part):
                    best = usd
    return best


def _carries(way: Way, length: tuple[int, int], objectives: Objectives, demand: Demand, replicas: int, fit: int, part: str) -> bool:
    if demand.concurrency is not None:
        users = math.ceil(demand.concurrency / replicas)
        return users <= fit and tried(way, length, float(users), True, part).meets(objectives)
    loads = [2.0**-i for i in range(1, 11)] + [float(n) for n in range(1, fit + 1)] if fit else []
    points = [tried(way, length, load, False, part) for load in loads]
    most = max((p.rate for p in points if p.meets(objectives) and math.isfinite(p.ttft_s)), default=0.0)
    return most > 0 and replicas * most >= demand.needed_rate * (1 - 1e-9)
