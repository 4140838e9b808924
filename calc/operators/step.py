"""Model + sharding + formats + work → the ordered operator list of one step. The heart of roofcast: everything reads this list."""

from __future__ import annotations

from collections.abc import Callable

from calc.errors import UsageError
from calc.operators import embedding
from calc.operators.context import LayerContext
from calc.operators.fusion import SEPARATE, FusionPolicy
from calc.operators.layer_kinds import extra_weight, feed_forward_module, mixer_module, own_weights
from calc.operators.numbers import NumberPlan
from calc.operators.operator import Collective, Operator
from calc.operators.sharding import Sharding
from calc.operators.work import Requests, Work
from calc.profiles.model import Encoder, Heads, LayerKind, ModelProfile, layer_counts


def step_operators(
    model: ModelProfile, sharding: Sharding, numbers: NumberPlan, work: Work, policy: FusionPolicy = SEPARATE
) -> list[Operator]:
    """Operators of one step on one replica, in order: embedding, layers by kind, head. Identical layers are one entry.

    Raises UsageError when the sharding does not divide the model or an encoder-only model is asked to decode, ProfileError for a
    kind without a law.
    """
    if work.phase != "prefill" and is_encoder_only(model):
        raise UsageError(f"{model.id} is an encoder: it has no decode step", "ask for prefill alone")

    def context(layers: str, count: int, done: Work = work) -> LayerContext:
        skew = model.routing_skew or 0.0
        return LayerContext(model.hidden_size, model.norm.kind == "layer", sharding, numbers, policy, done, layers, count, skew)

    before, after = embedding.operators(model, context("model", 1))
    found = _encoder_operators(model, work, context) + before
    for name, count in model.layer_counts().items():
        found += layer_operators(model.layer_kinds[name], model, context(name, count))
    if sharding.pipeline > 1:
        ctx = context("stages", sharding.pipeline - 1)
        message = ctx.tokens * model.hidden_size * ctx.activation
        found.append(ctx.collective("stage_send", Collective("send", 2, message), sharding.pipeline - 1))
    return found + after


def is_encoder_only(model: ModelProfile) -> bool:
    """Whether no layer remembers earlier tokens: every mixer attends without a causal mask (BERT)."""
    mixers = [m for name in model.layer_counts() for m in model.layer_kinds[name].mixers]
    return bool(mixers) and all(isinstance(m, Heads) and not m.causal for m in mixers)


def encoder_work(encoder: Encoder, work: Work) -> Work | None:
    """What the encoder does in a step: all positions of each request whose source is new; None where there is no such request."""
    groups = tuple(Requests(g.count, encoder.tokens, 0, 0) for g in work.groups if g.writes_source)
    return Work(work.phase, groups) if groups else None


def _encoder_operators(model: ModelProfile, work: Work, context: Callable[[str, int, Work], LayerContext]) -> list[Operator]:
    """The encoder runs once per request, ahead of the decoder's prefill."""
    done = encoder_work(model.encoder, work) if model.encoder else None
    if model.encoder is None or done is None:
        return []
    found: list[Operator] = []
    for name, count in layer_counts(model.encoder.stack).items():
        found += layer_operators(model.layer_kinds[name], model, context(name, count, done))
    ctx = context("encoder", 1, done)
    for weight in map(extra_weight, model.encoder.extras):
        if weight.use != "table":
            found.append(_extra(weight.name, weight.elements, matrix=not weight.vector, ctx=ctx))
    return found + ([ctx.norm("encoder_norm", 1)] if model.encoder.final_norm else [])


def layer_operators(kind: LayerKind, model: ModelProfile, ctx: LayerContext) -> list[Operator]:
    """Operators of one layer kind: norms, mixers, feed-forward parts and the reductions between ranks."""
    found: list[Operator] = []
    if kind.norms:
        found.append(ctx.norm("layer_norm" if ctx.layer_norm else "rms_norm", kind.norms * ctx.count))
    for mixer in kind.mixers:
        found += mixer_module(mixer).operators(mixer, ctx)
    for part in kind.feed_forwards:
        found += feed_forward_module(part).operators(part, ctx)
    for weight in own_weights(kind, model):
        if weight.role == "extras" and weight.use != "table":
            found.append(_extra(weight.name, weight.elements, matrix=not weight.vector, ctx=ctx))
    if ctx.sharding.tensor > 1 and reductions(kind):
        found.append(ctx.all_reduce(reductions(kind) * ctx.count))
    return found


def reductions(kind: LayerKind) -> int:
    """All-reduces of one layer under tensor parallelism: after the mixers and after the feed-forward parts."""
    if kind.reductions is not None:
        return kind.reductions
    if kind.parallel:
        return 1
    return (1 if kind.mixers else 0) + (1 if kind.feed_forwards else 0)


def _extra(name: str, elements: int, *, matrix: bool, ctx: LayerContext) -> Operator:
    """Weights outside the described parts: a matrix multiplies every token, a vector only crosses memory."""
    number_format = ctx.numbers.weight("extras")
    return Operator(
        name,
        "gemm" if matrix else "elementwise",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"m": ctx.tokens, "elements": elements},
        ctx.numbers.compute_for("extras"),
        flops=2 * ctx.tokens * elements if matrix else 0,
        weight_bytes=number_format.matrix_bytes(1, elements) if matrix else 2 * elements,
        weight_format=number_format.name,
    )
