"""One round of speculative decoding, operator by operator: so many draft steps, then the step that verifies them.

The same operator lists as in ``speculation``, which averages them over the output; here they stand at the shown context. How many tokens
a round is worth depends on the acceptance, which no operator list knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.operators import work
from calc.serving.deployment import Deployment
from calc.serving.phase import Phase, evaluate
from calc.serving.request import Workload
from calc.serving.speculation import Draft, next_token_draft, round_s
from calc.timing.step_time import Range


@dataclass(frozen=True)
class Round:
    """``drafts`` steps of ``draft`` (None: what drafts takes no step of this model's own layers), then one of ``verify``."""

    drafts: int
    draft: Phase | None
    verify: Phase

    @property
    def time_s(self) -> Range:
        """Time of the round."""
        return round_s(self.verify.time_s, self.draft.time_s if self.draft else None, self.drafts)


def speculative_round(
    deployment: Deployment, workload: Workload, drafted_by: Draft | None = None, *, answer_speed: bool = True
) -> Round | None:
    """The round of a deployment that asks for ``speculative_tokens``; None where it drafts none. ``drafted_by`` None: the model's own
    next-token layers, where it has some."""
    drafts = deployment.memory.speculative_tokens
    if not drafts:
        return None
    drafter = drafted_by.deployment if drafted_by else _own_layers(deployment)
    batch, context = workload.batch_size, workload.decode_context
    draft = evaluate(drafter, work.decode(batch, context), answer_speed=answer_speed) if drafter else None
    verify = evaluate(deployment, work.decode(batch, context + drafts, 1 + drafts), answer_speed=answer_speed)
    return Round(drafts, draft, verify)


def _own_layers(deployment: Deployment) -> Deployment | None:
    return next_token_draft(deployment) if deployment.model.profile.next_token_layers is not None else None
