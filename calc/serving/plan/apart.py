"""Prefill and decode on replicas of their own: how many of each carry a request rate within the objectives, and what that costs.

The same devices, splits and rules as the plan looks at; DistServe (arXiv 2401.09670) searches so. Prompts are computed one at a time,
each cache crosses the network layer by layer behind its prefill, and decode steps carry no prompts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from calc.operators import work
from calc.serving import cost, disaggregation
from calc.serving.disaggregation import Transfer
from calc.serving.load import batching
from calc.serving.load.replica import LOADED
from calc.serving.phase import timed_step
from calc.serving.plan.option import Option
from calc.serving.plan.search import Plan
from calc.timing.calibrated import Calibrated
from calc.timing.step_time import Range

_PARTS = ("floor", "low", "expected", "high")
_SLACK = 1e-9


@dataclass(frozen=True)
class Apart:
    """``prefill_replicas`` of one option hand caches to ``decode_replicas`` of another, each with at most ``batch_limit`` requests.

    ``prefill_per_decode`` is the ratio at which both would be busy all the time, ``sustainable_rate`` (requests/s) what both carry, of
    prompts that take ``prompt_s`` and full decode steps of ``step_s``.
    """

    prefill: Option
    decode: Option
    prefill_replicas: int
    decode_replicas: int
    batch_limit: int
    in_flight: float
    ttft_s: Range
    tpot_s: Range
    e2e_s: Range
    transfer: Transfer
    prompt_s: float
    step_s: float
    prefill_per_decode: float
    sustainable_rate: float
    usd_per_hour: float | None

    @property
    def gpus(self) -> int:
        """GPUs of all replicas of both kinds."""
        return self.prefill_replicas * self.prefill.ranks + self.decode_replicas * self.decode.ranks


@dataclass(frozen=True)
class _Prefill:
    """Prompts of an option, one at a time: seconds of the mean and of the tail request's prompt by end of the range."""

    option: Option
    mean_s: dict[str, float]
    tail_s: dict[str, float]
    transfer: Transfer

    def ttft_s(self, part: str, rate: float) -> float:
        """Wait for the prompts before, the own prompt, and what of the transfer it does not hide."""
        traffic = self.option.rules.traffic
        wait = batching.queue_s(rate, 1 / self.mean_s[part], traffic.arrival_cv2, traffic.prompt_cv2)
        return float(wait) + self.tail_s[part] + self.transfer.exposed_s


@dataclass(frozen=True)
class _Decode:
    """Decode steps of an option at every batch that is tried: seconds by end of the range."""

    option: Option
    batch: Any
    tpot_s: dict[str, Any]

    @cached_property
    def rate(self) -> Any:
        """Requests/s at each batch, at the judged end of the range."""
        return self.batch / (self.option.rules.traffic.mean_output * self.tpot_s[self.option.rules.part])


def apart(plan: Plan, count: int = 3) -> list[Apart]:
    """The best of each kind of device, best first: the least cost (GPUs where prices are unknown or asked for). Only a stated request
    rate can be carried; devices without a known network have none to send caches over."""
    demand = plan.question.demand
    if demand.request_rate is None:
        return []
    found = []
    for name in dict.fromkeys(o.deployment.hardware.name for o in plan.options):
        own = [o for o in plan.options if o.deployment.hardware.name == name and o.limit >= 1 and o.draft is None]
        prefills = [p for o in own if (p := _prefill(o))]
        decodes = [_decode(o) for o in own] if prefills else []
        pairs = [a for p in prefills for d in decodes if (a := _pair(p, d, demand.request_rate, demand.needed_rate))]
        if pairs:
            found.append(min(pairs, key=lambda a: _key(a, plan.question.goal)))
    return sorted(found, key=lambda a: _key(a, plan.question.goal))[:count]


def _key(found: Apart, goal: str) -> tuple[float, float, float]:
    usd = math.inf if found.usd_per_hour is None else found.usd_per_hour
    tpot = float(found.tpot_s.expected or 0.0)
    return (float(found.gpus), usd, tpot) if goal == "gpus" else (usd, float(found.gpus), tpot)


def _prefill(option: Option) -> _Prefill | None:
    deployment, traffic = option.deployment, option.rules.traffic.cached_in_blocks(option.held.block_tokens)
    tail = traffic.tail
    alone = timed_step(deployment, work.prefill(1, tail.input_len, tail.cached_len)).time_s
    times = [timed_step(deployment, work.prefill(1, r.input_len, r.cached_len)).time_s for r in traffic.requests]
    mean = {part: sum(float(getattr(t, part)) for t in times) / len(times) for part in _PARTS}
    sent = disaggregation.transfer(deployment, tail.input_len, float(alone.expected or 0.0))
    return _Prefill(option, mean, {part: float(getattr(alone, part)) for part in _PARTS}, sent) if sent else None


def _decode(option: Option) -> _Decode:
    """Steps at every batch of the ladder, under the effect of loads like those of the plan."""
    import numpy as np

    deployment, traffic = option.deployment, option.rules.traffic
    batch = np.array(sorted(set(batching.batch_ladder(option.limit))), dtype=float)
    steps = timed_step(deployment, work.decode(batch, traffic.mean_context)).time_s
    model = deployment.efficiency
    effect, best = model.composition(LOADED) if isinstance(model, Calibrated) else (1.0, 1.0)
    times: dict[str, Any] = {"floor": np.broadcast_to(steps.floor, batch.shape)}  # type: ignore[arg-type]
    for part in _PARTS[1:]:
        mean = np.broadcast_to(getattr(steps, part), batch.shape)
        least = batching.least_s(mean, times["floor"], 1.0 if part == "low" else best)
        times[part] = batching.served_step_s(mean, effect, mean[0], least)
    return _Decode(option, batch, times)


def _pair(prefill: _Prefill, decode: _Decode, rate: float, needed: float) -> Apart | None:
    """The fewest replicas of both that carry ``needed`` requests/s within the objectives; None where none do."""
    import numpy as np

    rules = prefill.option.rules
    part, limits, traffic = rules.part, rules.objectives, rules.traffic
    good = decode.tpot_s[part] <= (limits.tpot_s or math.inf)
    if not good.any():
        return None
    best = int(np.where(good, decode.rate, -1.0).argmax())
    decodes = max(1, math.ceil(needed * (1 - _SLACK) / float(decode.rate[best])))
    at = int(np.flatnonzero(decode.rate * decodes >= rate * (1 - _SLACK))[0])
    after = (traffic.tail.output_len - 1) * float(decode.tpot_s[part][best])
    most = min(limits.ttft_s or math.inf, (limits.e2e_s or math.inf) - after)
    least = max(1, math.ceil(needed * prefill.mean_s[part] * (1 - _SLACK)))
    room = (rules.max_gpus - decodes * decode.option.ranks) // prefill.option.ranks
    prefills = next((n for n in range(least, room + 1) if prefill.ttft_s(part, needed / n) <= most), None)
    if prefills is None:
        return None
    evidence = decode.option.replica.step_s.evidence
    ttft = {p: prefill.ttft_s(p, rate / prefills) for p in _PARTS}
    tpot = {p: float(decode.tpot_s[p][at]) for p in _PARTS}
    whole = {p: ttft[p] + (traffic.tail.output_len - 1) * tpot[p] for p in _PARTS}
    price, ranks = prefill.option.price, prefills * prefill.option.ranks + decodes * decode.option.ranks
    batch, step, prompt = float(decode.batch[best]), float(decode.tpot_s[part][best]), prefill.mean_s[part]
    return Apart(
        prefill=prefill.option,
        decode=decode.option,
        prefill_replicas=prefills,
        decode_replicas=decodes,
        batch_limit=int(batch),
        in_flight=min(rate / decodes * traffic.mean_output * tpot[part], batch),
        ttft_s=_range(ttft, evidence),
        tpot_s=_range(tpot, evidence),
        e2e_s=_range(whole, evidence),
        transfer=prefill.transfer,
        prompt_s=prompt,
        step_s=step,
        prefill_per_decode=float(disaggregation.ratio(prompt, step, batch, traffic.mean_output)),
        sustainable_rate=float(disaggregation.request_rate(prefills, decodes, prompt, step, batch, traffic.mean_output)),
        usd_per_hour=cost.usd_per_hour(price, ranks) if price else None,
    )


def _range(ends: dict[str, float], evidence: str) -> Range:
    return Range(ends["floor"], ends["low"], ends["expected"], ends["high"], evidence)
