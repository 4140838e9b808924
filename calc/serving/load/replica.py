"""One replica under load: latency, rate and wait at every number of requests in flight, by one array evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from calc.memory.budget import Capacity
from calc.operators.work import Requests, Work
from calc.serving.chunking import USUAL_STEP_TOKENS
from calc.serving.deployment import Deployment
from calc.serving.flow import one_pass
from calc.serving.load import batching
from calc.serving.load.batching import Chunks
from calc.serving.load.effect import LOADED, Effect, effect_of, loaded_step_s
from calc.serving.load.traffic import Traffic
from calc.serving.phase import timed_step
from calc.serving.request import bends, end_to_end_s, pieces, smallest_chunk
from calc.serving.speculation import Draft, round_s, tokens_per_round
from calc.timing.calibrated import Calibrated
from calc.timing.step_time import Range

#: Steps that a closed user's prompt waits for on average where every step carries prompts: half of the one that runs.
_RESIDUAL_STEPS = 0.5
_DECODE, _MIXED, _FULL, _TAIL = range(4)
_PARTS = Range.PARTS


@dataclass(frozen=True)
class Load:
    """What a replica does with ``in_flight`` requests, at one end of the range of times (arrays over the points).

    ``ttft_s`` and ``e2e_s`` are those of the tail request: mean wait, then its own prefill. ``rate`` is in requests/s, ``limit`` the
    most that prefill alone could take, ``prefill_share`` the share of the step time that prompts add, ``longest_step_s`` the largest gap
    between two tokens of a request.
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
    prompt) at each point of ``in_flight``; ``closed``: a fixed number of users, those that wait included, rather than independent
    arrivals, of whom those count whose prompt or decode steps run.

    A request is in flight for ``steps``: those of its prompt, then those that decode; ``decoding`` requests run beside a prompt.
    ``alone_s`` are the same rows for one request alone, ``effect`` is what a load makes of them. With drafts a step is a round that
    makes ``tokens_per_step`` tokens of each request.
    """

    traffic: Traffic
    in_flight: Any
    closed: bool
    stages: int
    data_ranks: int
    pace: float
    steps: Any
    decoding: Any
    mean: Chunks
    tail: Chunks
    step_s: Range
    alone_s: Range
    bounds: tuple[Any, Any]  # shares of the decode and of the mixed step by resource
    effect: Effect
    tokens_per_step: float

    def served_s(self, part: str, row: int, mean_s: Any, mean_floor_s: Any) -> Any:
        """Time of a step under load, at the pace of the largest stage; ``row`` is that of the request alone which is never beaten."""
        return loaded_step_s(part, mean_s, mean_floor_s, getattr(self.alone_s, part)[row], self.effect) * self.pace

    def at(self, part: str, arriving: Any = math.inf) -> Load:
        """Figures at one end of the range: floor, low, expected or high. ``arriving``: requests/s of independent users, where no more
        come than another end of the range carries at these loads."""
        import numpy as np

        traffic, users, share = self.traffic, self.in_flight, self.mean.share
        decode, mixed, full, _ = getattr(self.step_s, part)
        floors: Any = self.step_s.floor
        mean = batching.mean_step_s(decode, mixed, share)
        step = self.served_s(part, _DECODE, mean, batching.mean_step_s(floors[_DECODE], floors[_MIXED], share))
        tpot = step / self.tokens_per_step
        filled = self.served_s(part, _FULL, full, floors[_FULL])
        limit = batching.prefill_limit(self.mean.room, traffic.mean_new_tokens, filled) * self.stages * self.data_ranks
        own = self.own_prompt_s(part)
        decoding_s = traffic.mean_decode_steps * tpot
        if self.closed:
            rest = batching.residual_s(decode, mixed, share, 1 - 1 / users)
            mean_own = self._prompt_s(mixed, full, self.mean)
            first = rest + self._closed_queue_s(limit, decoding_s, rest + mean_own)
            if part == "high":  # all ask at once, as a benchmark lets them
                first = np.maximum(first, batching.together_s(users, limit))
            rate = users / (first + mean_own + decoding_s)
        else:
            rate = np.minimum(np.minimum(batching.request_rate(users, self.steps, step), limit), arriving)
            first = batching.residual_s(decode, mixed, share, 1 - np.exp(-users))
            first = first + batching.queue_s(rate, limit, traffic.arrival_cv2, traffic.prompt_cv2)
        added = np.clip(share * (mixed - decode) / mean, 0.0, 1.0)
        with_prompt = self.served_s(part, _DECODE, np.maximum(mixed, decode), np.maximum(floors[_MIXED], floors[_DECODE]))
        longest = np.where(share > 0, np.maximum(with_prompt, step), step)
        ttft = first + own
        return Load(tpot, ttft, end_to_end_s(ttft, tpot, traffic.tail.output_len), rate, limit, added, longest)

    def own_prompt_s(self, part: str) -> Any:
        """Time of the tail request's own prompt at one end of the range, without any wait."""
        _, _, full, tail = getattr(self.step_s, part)
        return self._prompt_s(tail, full, self.tail)

    def _prompt_s(self, step: Any, full: Any, chunks: Chunks) -> Any:
        """Steps of one prompt: an engine fills each but the last to the budget, of which the mean ``step`` knows nothing."""
        import numpy as np

        return batching.prompt_s(step, np.where(chunks.per_prompt > 1, full, step), chunks.per_prompt, self.stages)

    def _closed_queue_s(self, limit: Any, decoding_s: Any, own_s: Any) -> Any:
        """The wait for the prompts before a user's own, but for those in the same step and for half of those in the step that runs,
        which the rest of it holds already. Prompts come no faster than ``limit``: a round of all users takes as long as prefill of all
        their prompts."""
        import numpy as np

        others = np.maximum(self.mean.tokens / self.traffic.mean_new_tokens - 1, 0.0)  # beside one in a step
        together = others * (1 + _RESIDUAL_STEPS) * self.stages * self.data_ranks / limit
        queue = batching.closed_queue_s(self.in_flight, limit, decoding_s) - together
        return np.maximum(queue, np.maximum(self.in_flight / limit - decoding_s - own_s, 0.0))


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
    return held.max_num_batched_tokens or USUAL_STEP_TOKENS


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

    stages = 1 if deployment.setting.layer_split > 1 else deployment.sharding.pipeline
    drafts = draft.tokens if draft else 0
    made = tokens_per_round(draft.by_position(drafts)) if draft else 1.0
    points = np.append(in_flight, 1.0 if closed else 0.0)  # the last one: a request alone
    data_ranks = deployment.sharding.data_ranks
    others = (points - 1 if closed else points) / (stages * data_ranks)  # requests in flight beside one
    budget, prompt = step_budget(held), traffic.mean_new_tokens
    rounds = traffic.mean_decode_steps / made
    steps = rounds + batching.chunks(others * (1 + drafts), 0 * others, prompt, budget).per_prompt
    # of one user: no step takes more prompt than its budget, the users who wait longer do not decode
    cycle = np.maximum(steps + _RESIDUAL_STEPS, others * prompt / budget) if closed else steps
    decoding = others * rounds / cycle  # those beside a prompt
    beside = decoding * (1 + drafts)
    mean = batching.chunks(beside, others * prompt / cycle, prompt, budget)
    tail = mean if len(traffic.requests) == 1 else batching.chunks(beside, 0 * others, float(traffic.tail.new_tokens), budget)
    running = np.ceil(np.maximum(decoding * data_ranks + (1 / stages if closed else 0.0), 1 / stages))  # on all data-parallel ranks
    none = 0 * others
    prompts = np.stack([none, mean.tokens, mean.room, none]) / prompt  # in prompts
    last = np.stack([none, none, none, tail.tokens]) / traffic.tail.new_tokens
    if tail is mean:
        prompts, last = prompts[:_TAIL], last[:_TAIL]
    rows = np.stack([running, *[decoding * data_ranks] * (len(prompts) - 1)])
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
    step, alone = (_range([p[:, cut] for p in parts], evidence) for cut in (slice(None, -1), -1))
    mean, tail = (Chunks(*(np.broadcast_to(getattr(c, n), points.shape)[:-1] for n in Chunks.__slots__)) for c in (mean, tail))
    steps, decoding = (np.broadcast_to(a, points.shape)[:-1] for a in (steps, decoding * data_ranks))
    effect = effect_of(deployment, composition)
    return Replica(
        traffic, in_flight, closed, stages, data_ranks, pace, steps, decoding, mean, tail, step, alone, bounds, effect, made  # type: ignore[arg-type]
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
    more = _range([np.maximum(getattr(check, p) - getattr(plain, p), 0.0) for p in _PARTS], check.evidence)
    added = round_s(more, proposals, draft.tokens)
    ends = [getattr(step, p) + np.where(rows > 0, getattr(added, p), 0.0) for p in _PARTS]
    return _range(np.maximum.accumulate(np.stack(ends)), step.evidence)


def _range(ends: Any, evidence: str) -> Range:
    floor, low, expected, high = ends
    return Range(floor, low, expected, high, evidence)
