"""One replica under load: latency, rate and wait at every number of requests in flight, by one array evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.memory.budget import Capacity
from calc.operators.work import Requests, Work
from calc.serving.deployment import Deployment
from calc.serving.flow import one_pass
from calc.serving.load import batching
from calc.serving.load.batching import Chunks
from calc.serving.load.traffic import Traffic
from calc.serving.phase import timed_step
from calc.serving.request import bends, pieces, smallest_chunk
from calc.serving.speculation import Draft, tokens_per_round
from calc.timing.calibrated import Calibrated
from calc.timing.step_time import Range

#: Tokens of a step where the engine states no limit.
DEFAULT_STEP_TOKENS = 8192
#: Fitted effects on steps with their share of prompts: with a stated load, and with as many requests as there is room for, all of them
#: waiting from the start.
LOADED, SATURATED = "serving.loaded", "serving.saturated"
_DECODE, _MIXED, _FULL, _TAIL = range(4)
_PARTS = ("floor", "low", "expected", "high")


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
    prompt) at each point of ``in_flight``; ``closed``: a fixed number of users rather than independent arrivals.

    ``alone_s`` are the same rows for one request alone. Steps of a loaded server take ``effect`` times their sum, at least their floor
    over ``best``. With drafts a step is a round that makes ``tokens_per_step`` tokens of each request.
    """

    traffic: Traffic
    in_flight: Any
    closed: bool
    stages: int
    data_ranks: int
    pace: float
    mean: Chunks
    tail: Chunks
    step_s: Range
    alone_s: Range
    bounds: tuple[Any, Any]  # shares of the decode and of the mixed step by resource
    effect: float
    best: float
    tokens_per_step: float

    def served_s(self, part: str, row: int, mean_s: Any, mean_floor_s: Any) -> Any:
        """``batching.served_step_s`` at one end of the range; nothing is known to shorten the floor itself."""
        if part == "floor":
            return mean_s
        least = batching.least_s(mean_s, mean_floor_s, 1.0 if part == "low" else self.best)
        return batching.served_step_s(mean_s, self.effect, getattr(self.alone_s, part)[row], least)

    def at(self, part: str) -> Load:
        """Figures at one end of the range: floor, low, expected or high."""
        import numpy as np

        traffic, users = self.traffic, self.in_flight
        decode, mixed, full, tail = getattr(self.step_s, part)
        floors = self.step_s.floor
        mean = batching.mean_step_s(decode, mixed, self.mean.share)
        least = batching.mean_step_s(floors[_DECODE], floors[_MIXED], self.mean.share)  # type: ignore[index]
        tpot = self.served_s(part, _DECODE, mean, least) * self.pace / self.tokens_per_step
        filled = self.served_s(part, _FULL, full, floors[_FULL])  # type: ignore[index]
        limit = batching.prefill_limit(self.mean.room, traffic.mean_new_tokens, filled * self.pace) * self.stages * self.data_ranks
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
        added = np.clip(self.mean.share * (mixed - decode) / mean, 0.0, 1.0)
        e2e = ttft + (traffic.tail.output_len - 1) * tpot
        return Load(tpot, ttft, e2e, rate, limit, added, np.maximum(mixed, decode))


def _contexts(deployment: Deployment, traffic: Traffic) -> list[tuple[float, float]]:
    """(share of the decode steps, keys they see on average). Requests of one length are split where a window bends the step time, as
    the mean step of a single request is; spread lengths count at their mean."""
    if len(traffic.requests) > 1 or deployment.sharding.is_wide:  # few requests are not cut into shares of ranks
        return [(1.0, traffic.mean_context)]
    first = traffic.tail.input_len + 1
    last = max(first, traffic.tail.input_len + traffic.tail.output_len - 1)
    parts = pieces(first, last, bends(deployment), smallest_chunk(deployment))
    return [(steps / (last - first + 1), context) for context, steps in parts]


def step_budget(held: Capacity) -> int:
    """Most tokens of a step: the engine's limit, else a usual one."""
    return held.max_num_batched_tokens or DEFAULT_STEP_TOKENS


def replica(
    deployment: Deployment,
    held: Capacity,
    traffic: Traffic,
    in_flight: Any,
    *,
    closed: bool,
    draft: Draft | None = None,
    composition: str = LOADED,
) -> Replica:
    """Evaluate the steps of a replica at every point of ``in_flight`` (array). The deployment must have rates.

    With pipeline stages each of them works on its own share of the requests, and all shares pass through all stages in turn (llama.cpp
    passes one batch through all of them). Data-parallel ranks share the requests evenly, each with a chunk of a prompt of its own at the
    same time as the others. With a ``draft`` every step proposes and checks its tokens for all requests that decode.
    """
    import numpy as np

    stages = 1 if deployment.engine.NAME == "llama.cpp" else deployment.sharding.pipeline
    drafts = draft.tokens if draft else 0
    made = tokens_per_round(draft.by_position(drafts)) if draft else 1.0
    points = np.append(in_flight, 1.0 if closed else 0.0)  # the last one: a request alone
    data_ranks = deployment.sharding.data_ranks
    others = (points - 1 if closed else points) / (stages * data_ranks)  # requests that decode beside a prompt
    decoding = np.ceil(np.maximum(points, 1.0) / stages)  # on all data-parallel ranks
    arriving = others * traffic.mean_new_tokens / (traffic.mean_output / made)
    budget, beside = step_budget(held), others * (1 + drafts)
    mean = batching.chunks(beside, arriving, traffic.mean_new_tokens, budget)
    tail = mean if len(traffic.requests) == 1 else batching.chunks(beside, 0 * others, float(traffic.tail.new_tokens), budget)
    none = 0 * others
    prompts = np.stack([none, mean.tokens, mean.room, none]) / traffic.mean_new_tokens  # in prompts
    last = np.stack([none, none, none, tail.tokens]) / traffic.tail.new_tokens
    if tail is mean:
        prompts, last = prompts[:_TAIL], last[:_TAIL]
    rows = np.stack([decoding, *[others * data_ranks] * (len(prompts) - 1)])
    prompts, last = prompts * data_ranks, last * data_ranks
    each, contexts = 1 / len(traffic.requests), _contexts(deployment, traffic)
    groups = [Requests(prompts * each, r.new_tokens, r.input_len - r.new_tokens, writes_source=True) for r in traffic.requests]
    if tail is not mean:
        groups.append(Requests(last, traffic.tail.new_tokens, traffic.tail.input_len - traffic.tail.new_tokens, writes_source=True))
    groups += [Requests(rows * share, 1, context - 1) for share, context in contexts]
    timed = timed_step(one_pass(deployment), Work("mixed", tuple(groups)))

    def spread(value: Any) -> Any:
        whole = np.broadcast_to(np.asarray(value, dtype=float), rows.shape)
        return whole if tail is not mean else whole[[_DECODE, _MIXED, _FULL, _MIXED]]

    times = _with_drafts(timed.time_s, deployment, draft, rows, contexts) if draft and drafts else timed.time_s
    parts = [spread(getattr(times, part)) for part in _PARTS]
    shares = {k: spread(v)[:, :-1] for k, v in timed.share_s.items()}
    bounds = tuple({k: v[row] for k, v in shares.items()} for row in (_DECODE, _MIXED))
    pace = batching.stage_pace(deployment.model.profile.num_hidden_layers, stages)
    model = deployment.efficiency
    evidence = model.evidence("serving") if isinstance(model, Calibrated) else times.evidence
    effect, best = model.composition(composition) if isinstance(model, Calibrated) else (1.0, 1.0)
    step, alone = (_range([p[:, cut] for p in parts], evidence) for cut in (slice(None, -1), -1))
    mean, tail = (Chunks(*(np.broadcast_to(getattr(c, n), points.shape)[:-1] for n in Chunks.__slots__)) for c in (mean, tail))
    return Replica(
        traffic, in_flight, closed, stages, data_ranks, pace, mean, tail, step, alone, bounds, effect, best, made  # type: ignore[arg-type]
    )  # fmt: skip


def _with_drafts(step: Range, deployment: Deployment, draft: Draft, rows: Any, contexts: list[tuple[float, float]]) -> Range:
    """Steps of ``rows`` requests that decode as rounds: the check of the drafts costs beside a chunk of prompt what it costs without,
    and the steps of the draft model come on top. Ends of the range stay in order."""
    import numpy as np

    def of(one: Deployment, new: int) -> Range:
        groups = (Requests(rows * share, new, context - 1, logit_rows=new) for share, context in contexts)
        return timed_step(one_pass(one), Work("decode", tuple(groups))).time_s

    plain, check = of(deployment, 1), of(deployment, 1 + draft.tokens)
    proposals = of(draft.deployment, 1) if draft.deployment else None
    ends: list[Any] = []
    for part in _PARTS:
        added = np.maximum(getattr(check, part) - getattr(plain, part), 0.0)
        if proposals is not None:
            added = added + draft.tokens * getattr(proposals, part)
        ends.append(getattr(step, part) + np.where(rows > 0, added, 0.0))
    return _range(np.maximum.accumulate(np.stack(ends)), step.evidence)


def _range(ends: Any, evidence: str) -> Range:
    floor, low, expected, high = ends
    return Range(floor, low, expected, high, evidence)
