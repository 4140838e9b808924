"""The memory of a deployment under load: set up for a traffic, with a draft beside the model, and how many requests find room."""

from __future__ import annotations

import math
from dataclasses import replace

from calc.memory.budget import Capacity, MemoryOptions
from calc.memory.capacity import mixed_concurrency
from calc.serving.cost import Price
from calc.serving.deployment import Deployment
from calc.serving.load.objectives import Rules
from calc.serving.load.option import Option
from calc.serving.load.traffic import Traffic
from calc.serving.speculation import Draft


def framed(memory: MemoryOptions, traffic: Traffic) -> MemoryOptions:
    """Memory options set up for a traffic: its longest request unless a limit was given, its common prefix held once."""
    return replace(memory, max_model_len=memory.max_model_len or traffic.longest, cached_tokens=traffic.prefix)


def option(deployment: Deployment, price: Price | None, rules: Rules, draft: Draft | None = None) -> Option:
    """An option with its memory: the weights of a draft model of its own are loaded beside the model, and each request has a cache of
    both."""
    held = deployment.engine.capacity(deployment.question())
    if draft and (together := draft.beside(deployment, held, 1, 0)) is not deployment:
        held = together.engine.capacity(together.question())
    found = room(held, rules.traffic, conservative=rules.conservative)
    if draft and 0 < found < math.inf and held.kv_cache_bytes_per_gpu:
        lengths = [(r.input_len + r.output_len) if rules.conservative else r.mean_context for r in rules.traffic.requests]
        each = sum(draft.bytes_per_gpu(n, 1) - draft.bytes_per_gpu(n, 0) for n in lengths) / len(lengths)
        found = 1 / (1 / found + each / held.kv_cache_bytes_per_gpu)
    groups = deployment.sharding.data_ranks
    if groups > 1 and found != math.inf:  # two halves on two ranks are no room for one
        found = float(found // groups * groups)
    return Option(deployment, held, price, rules, found, draft)


def room(held: Capacity, traffic: Traffic, *, conservative: bool) -> float:
    """Requests that find memory at once: each at the mean length of its life (they start and end at different moments).
    ``conservative``: all at their full length, and the cache at the low end of its range. Slots are of full length anyway."""
    full = conservative or held.most_slots is not None
    return mixed_concurrency(held, traffic.at_full_length if full else traffic.in_flight, traffic.prefix, least=conservative)
