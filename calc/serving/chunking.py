"""Chunked prefill: a prompt enters in chunks that share their steps with running decodes.

Agrawal et al. 2024, Sarathi-Serve, arXiv 2403.02310. A chunk adds to the step's tokens: weights cross memory once for both, the
attention of the chunk and of the decodes are kernels of their own. Each chunk reads the cache of those before it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calc.errors import UsageError
from calc.operators import work
from calc.operators.work import Requests, Work
from calc.serving.deployment import Deployment
from calc.serving.flow import one_pass
from calc.serving.phase import evaluate
from calc.serving.request import Workload
from calc.timing.setting import OTHER_MICRO_BATCH
from calc.timing.step_time import NO_TIME, Range

#: Tokens of a step where the engine states no limit (vLLM's default for serving on large devices).
USUAL_STEP_TOKENS = OTHER_MICRO_BATCH
#: Most steps that a prompt may be cut into.
MAX_CHUNKS = 4096


@dataclass(frozen=True)
class Chunk:
    """One step: ``new`` prompt tokens on top of ``cached`` ones, beside the decodes."""

    new: int
    cached: int
    time_s: Range


@dataclass(frozen=True)
class ChunkedPrefill:
    """A prompt that arrives while ``decodes`` other requests decode, with at most ``budget`` tokens in a step.

    ``ttft_s`` is the sum of the chunks' steps, ``whole_s`` the prefill of that one prompt in a step of its own. The decodes see
    ``decode_s`` between tokens without the prompt and up to ``mixed_s`` (the longest step) with it.
    """

    decodes: int
    budget: int
    chunks: tuple[Chunk, ...]
    ttft_s: Range
    whole_s: Range
    decode_s: Range
    mixed_s: Range


def spans(input_len: int, cached_len: int, room: int) -> Iterator[tuple[int, int]]:
    """(new, cached) tokens of each chunk: as many as there is room for, the last one with the rest."""
    done = min(cached_len, input_len - 1)
    while done < input_len:
        new = min(room, input_len - done)
        yield new, done
        done += new


def mixed_step(new: int, cached: int, decodes: int, context_len: int, *, first: bool) -> Work:
    """One chunk of a prompt beside ``decodes`` requests that see ``context_len`` keys each; an encoder runs with the first chunk."""
    chunk = Work("prefill", (Requests(1, new, cached, writes_source=first),))
    return work.mixed(chunk, work.decode(decodes, context_len)) if decodes else chunk


def follow_each_other(chunks: Sequence[Chunk], stages: float) -> Range:
    """Time of chunks that pass through pipeline stages one behind the other: each leaves one stage, and the longest, which the others wait
    for, all of them (a proportionate flow shop)."""

    def passed(part: str) -> float:
        times = [float(getattr(chunk.time_s, part)) for chunk in chunks]
        return sum(times) / stages + max(times) * (1 - 1 / stages)

    return Range(passed("floor"), passed("low"), passed("expected"), passed("high"), chunks[0].time_s.evidence)


def chunked_prefill(deployment: Deployment, workload: Workload, budget: int | None) -> ChunkedPrefill:
    """One prompt of the workload in chunks while the other requests of the batch decode at the mean context. The deployment must fit
    and have rates. Raises UsageError where the budget leaves no room, or too little."""
    decodes, budget = workload.batch_size - 1, budget or USUAL_STEP_TOKENS
    room = budget - decodes
    if room < 1:
        raise UsageError(
            f"{decodes:,} decodes fill the {budget:,} tokens of a step: there is no room for a prompt",
            f"raise --max-num-batched-tokens above {decodes:,} or lower --batch-size",
        )
    new_tokens = workload.input_len - min(workload.cached_len, workload.input_len - 1)
    if new_tokens > room * MAX_CHUNKS:
        raise UsageError(
            f"the prompt would take {-(-new_tokens // room):,} steps of {room:,} tokens",
            f"raise --max-num-batched-tokens to at least {decodes - (-new_tokens // MAX_CHUNKS):,}",
        )
    chunks: list[Chunk] = []
    each, stages = one_pass(deployment), deployment.setting.stages
    beside = -(-decodes // deployment.sharding.pipeline) if stages > 1 else decodes  # of one micro-batch
    for new, cached in spans(workload.input_len, workload.cached_len, room):
        step = mixed_step(new, cached, beside, workload.decode_context, first=not chunks)
        chunks.append(Chunk(new, cached, evaluate(each, step).time_s))
    total = follow_each_other(chunks, stages)
    whole = evaluate(deployment, work.prefill(1, workload.input_len, workload.cached_len)).time_s
    alone = evaluate(deployment, work.decode(decodes, workload.decode_context)).time_s if decodes else NO_TIME
    longest = max(chunks, key=lambda c: float(c.time_s.expected or 0.0)).time_s
    return ChunkedPrefill(decodes, budget, tuple(chunks), total, whole, alone, longest if decodes else NO_TIME)
