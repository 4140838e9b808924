"""Serving records: compositions of prefill and decode steps, with no formula of their own.

* ``static``: a stated batch with stated lengths and a rate of output tokens: one prefill of the whole batch, then output steps.
* ``loaded``: a stated number of requests in flight and the time per output token: one step, and the prompts met while decoding. Equal
  requests that start together keep step: a request meets only the prompts behind its own, on average half of the others.
* ``saturated``: no batch stated: as many requests as memory and the engine's limit allow; time per output token of the whole server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.speed_model.case import Case, SkipError, groups
from benchmarks.speed_model.steps import Setup, setup
from calc.errors import RoofcastError
from calc.operators.step import step_operators
from calc.operators.work import decode, prefill
from calc.timing.calibrated import Calibrated
from calc.timing.terms import Mix, Sizes

#: Share of memory that engines fill, and the most sequences they run at once, where the record states neither.
_MEMORY_SHARE = 0.9
_MOST_SEQUENCES = {"tensorrt-llm": 2048, "vllm": 1024, "sglang": 1024}


@dataclass(frozen=True)
class Composition:
    """A sum of steps: terms, floor, and what the decode step is made of."""

    kind: str
    sizes: Sizes
    floor_s: float
    measured_s: float
    mix: Mix


def serving_case(record: dict[str, Any]) -> Case:
    """A serving record. Raises SkipError."""
    if not record.get("input_len") or not record.get("output_len"):
        raise SkipError("input or output length not stated")
    found = setup(record)
    try:
        composed = _compose(record, found)
    except (RoofcastError, ValueError) as error:
        raise SkipError(str(error)) from error
    sizes = {term: float(seconds) for term, seconds in composed.sizes.items() if float(seconds) > 0}

    def noise(model: Calibrated) -> float:
        return math.sqrt(model.variance("serving") + float(model.large_batch_variance(composed.mix)))

    where = groups(record, found.hardware.id, found.model.id)
    kind = f"serving.{composed.kind}"
    return Case(record, "serving", composed.measured_s, composed.floor_s, sizes, found.setting, where, kind, noise)


def _compose(record: Mapping[str, Any], found: Setup) -> Composition:
    measured, batch = record["measured"], record.get("batch")
    inputs, outputs = int(record["input_len"]), int(record["output_len"])
    context = inputs + outputs // 2
    if batch and measured.get("output_tokens_per_s"):
        batch = int(batch)
        step, prompt = decode(batch, context), prefill(batch, inputs)
        whole = _add(_scaled(found.sizes(step), outputs), found.sizes(prompt))
        floor = outputs * found.floor_s(step) + found.floor_s(prompt)
        seconds = batch * outputs / float(measured["output_tokens_per_s"])
        return Composition("static", whole, floor, seconds, found.mix(step))
    if batch and measured.get("ms_per_step"):
        batch = int(batch)
        step = decode(batch, context)
        whole = _add(found.sizes(step), _scaled(found.sizes(prefill(1, inputs)), (batch - 1) / 2 / outputs))
        # A scheduler that takes all prompts first lets none meet a decode step: the floor is the step alone.
        seconds = float(measured["ms_per_step"]) / 1e3
        return Composition("loaded", whole, found.floor_s(step), seconds, found.mix(step))
    if measured.get("output_tokens_per_s"):
        batch = _most_sequences(found, context)
        step = decode(batch, context)
        prompts = _beside_others(found, inputs)
        whole = _add(_scaled(found.sizes(step), 1 / batch), _scaled(prompts, 1 / outputs))
        floor = found.floor_s(step) / batch + float(prompts.get("prefill.linear", 0.0)) / outputs
        seconds = 1 / float(measured["output_tokens_per_s"])
        return Composition("saturated", whole, floor, seconds, found.mix(step))
    raise SkipError("neither a time per output token nor a rate was measured")


def _beside_others(found: Setup, inputs: int) -> Sizes:
    """The share of one prompt in passes that are filled with prompts like it."""
    together = max(1, found.setting.micro_batch // inputs)
    return _scaled(found.sizes(prefill(together, inputs)), 1 / together)


def _scaled(sizes: Sizes, factor: float) -> Sizes:
    return {term: seconds * factor for term, seconds in sizes.items()}


def _add(one: Sizes, two: Sizes) -> Sizes:
    return {term: one.get(term, 0.0) + two.get(term, 0.0) for term in {**one, **two}}


def _most_sequences(found: Setup, context: int) -> int:
    """Requests of ``context`` tokens that fit beside the weights, at most the engine's limit."""
    if "unlisted" in found.hardware.unit_of_account:
        raise SkipError(f"memory of {found.hardware.id} not known")
    every_expert = step_operators(found.model, found.sharding, found.numbers, prefill(4096, 2))
    weights = sum(float(o.weight_bytes) * o.count for o in every_expert)
    step = step_operators(found.model, found.sharding, found.numbers, decode(1, context))
    each = sum(float(o.kv_read_bytes + o.state_bytes) * o.count for o in step)
    room = found.hardware.memory_capacity_gb * 2**30 * _MEMORY_SHARE - weights
    if room < each:
        raise SkipError("the weights leave no room for a request")
    return max(1, min(int(room / max(each, 1.0)), _MOST_SEQUENCES.get(found.setting.family, 1024)))
