"""The workload of a request and its latency: time to first token, time per output token, end to end.

TTFT = prefill of the whole prompt, ending with the first token. TPOT = mean decode step: the step time is affine in the context, so the
step at the mean context is the mean. E2E = TTFT + (output - 1) TPOT.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.operators import work
from calc.serving.deployment import Deployment
from calc.serving.phase import Phase, evaluate
from calc.timing.step_time import NO_TIME, Range, rate


@dataclass(frozen=True)
class Workload:
    """``batch_size`` requests at once, each of ``input_len`` prompt tokens (of which ``cached_len`` are cached) and ``output_len``
    output tokens. ``context_len`` is what the decode step shown looks back on, the new token included; None: the mean."""

    batch_size: int = 1
    input_len: int = 1024
    output_len: int = 256
    context_len: int | None = None
    cached_len: int = 0

    @property
    def mean_context(self) -> int:
        """Keys that a decode step sees on average, itself included."""
        return self.input_len + self.output_len // 2

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


def latency(deployment: Deployment, workload: Workload, prefill: Phase, decode: Phase) -> Latency:
    """Request latency from the two phases."""
    mean = decode
    if workload.decode_context != workload.mean_context:
        mean = evaluate(deployment, work.decode(workload.batch_size, workload.mean_context), answer_speed=decode.timed is not None)
    if prefill.timed is None or mean.timed is None:
        return Latency(NO_TIME, NO_TIME, NO_TIME, None, NO_TIME)
    rest = mean.time_s * (workload.output_len - 1)
    e2e = prefill.time_s + rest
    share = float(rest.expected / e2e.expected) if rest.expected is not None and e2e.expected else None
    return Latency(prefill.time_s, mean.time_s, e2e, share, rate(workload.batch_size * workload.output_len, e2e))
