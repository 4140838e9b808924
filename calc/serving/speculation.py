"""Speculative decoding: a draft proposes tokens, one verify step of the model checks them all and keeps those it agrees with.

Leviathan et al. 2022, arXiv 2211.17192 (expected tokens of a round, best number of drafts); DeepSeek-V3, arXiv 2412.19437 (next-token
layers as drafts). The verify step is a real step of the operator list: in a mixture of experts it reads more experts than a plain step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from calc.arrays import Number, divide
from calc.errors import UsageError, require
from calc.formula import formula
from calc.memory.budget import Capacity, MemoryOptions
from calc.profiles.catalog import Loaded
from calc.profiles.model import Block, ModelProfile
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.serving.request import Workload, end_to_end_s, mean_step
from calc.timing.step_time import NO_TIME, Range

#: Most drafts that are tried; engines rarely go beyond 16.
MAX_DRAFTS = 32
#: Rows by which the vocabularies of a model and its draft may differ (padding): llama.cpp common/speculative.cpp,
#: SPEC_VOCAB_MAX_SIZE_DIFFERENCE.
MAX_VOCABULARY_DIFFERENCE = 128
#: Name of drafts that are looked up in the prompt and cost no step.
NGRAM = "ngram"


def check_acceptance(rates: Sequence[float]) -> None:
    """Refuse rates outside 0..1, and none at all. Raises UsageError."""
    if not rates:
        raise UsageError("speculation needs an acceptance rate", "say --acceptance 0.7, or one rate a position: 0.8,0.6,0.5")
    for rate in rates:
        require(rate, "acceptance", 0.0, 1.0)


@dataclass(frozen=True)
class Draft:
    """What proposes tokens. ``acceptance`` holds the probability that a draft is kept if all before it were, by position; the last one
    stands for all further positions. ``deployment`` None: drafts are looked up (n-grams) and cost nothing."""

    name: str
    deployment: Deployment | None
    acceptance: tuple[float, ...]
    tokens: int
    part_of_model: bool = False  # loaded with the model, whose memory law counts it

    def __post_init__(self) -> None:
        check_acceptance(self.acceptance)
        require(self.tokens, "speculative_tokens", 0, 1024)

    def bytes_per_gpu(self, final_context: int, batch_size: int) -> int:
        """Weights and ideal cache that a draft model of its own takes beside the model, on the rank that holds most."""
        if self.deployment is None or self.part_of_model:
            return 0
        question = self.deployment.question(max_model_len=final_context)
        requests = -(-batch_size // self.deployment.sharding.data_ranks)
        return self.deployment.engine.capacity(question).weights_bytes_per_gpu + int(
            question.rank_cache_bytes(final_context) * requests
        )

    def beside(self, deployment: Deployment, held: Capacity, final_context: int, batch_size: int) -> Deployment:
        """The deployment with what the draft takes among its weights, ``held`` being what it holds alone."""
        size = self.bytes_per_gpu(final_context, batch_size)
        if not size:
            return deployment
        return replace(deployment, memory=replace(deployment.memory, weights_bytes=held.weights_bytes_per_gpu + size))

    def by_position(self, drafts: int) -> tuple[float, ...]:
        """Acceptance of each of so many drafts."""
        return tuple(self.acceptance[min(i, len(self.acceptance) - 1)] for i in range(drafts))


@dataclass(frozen=True)
class Drafting:
    """What was asked of speculation, apart from the number of drafts: ``acceptance`` by position, and what drafts (a model, lookups, or
    None for the model's own next-token layers)."""

    acceptance: tuple[float, ...]
    model: Loaded[ModelProfile] | None = None
    looked_up: bool = False

    def __post_init__(self) -> None:
        check_acceptance(self.acceptance)

    @property
    def name(self) -> str | None:
        """What was named to draft; None: the model's own layers."""
        return NGRAM if self.looked_up else self.model.name if self.model else None

    def draft(self, deployment: Deployment) -> Draft | None:
        """The draft of a deployment; None where it drafts no tokens. Raises UsageError where it cannot draft so."""
        if not deployment.memory.speculative_tokens:
            return None
        return draft_for(deployment, self.acceptance, self.model, looked_up=self.looked_up)


@dataclass(frozen=True)
class Speculation:
    """A round of ``drafts`` proposals and one verify step. Times are means over the output, per request and batch alike.

    ``draft_cost`` and ``verify_cost`` are multiples of a plain decode step. ``best_drafts`` of up to MAX_DRAFTS (or
    those asked for) gives ``best_speedup``; 0: plain decode is fastest. ``e2e_s`` starts with the same prefill.
    """

    draft: Draft
    tokens_per_round: float
    draft_s: Range
    verify_s: Range
    round_s: Range
    tpot_s: Range
    e2e_s: Range
    draft_cost: float | None
    verify_cost: float | None
    speedup: float | None
    best_drafts: int | None
    best_speedup: float | None


def tokens_per_round(acceptance: Sequence[float]) -> float:
    """Expected tokens of a round: those of the drafts that are kept up to the first refusal, and the model's own next one.

    E = 1 + sum over j of the product of the first j rates; (1 - a^(g+1)) / (1 - a) for one rate a and g drafts.
    """
    total = kept = 1.0
    for rate in acceptance:
        kept *= rate
        total += kept
    return total


def round_s(verify_s: Range, draft_s: Range | None, drafts: int) -> Range:
    """Time of a round, numbers or arrays alike: ``drafts`` steps of ``draft_s`` (None: drafts take no step), then one that checks."""
    return verify_s if draft_s is None else verify_s + draft_s * drafts


@formula("tokens / (drafts * draft_cost + verify_cost)")
def speedup(tokens: Number, drafts: Number, draft_cost: Number, verify_cost: Number) -> Number:
    """How many times faster tokens come than from plain decode, costs in plain decode steps."""
    return divide(tokens, drafts * draft_cost + verify_cost)


def draft_for(
    deployment: Deployment, acceptance: tuple[float, ...], model: Loaded[ModelProfile] | None = None, *, looked_up: bool = False
) -> Draft:
    """The draft of a deployment that asks for ``speculative_tokens``: ``model``, n-grams, else the model's own next-token layers."""
    tokens = deployment.memory.speculative_tokens
    if looked_up:
        return Draft(NGRAM, None, acceptance, tokens)
    if model is None:
        return Draft("next-token layers", next_token_draft(deployment), acceptance, tokens, part_of_model=True)
    _same_vocabulary(deployment.model.profile, model.profile)
    options = DeploymentOptions(
        tensor_parallel_size=deployment.sharding.tensor,
        kv_cache_dtype=deployment.kv_cache_dtype,
        engine=deployment.engine.NAME,
        fusion=deployment.fusion,
        memory=MemoryOptions(engine_version=deployment.memory.engine_version),
    )
    found = resolve(model, deployment.hardware, options)
    if deployment.sharding.is_wide:  # each rank drafts for its own requests
        found = replace(found, sharding=replace(found.sharding, data=deployment.sharding.data, expert_parallel=True))
    return Draft(model.name, found, acceptance, tokens)


def _same_vocabulary(model: ModelProfile, draft: ModelProfile) -> None:
    """Drafts are token ids of the model. Raises UsageError where another vocabulary gives them another meaning."""
    own, other = model.vocab_size, draft.vocab_size
    if own is not None and other is not None and abs(own - other) > MAX_VOCABULARY_DIFFERENCE:
        raise UsageError(
            f"{draft.id} drafts tokens of another vocabulary ({other:,} tokens; {model.id} has {own:,})",
            f"name a smaller model of the family {model.family}, or ngram",
        )


def next_token_draft(deployment: Deployment) -> Deployment:
    """The model's own next-token layers as a model that drafts: one module (joining weights and its layers) and the shared head.

    Further drafts run the next module or the same one again. Raises UsageError where the model has none.
    """
    model = deployment.model.profile
    module = model.next_token_layers
    if module is None:
        raise UsageError(f"{model.id} has no next-token layers to draft with", "name a model with --draft-model, or ngram")
    profile = msgspec.structs.replace(
        model, stack=[Block(layers=module.layers)], extras=module.extras, encoder=None, towers=[], next_token_layers=None
    )
    return _of_profile(deployment, profile)


def _of_profile(deployment: Deployment, profile: ModelProfile) -> Deployment:
    """The deployment with a part of its model: same formats and ranks, in one pipeline stage."""
    setting = replace(deployment.setting, layers=profile.num_hidden_layers, layer_split=1, stages=1)
    loaded: Loaded[ModelProfile] = replace(deployment.model, profile=profile)
    sharding = replace(deployment.sharding, pipeline=1)
    memory = replace(deployment.memory, cpu_offload_bytes=0, gpu_layers=None)  # what stays on the host is of the model's own layers
    return deployment.with_setting(setting, model=loaded, sharding=sharding, memory=memory)


def speculate(deployment: Deployment, workload: Workload, draft: Draft, ttft_s: Range) -> Speculation:
    """Times of a request whose output is made in rounds. The deployment must fit together with its draft and have rates."""
    plain = mean_step(deployment, workload)
    draft_s = _draft_step(draft, workload)
    verify_s, tokens = _verified(deployment, workload, draft, draft.tokens)
    whole = round_s(verify_s, draft_s, draft.tokens)
    tpot = whole * (1 / tokens)
    best, gain = _best(deployment, workload, draft, draft_s, plain)
    asked = _gain(tokens, draft.tokens, draft_s, verify_s, plain)
    if asked is not None and asked > gain:  # more drafts than the search tries
        best, gain = draft.tokens, asked
    return Speculation(
        draft=draft,
        tokens_per_round=tokens,
        draft_s=draft_s,
        verify_s=verify_s,
        round_s=whole,
        tpot_s=tpot,
        e2e_s=end_to_end_s(ttft_s, tpot, workload.output_len),
        draft_cost=_ratio(draft_s, plain),
        verify_cost=_ratio(verify_s, plain),
        speedup=asked,
        best_drafts=best,
        best_speedup=gain,
    )


def refused(draft: Draft) -> Speculation:
    """Speculation that is not answered, because the draft does not fit beside the model."""
    tokens = tokens_per_round(draft.by_position(draft.tokens))
    none = (NO_TIME,) * 5
    return Speculation(draft, tokens, *none, None, None, None, None, None)


def _draft_step(draft: Draft, workload: Workload) -> Range:
    """Mean time of one draft step of the whole batch."""
    if draft.deployment is None:
        return Range(0.0, 0.0, 0.0, 0.0, "no step")
    return mean_step(draft.deployment, workload)


def _verified(deployment: Deployment, workload: Workload, draft: Draft, drafts: int) -> tuple[Range, float]:
    """Step that checks so many drafts, and the tokens that it is expected to keep."""
    return mean_step(deployment, workload, drafts), tokens_per_round(draft.by_position(drafts))


def _best(deployment: Deployment, workload: Workload, draft: Draft, draft_s: Range, plain: Range) -> tuple[int, float]:
    """The number of drafts that is fastest, and its speed-up. The search ends where even full acceptance from there on loses."""
    best, gain = 0, 1.0
    most = tokens_per_round(draft.by_position(MAX_DRAFTS))
    for drafts in range(1, MAX_DRAFTS + 1):
        verify_s, tokens = _verified(deployment, workload, draft, drafts)
        reached = _gain(tokens, drafts, draft_s, verify_s, plain) or 0.0
        if reached > gain:
            best, gain = drafts, reached
        if (_gain(most, drafts, draft_s, verify_s, plain) or 0.0) <= gain:
            break
    return best, gain


def _gain(tokens: float, drafts: int, draft_s: Range, verify_s: Range, plain: Range) -> float | None:
    draft_cost, verify_cost = _ratio(draft_s, plain), _ratio(verify_s, plain)
    if draft_cost is None or verify_cost is None:
        return None
    return float(speedup(tokens, drafts, draft_cost, verify_cost))


def _ratio(part: Range, whole: Range) -> float | None:
    if part.expected is None or whole.expected is None:
        return None
    return float(divide(part.expected, whole.expected))
