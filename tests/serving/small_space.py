"""A plan small enough to be checked by trying everything: a toy model, two devices, and the steady state written out point by point."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from calc.memory.options import MemoryOptions
from calc.operators import work
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.serving.load.traffic import Traffic, uniform
from calc.serving.phase import evaluate
from calc.serving.plan.option import Demand, GoalName, Objectives
from calc.serving.plan.search import Plan, Question, plan
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


def step_s(deployment: Deployment, prompts: float, request: tuple[int, int], decoding: float, context: float, part: str) -> float:
    """One step, by one evaluation on plain numbers."""
    new, cached = request
    parts = work.Work("prefill", (work.Requests(prompts, new, cached, writes_source=True),))
    found = evaluate(deployment, work.mixed(parts, work.decode(decoding, context))).time_s
    return float(getattr(found, part))


@cache
def tried(deployment_id: tuple[str, int, int], length: tuple[int, int], users: float, closed: bool, part: str) -> Tried:
    """The steady state of a replica written out from its definitions, for one prompt length and one number of requests."""
    name, tensor, stages = deployment_id
    prompt, output = length
    deployment = resolve(loaded(MODEL), loaded(DEVICES[name]), options(tensor, stages, prompt + output))
    context = prompt + output / 2
    decoding = math.ceil(max(users, 1) / stages)
    others = (users - 1 if closed else users) / stages
    arriving = others * prompt / output
    room = max(BUDGET - others, 1)
    pieces = math.ceil(prompt / room)
    chunk = min(max(prompt / pieces, arriving), room)
    share = min(arriving / chunk, 1.0)

    def step(tokens: float, decode: float, at: str = part) -> float:
        return step_s(deployment, tokens / prompt, (prompt, 0), decode, context, at)

    plain, mixed, full = step(0, decoding), step(chunk, others), step(room, others)
    effect, best = deployment.efficiency.composition("serving.loaded")
    floor = (1 - share) * step(0, decoding, "floor") + share * step(chunk, others, "floor")
    layers = MODEL.num_hidden_layers
    pace = math.ceil(layers / stages) * stages / layers
    mean = (1 - share) * plain + share * mixed
    tpot = max(step(0, 1), effect * mean, min(floor / best, mean)) * pace
    filled = max(step(BUDGET, 0), effect * full, min(step(room, others, "floor") / best, full))
    limit = room / prompt / (filled * pace) * stages
    own = mixed * (pieces + stages - 1) / stages
    residual = ((1 - share) * plain**2 + share * mixed**2) / (2 * mean)
    think = (output - 1) * tpot
    if closed:
        free = users / limit - think
        wait = max((free + math.sqrt(free * free + 4 * think / limit)) / 2 - 1 / limit, 0.0)
        first = (1 - 1 / users) * residual + wait
        rate = users / (first + own + think)
    else:
        rate = min(users / (output * tpot), limit)
        used = rate / limit
        first = (1 - math.exp(-users)) * residual + (used / (1 - used) / 2 / limit if used < 1 else math.inf)
    return Tried(tpot, first + own, first + own + think, rate)


def options(tensor: int, stages: int, length: int) -> DeploymentOptions:
    """Options of one deployment of the space."""
    memory = replace(BASE.memory, max_model_len=length, max_num_seqs=SEQUENCES, max_num_batched_tokens=BUDGET)
    return replace(BASE, tensor_parallel_size=tensor, pipeline_parallel_size=stages, data_parallel_size=1, memory=memory)


def brute_force(names: tuple[str, ...], length: tuple[int, int], objectives: Objectives, demand: Demand, part: str) -> float | None:
    """USD per hour of the cheapest deployment, every one tried with every number of replicas and every number of requests."""
    best: float | None = None
    for name in names:
        price = DEVICES[name].cloud_price_usd_per_hour
        assert price is not None
        for tensor in TENSOR:
            for stages in PIPELINE:
                deployment = resolve(loaded(MODEL), loaded(DEVICES[name]), options(tensor, stages, sum(length)))
                held = deployment.engine.capacity(deployment.question())
                fit = deployment.engine.sequences(deployment.question(), held, length[0] + length[1] // 2) if held.fits else 0
                for replicas in range(1, MAX_GPUS // (tensor * stages) + 1):
                    usd = price.value * tensor * stages * replicas
                    if (best is None or usd < best) and _carries(
                        (name, tensor, stages), length, objectives, demand, replicas, fit, part
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


def fits_uniform(length: tuple[int, int]) -> Traffic:
    """Requests of one length."""
    return uniform(*length)
