"""The life of one request: prefill, first token, then token by token as the cache grows; and the same life without a cache.

Without a cache every token is made by a pass over all tokens so far: the work grows with the square of the length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.operators import work
from calc.serving.deployment import Deployment
from calc.serving.phase import evaluate
from calc.serving.request import Workload
from calc.timing.step_time import Range

#: Output tokens evaluated one by one; longer outputs are sampled evenly (the step time is piecewise affine in the context).
MAX_POINTS = 4096
_PARTS = Range.PARTS


@dataclass(frozen=True)
class Life:
    """Expected seconds of a batch's life. ``token`` numbers the output tokens from 1 (the first is prefill's); ``context`` is the
    number of keys its step sees; ``floor_s`` to ``high_s`` is the range of its latency. ``*_s`` of the uncached life are those of the
    same tokens when every past token is recomputed.
    ``pays_from`` is the first output token from which the life with a cache is ahead; None within this output it never is."""

    token: list[int]
    context: list[int]
    latency_s: list[float]
    floor_s: list[float]
    low_s: list[float]
    high_s: list[float]
    uncached_latency_s: list[float]
    prefill_s: float
    decode_s: float
    uncached_s: float
    flops: float
    uncached_flops: float
    kv_cache_bytes: float
    pays_from: int | None

    @property
    def total_s(self) -> float:
        """End to end with the cache."""
        return self.prefill_s + self.decode_s

    @property
    def decode_share(self) -> float:
        """Share of decode in the whole."""
        return self.decode_s / self.total_s if self.total_s else 0.0

    @property
    def speedup(self) -> float:
        """Uncached over cached time."""
        return self.uncached_s / self.total_s if self.total_s else 0.0


def life(deployment: Deployment, workload: Workload) -> Life:
    """Evaluate every token of a request (array evaluation; the deployment must fit and have rates)."""
    import numpy as np

    batch, start, output = workload.batch_size, workload.input_len, workload.output_len
    prefill = evaluate(deployment, work.prefill(batch, start, workload.cached_len))
    count = min(output, MAX_POINTS)
    token = np.unique(np.linspace(1, output, count).round())
    context = start + token - 1.0
    step = evaluate(deployment, work.decode(batch, np.maximum(context, 1.0)))
    uncached = evaluate(deployment, work.prefill(batch, context))
    prefill_s = float(prefill.time_s.expected or 0.0)
    spread = {part: np.broadcast_to(np.asarray(getattr(step.time_s, part), dtype=float), token.shape).copy() for part in _PARTS}
    for part, values in spread.items():
        values[0] = float(getattr(prefill.time_s, part) or 0.0)
    latency = spread["expected"]
    without = np.broadcast_to(np.asarray(uncached.time_s.expected, dtype=float), token.shape).copy()
    weights = _weights(token, np)  # sampled tokens stand for their neighbours
    decode_s = float((latency[1:] * weights[1:]).sum())
    ahead = np.flatnonzero(np.cumsum(without * weights) > np.cumsum(latency * weights) * (1 + 1e-9))
    decode_flops = np.broadcast_to(np.asarray(step.totals.flops, dtype=float), token.shape)
    return Life(
        token=[int(t) for t in token],
        context=[int(c) for c in context],
        latency_s=latency.tolist(),
        floor_s=spread["floor"].tolist(),
        low_s=spread["low"].tolist(),
        high_s=spread["high"].tolist(),
        uncached_latency_s=without.tolist(),
        prefill_s=prefill_s,
        decode_s=decode_s,
        uncached_s=float((without * weights).sum()),
        flops=float(prefill.totals.flops) + float((decode_flops * weights)[1:].sum()),
        uncached_flops=float((np.broadcast_to(uncached.totals.flops, token.shape) * weights).sum()),
        kv_cache_bytes=deployment.question().cache_bytes(workload.final_context) * batch,
        pays_from=int(token[ahead[0]]) if ahead.size else None,
    )


def _weights(token: Any, np: Any) -> Any:
    """How many tokens each sampled one stands for: the trapezoid rule, 1 where every token is evaluated; the first stands alone."""
    gaps = np.diff(token)
    weights = np.ones(len(token))
    if len(gaps) and gaps.max() > 1:
        weights[1:-1] = (gaps[:-1] + gaps[1:]) / 2
        weights[1] += (gaps[0] - 1) / 2
        weights[-1] = (gaps[-1] + 1) / 2
    return weights
