"""One replica under load: latency, rate and wait at every number of requests in flight, by one array evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.memory.budget import Capacity
from calc.operators.work import Requests, Work
from calc.serving import batching
from calc.serving.batching import Chunks
from calc.serving.deployment import Deployment
from calc.serving.phase import timed_step
from calc.serving.request import bends, pieces, smallest_chunk
from calc.serving.traffic import Traffic
from calc.timing.step_time import Range

#: Tokens of a step where the engine states no limit.
DEFAULT_STEP_TOKENS = 8192
_DECODE, _MIXED, _FULL, _TAIL = range(4)


@dataclass(frozen=True)
class Load:
    """What a replica does with ``in_flight`` requests, at one end of the range of times (arrays over the points).

    ``ttft_s`` and ``e2e_s`` are those of the tail request: mean wait, then its own prefill. ``rate`` is in requests/s, ``limit`` the
    most that prefill alone could take, ``prefill_share`` the share of the step time that prompts add.
    """

    tpot_s: Any
    ttft_s: Any
    e2e_s: Any
    rate: Any
    limit: Any
    prefill_share: Any
    longest_step_s: Any


@dataclass(frozen=True)
class Replica:
    """Step times of a replica (rows: decode only, with a chunk of prompt, filled to the budget, with a chunk of the tail request's
    prompt) at each point of ``in_flight``; ``closed``: a fixed number of users rather than independent arrivals."""

    traffic: Traffic
    in_flight: Any
    closed: bool
    stages: int
    pace: float
    mean: Chunks
    tail: Chunks
    step_s: Range
    bounds: tuple[Any, Any]  # shares of the decode and of the mixed step by resource

    def at(self, part: str) -> Load:
        """Figures at one end of the range: floor, low, expected or high."""
        import numpy as np

        traffic, users = self.traffic, self.in_flight
        decode, mixed, full, tail = getattr(self.step_s, part)
        tpot = batching.mean_step_s(decode, mixed, self.mean.share) * self.pace
        limit = batching.prefill_limit(self.mean.room, traffic.mean_new_tokens, full * self.pace) * self.stages
        own = batching.prompt_s(tail, self.tail.per_prompt, self.stages)
        decoding_s = (traffic.mean_output - 1) * tpot
        if self.closed:
            first = batching.residual_s(decode, mixed, self.mean.share, 1 - 1 / users)
            first = first + batching.closed_queue_s(users, limit, decoding_s)
            mean_own = batching.prompt_s(mixed, self.mean.per_prompt, self.stages)
            rate = users / (first + mean_own + decoding_s)
        else:
            rate = np.minimum(batching.request_rate(users, traffic.mean_output, tpot), limit)
            first = batching.residual_s(decode, mixed, self.mean.share, 1 - np.exp(-users))
            first = first + batching.queue_s(rate, limit, traffic.arrival_cv2, traffic.prompt_cv2)
        ttft = first + own
        added = np.clip(self.mean.share * (mixed - decode) * self.pace / tpot, 0.0, 1.0)
        e2e = ttft + (traffic.tail.output_len - 1) * tpot
        return Load(tpot, ttft, e2e, rate, limit, added, np.maximum(mixed, decode))


def _contexts(deployment: Deployment, traffic: Traffic) -> list[tuple[float, float]]:
    """(share of the decode steps, keys they see on average). Requests of one length are split where a window bends the step time, as
    the mean step of a single request is; spread lengths count at their mean."""
    if len(traffic.requests) > 1:
        return [(1.0, traffic.mean_context)]
    first = traffic.tail.input_len + 1
    last = max(first, traffic.tail.input_len + traffic.tail.output_len - 1)
    parts = pieces(first, last, bends(deployment), smallest_chunk(deployment))
    return [(steps / (last - first + 1), context) for context, steps in parts]


def step_budget(held: Capacity) -> int:
    """Most tokens of a step: the engine's limit, else a usual one."""
    return held.max_num_batched_tokens or DEFAULT_STEP_TOKENS


def replica(deployment: Deployment, held: Capacity, traffic: Traffic, in_flight: Any, *, closed: bool) -> Replica:
    """Evaluate the steps of a replica at every point of ``in_flight`` (array). The deployment must have rates.

    With pipeline stages each of them works on its own share of the requests, and all shares pass through all stages in turn (llama.cpp
    passes one batch through all of them).
    """
    import numpy as np

    stages = 1 if deployment.engine.NAME == "llama.cpp" else deployment.sharding.pipeline
    others = (in_flight - 1 if closed else in_flight) / stages  # requests that decode beside a prompt
    decoding = np.ceil(np.maximum(in_flight, 1.0) / stages)
    arriving = others * traffic.mean_new_tokens / traffic.mean_output
    budget = step_budget(held)
    mean = batching.chunks(others, arriving, traffic.mean_new_tokens, budget)
    tail = mean if len(traffic.requests) == 1 else batching.chunks(others, 0 * others, float(traffic.tail.new_tokens), budget)
    none = 0 * others
    prompts = np.stack([none, mean.tokens, mean.room, none]) / traffic.mean_new_tokens  # in prompts
    last = np.stack([none, none, none, tail.tokens]) / traffic.tail.new_tokens
    if tail is mean:
        prompts, last = prompts[:_TAIL], last[:_TAIL]
    rows = np.stack([decoding, *[others] * (len(prompts) - 1)])
    each = 1 / len(traffic.requests)
    groups = [Requests(prompts * each, r.new_tokens, r.input_len - r.new_tokens, writes_source=True) for r in traffic.requests]
    if tail is not mean:
        groups.append(Requests(last, traffic.tail.new_tokens, traffic.tail.input_len - traffic.tail.new_tokens, writes_source=True))
    groups += [Requests(rows * share, 1, context - 1) for share, context in _contexts(deployment, traffic)]
    timed = timed_step(deployment, Work("mixed", tuple(groups)))

    def spread(value: Any) -> Any:
        whole = np.broadcast_to(np.asarray(value, dtype=float), rows.shape)
        return whole if tail is not mean else whole[[_DECODE, _MIXED, _FULL, _MIXED]]

    times = timed.time_s
    step = Range(spread(times.floor), spread(times.low), spread(times.expected), spread(times.high), times.evidence)
    shares = {k: spread(v) for k, v in timed.share_s.items()}
    bounds = tuple({k: v[row] for k, v in shares.items()} for row in (_DECODE, _MIXED))
    pace = batching.stage_pace(deployment.model.profile.num_hidden_layers, stages)
    return Replica(traffic, in_flight, closed, stages, pace, mean, tail, step, bounds)  # type: ignore[arg-type]
