"""The mean decode step of requests over arrays of points."""

from __future__ import annotations

from typing import Any

from calc.operators import work
from calc.serving.deployment import Deployment
from calc.serving.phase import timed_step
from calc.serving.request import bends, smallest_chunk, spans
from calc.timing.step_time import Range


class MeanStep:
    """``request.mean_step`` of one deployment for many points at once."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._bends = bends(deployment)
        self._chunk = smallest_chunk(deployment)

    def at(self, batch: Any, prompt: Any, output: Any, drafts: int = 0) -> Range:
        """Mean time of the decode steps: every part of them that is affine in the context, at its own mean context. With ``drafts``
        each step verifies as many proposed tokens on top of its own."""
        import numpy as np

        first = prompt + 1
        last = np.maximum(first, prompt + output - 1)
        total: Range | None = None
        crossed = [b for b in self._bends if first.min() <= b < last.max()]
        for low, high in spans(first, last, crossed, self._chunk):
            steps = np.maximum(high - low + 1, 0)
            step = work.decode(batch, (low + high) / 2 + drafts, 1 + drafts)
            part = timed_step(self._deployment, step).time_s * (steps / (last - first + 1))
            total = part if total is None else total + part
        assert total is not None
        return total
