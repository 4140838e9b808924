"""Speculative decoding over the points of a sweep: the same rounds as of a single estimate, in arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calc.serving.deployment import Deployment
from calc.serving.estimate import capacity, check_fit
from calc.serving.request import Workload, end_to_end_s
from calc.serving.speculation import Draft, round_s, tokens_per_round
from calc.serving.sweep.mean_step import MeanStep
from calc.timing.step_time import Range


class Rounds:
    """Times with drafts of one deployment; ``draft`` None: no tokens are drafted, and every step is a round."""

    def __init__(self, deployment: Deployment, draft: Draft | None) -> None:
        self._deployment = deployment
        self._draft = draft
        self._check = MeanStep(deployment)
        self._proposal = MeanStep(draft.deployment) if draft and draft.deployment else None
        self._largest: dict[int, int] = {}

    def columns(self, batch: Any, prompt: Any, output: Any, ttft_s: Range, plain: Range) -> dict[str, Any]:
        """Tokens of a round, TPOT and end-to-end times with drafts, and how many times faster than plain decode."""
        tpot, made = plain, 1.0
        if self._draft:
            tokens = self._draft.tokens
            proposal = self._proposal.at(batch, prompt, output) if self._proposal else None
            made = tokens_per_round(self._draft.by_position(tokens))
            tpot = round_s(self._check.at(batch, prompt, output, tokens), proposal, tokens) * (1 / made)
        whole = end_to_end_s(ttft_s, tpot, output)
        found = {f"speculative_{n}_{p}": getattr(v, p) for n, v in (("tpot_s", tpot), ("e2e_s", whole)) for p in Range.PARTS}
        return found | {"tokens_per_round": made + 0 * batch, "speculative_speedup": plain.expected / tpot.expected}  # type: ignore[operator]

    def fits(self, batch: Any, final: Any) -> Any:
        """Points at which a draft model of its own finds room beside the model."""
        import numpy as np

        if self._draft is None or not self._draft.bytes_per_gpu(1, 0):
            return np.ones((), dtype=bool)
        most = int(np.max(batch))
        lengths, inverse = np.unique(final, return_inverse=True)
        largest = np.array([self._largest_batch(int(n), most) for n in lengths])
        return batch <= largest[inverse].reshape(final.shape)

    def _largest_batch(self, final: int, most: int) -> int:
        """The largest batch of requests of ``final`` tokens, at most ``most``: more requests never take less."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fit_together(middle, final) else (low, middle - 1)
        return low

    def _fit_together(self, batch: int, final: int) -> bool:
        assert self._draft is not None
        deployment, workload = self._deployment, Workload(batch, max(1, final - 1), 1)
        held = capacity(
            replace(deployment, memory=replace(deployment.memory, max_model_len=deployment.memory.max_model_len or final))
        )
        return check_fit(self._draft.beside(deployment, held, final, batch), workload)[0].fits
