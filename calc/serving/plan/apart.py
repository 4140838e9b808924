"""Prefill and decode on replicas of their own: how many of each carry a request rate within the objectives, and what that costs.

The same devices, splits and rules as the plan looks at; DistServe (arXiv 2401.09670) searches so. Prompts are computed one at a time,
each cache crosses the network layer by layer behind its prefill, and decode steps carry no prompts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from calc.errors import UsageError
from calc.operators import work
from calc.serving import disaggregation
from calc.serving.disaggregation import Transfer
from calc.serving.load import batching
from calc.serving.load.effect import LOADED, effect_of, loaded_step_s
from calc.serving.load.option import Option
from calc.serving.phase import timed_step
from calc.serving.plan import instances
from calc.serving.plan.search import Plan
from calc.serving.request import end_to_end_s
from calc.timing.step_time import Range

_PARTS = Range.PARTS
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
        rules = self.option.rules
        return batching.request_rate(self.batch, rules.traffic.mean_decode_steps, self.tpot_s[rules.part])

    def tpot_at(self, rate: float) -> dict[str, float]:
        """Seconds of a step by end of the range where a replica finishes ``rate`` requests/s: on the line between two batches."""
        at = int((self.rate >= rate * (1 - _SLACK)).argmax())
        if at == 0:
            return {p: float(self.tpot_s[p][0]) for p in _PARTS}
        under, over = float(self.rate[at - 1]), float(self.rate[at])
        share = min((rate - under) / (over - under), 1.0)
        return {p: float(t[at - 1] + share * (t[at] - t[at - 1])) for p, t in self.tpot_s.items()}


def apart(plan: Plan, count: int = 3) -> list[Apart]:
    """The best of each kind of device, best first: the least cost (GPUs where prices are unknown or asked for). Only a stated request
    rate can be carried; devices without a known network have none to send caches over. Raises UsageError where nothing is decoded
    and where no engine sends caches."""
    demand = plan.question.demand
    if demand.request_rate is None:
        return []
    if not plan.question.traffic.mean_decode_steps:
        raise UsageError("prefill makes the only token of these requests: no decode is left to run apart", "ask for --output-len 2")
    disaggregation.check_sends({o.deployment.engine.NAME for o in plan.options})
    sending = [o for o in plan.options if o.deployment.engine.NAME in disaggregation.SENDING]
    found = []
    for name in dict.fromkeys(o.deployment.hardware.name for o in sending):
        own = [o for o in sending if o.deployment.hardware.name == name and o.limit >= 1 and o.draft is None]
        # a prompt at a time would leave all data-parallel ranks but one idle
        prefills = [p for o in own if not o.deployment.sharding.is_wide and (p := _prefill(o))]
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
    means = {part: np.broadcast_to(getattr(steps, part), batch.shape) for part in _PARTS}
    effect, floor = effect_of(deployment, LOADED), means["floor"]
    return _Decode(option, batch, {part: loaded_step_s(part, mean, floor, mean[0], effect) for part, mean in means.items()})


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
    after = traffic.tail.decode_steps * float(decode.tpot_s[part][best])
    most = min(limits.ttft_s or math.inf, (limits.e2e_s or math.inf) - after)
    least = max(1, math.ceil(needed * prefill.mean_s[part] * (1 - _SLACK)))
    room = (rules.max_gpus - decodes * decode.option.ranks) // prefill.option.ranks
    prefills = next((n for n in range(least, room + 1) if prefill.ttft_s(part, needed / n) <= most), None)
    if prefills is None:
        return None
    evidence = decode.option.replica.step_s.evidence
    ttft = {p: prefill.ttft_s(p, rate / prefills) for p in _PARTS}
    tpot = decode.tpot_at(rate / decodes)
    first, each, steps = _range(ttft, evidence), _range(tpot, evidence), traffic.mean_decode_steps
    ranks = prefills * prefill.option.ranks + decodes * decode.option.ranks
    batch, step, prompt = float(decode.batch[best]), float(decode.tpot_s[part][best]), prefill.mean_s[part]
    return Apart(
        prefill=prefill.option,
        decode=decode.option,
        prefill_replicas=prefills,
        decode_replicas=decodes,
        batch_limit=int(batch),
        in_flight=float(batching.in_flight(rate / decodes, steps, tpot[part])),
        ttft_s=first,
        tpot_s=each,
        e2e_s=end_to_end_s(first, each, traffic.tail.output_len),
        transfer=prefill.transfer,
        prompt_s=prompt,
        step_s=step,
        prefill_per_decode=float(disaggregation.ratio(prompt, step, batch, steps)),
        sustainable_rate=float(disaggregation.request_rate(prefills, decodes, prompt, step, batch, steps)),
        usd_per_hour=instances.bill(prefill.option, ranks),
    )


def _range(ends: dict[str, float], evidence: str) -> Range:
    return Range(ends["floor"], ends["low"], ends["expected"], ends["high"], evidence)
