"""The workload of a request and its latency: time to first token, time per output token, end to end.

TTFT = prefill of the whole prompt, ending with the first token. TPOT = mean decode step: the step time is affine in the context up to
where a window bends it, so each part counts at its own mean context. E2E = TTFT + (output - 1) TPOT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from calc.arrays import Number, ceil_div, clamp, is_plain, maximum, minimum
from calc.errors import require
from calc.formula import formula
from calc.operators import work
from calc.profiles.model import ChunkedAttention
from calc.serving.deployment import Deployment
from calc.serving.phase import Phase, evaluate
from calc.timing.step_time import NO_TIME, Range, rate
from calc.units import MAX_TOKENS


@dataclass(frozen=True)
class Workload:
    """``batch_size`` requests at once, each of ``input_len`` prompt tokens (of which ``cached_len`` are cached) and ``output_len``
    output tokens. ``context_len`` is what the decode step shown looks back on, the new token included; None: the mean."""

    batch_size: int = 1
    input_len: int = 1024
    output_len: int = 256
    context_len: int | None = None
    cached_len: int = 0

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("input_len", 1), ("output_len", 1), ("context_len", 1), ("cached_len", 0)):
            require(getattr(self, name), name, least, MAX_TOKENS)

    @property
    def mean_context(self) -> int:
        """Keys that a decode step sees on average, itself included."""
        return int(work.mean_context(self.input_len, self.output_len))

    @property
    def decode_context(self) -> int:
        """Context of the decode step that is shown."""
        return self.context_len or self.mean_context

    @property
    def final_context(self) -> int:
        """Tokens of a finished request."""
        return max(self.input_len + self.output_len, self.context_len or 0)


@dataclass(frozen=True)
class Latency:
    """Times of one request within its batch, and the batch's output rate (``floor`` of the rate is its ceiling)."""

    ttft_s: Range
    tpot_s: Range
    e2e_s: Range
    decode_share: float | None
    output_tokens_per_s: Range


def bends(deployment: Deployment) -> list[int]:
    """Contexts at which the decode step stops growing as it did: windows, chunks and selections of the model."""
    found: set[int] = set()
    for kind in deployment.model.profile.layer_kinds.values():
        for mixer in kind.mixers:
            indexer = getattr(mixer, "indexer", None)
            blocks = (getattr(mixer, "block", 0) or 0) * (getattr(mixer, "topk_blocks", 0) or 0)
            found |= {n for n in (getattr(mixer, "window", None), indexer and indexer.topk, blocks) if n}
    return sorted(found)


def smallest_chunk(deployment: Deployment) -> int | None:
    """The smallest attention chunk of the model, at every multiple of which the decode step drops; None without chunks."""
    kinds = deployment.model.profile.layer_kinds.values()
    return min((m.chunk for k in kinds for m in k.mixers if isinstance(m, ChunkedAttention)), default=None)


def spans(first: Number, last: Number, bends: list[int], chunk: int | None = None) -> Iterator[tuple[Number, Number]]:
    """(first, last) contexts of the parts of ``first..last`` whose middle context takes their mean step time, for numbers or arrays;
    of arrays a part may be empty at some points (it ends before it begins). A bend ends a part. Attention chunks make the step time a
    saw tooth: an odd number of whole chunks has its middle in the middle of a chunk, so any number of them is two parts at most."""
    start = first
    for bend in [*bends, None]:
        end = last if bend is None else clamp(bend, start - 1, last)
        for low, high in _between_bends(start, end, chunk):
            if (high >= low) if is_plain(low, high) else (high >= low).any():  # type: ignore[union-attr]
                yield low, high
        start = maximum(start, end + 1)


def _between_bends(first: Number, last: Number, chunk: int | None) -> Iterator[tuple[Number, Number]]:
    if not chunk:
        yield first, last
        return
    head = minimum(ceil_div(first, chunk) * chunk, last)
    whole = (last - head) // chunk
    odd = head + maximum(whole - 1 + whole % 2, 0) * chunk
    yield first, head
    yield head + 1, odd
    yield odd + 1, head + whole * chunk
    yield head + whole * chunk + 1, last


def pieces(first: int, last: int, bends: list[int], chunk: int | None = None) -> list[tuple[float, int]]:
    """(mean context, steps) of the ``spans`` of one request."""
    return [(float(low + high) / 2, int(high - low + 1)) for low, high in spans(first, last, bends, chunk)]


def mean_step(deployment: Deployment, workload: Workload, drafts: int = 0) -> Range:
    """Mean time of the decode steps of a request: each affine part of them at its own mean context. With ``drafts`` each step verifies
    as many proposed tokens on top of its own."""
    first = workload.input_len + 1
    last = max(first, workload.input_len + workload.output_len - 1)
    total: Range | None = None
    for context, steps in pieces(first, last, bends(deployment), smallest_chunk(deployment)):
        step = work.decode(workload.batch_size, context + drafts, 1 + drafts)
        part = evaluate(deployment, step).time_s * (steps / (last - first + 1))
        total = part if total is None else total + part
    return total or NO_TIME


@formula("ttft_s + tpot_s * (output_len - 1)")
def end_to_end_s(ttft_s: Range, tpot_s: Range, output_len: Number) -> Range:
    """The first token, then one decode step for each further one."""
    return ttft_s + tpot_s * (output_len - 1)


def latency(deployment: Deployment, workload: Workload, prefill: Phase, decode: Phase | None) -> Latency:
    """Request latency from the two phases."""
    if prefill.timed is None or (decode is not None and decode.timed is None):
        return Latency(NO_TIME, NO_TIME, NO_TIME, None, NO_TIME)
    if decode is None:  # an encoder: the pass is the answer
        return Latency(prefill.time_s, NO_TIME, prefill.time_s, 0.0, NO_TIME)
    mean = mean_step(deployment, workload)
    rest = mean * (workload.output_len - 1)
    e2e = end_to_end_s(prefill.time_s, mean, workload.output_len)
    share = float(rest.expected / e2e.expected) if rest.expected is not None and e2e.expected else None
    return Latency(prefill.time_s, mean, e2e, share, rate(workload.batch_size * workload.output_len, e2e))
