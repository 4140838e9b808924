"""How the work of a step flows through the stages and data-parallel ranks of a replica.

A decoding batch is split into as many micro-batches as there are pipeline stages, so that each stage always has one to work on: a step
is the round of all of them. A prompt passes the stages in pieces of ``max_num_batched_tokens``. llama.cpp passes a decoding batch
through all devices as one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calc.arrays import Number, divide
from calc.operators.work import Work, share
from calc.timing import pipeline, terms

if TYPE_CHECKING:
    from calc.serving.deployment import Deployment


@dataclass(frozen=True)
class Flow:
    """How one step is cut. ``micro_batches`` make it up: the ``fullest`` and the ``mean`` one, over all data-parallel ranks, and
    ``rank``, the part of the fullest that falls to the rank with most requests.

    ``stages_at_once`` is the number of pipeline stages that work on a prompt at the same time, ``stretch`` the time of a round of decode
    over that of one pass through all stages, ``idle_share`` the share of their time that stages spend waiting for each other."""

    fullest: Work
    mean: Work
    rank: Work
    micro_batches: Number
    stages_at_once: Number
    stretch: Number
    idle_share: Number


def flow(deployment: Deployment, work: Work) -> Flow:
    """The flow of a step. A mixed step is one micro-batch."""
    sharding, setting = deployment.sharding, deployment.setting
    is_round = setting.stages > 1 and work.phase == "decode"
    parts: Number = pipeline.decode_micro_batches(work.sequences, sharding.pipeline) if is_round else 1
    fullest = share(work, parts)
    rank = share(fullest, sharding.data_ranks)
    at_once = terms.stages_at_once(setting, rank)
    stretch = pipeline.round_s_per_pass_s(parts, setting.stages) if is_round else 1.0
    working = divide(parts, stretch) if is_round else at_once
    return Flow(fullest, share(work, parts, evenly=True), rank, parts, at_once, stretch, 1 - divide(working, sharding.pipeline))


def one_pass(deployment: Deployment) -> Deployment:
    """The deployment as one micro-batch sees it, which passes all pipeline stages in turn."""
    if deployment.setting.stages == 1:
        return deployment
    return deployment.with_setting(replace(deployment.setting, stages=1))


def warnings(deployment: Deployment, batch_size: int) -> tuple[tuple[str, str], ...]:
    """What to tell of a batch that does not fill its ranks, and of a kind of deployment that no fitted record was of."""
    sharding = deployment.sharding
    if not sharding.is_wide:
        return ()
    ranks = sharding.data_ranks
    found = [
        (
            "wide_expert_parallel",
            "messages to experts on other ranks are counted at the rates of the links: published speeds of such deployments are few",
        )
    ]
    if batch_size < ranks:
        idle = ranks - batch_size
        text = f"{idle} of {ranks} data-parallel ranks have no request: they only hold experts"
        found.append(("idle_ranks", text))
    elif batch_size % ranks:
        text = f"{batch_size:,} requests do not divide by {ranks} data-parallel ranks: all wait for those that have"
        found.append(("uneven_ranks", f"{text} {-(-batch_size // ranks):,}"))
    return tuple(found)
