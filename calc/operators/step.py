"""Model + sharding + formats + work → the ordered operator list of one step. The heart of roofcast: everything reads this list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from calc.arrays import is_plain, minimum
from calc.errors import UsageError
from calc.operators import decode_context, embedding
from calc.operators.context import LayerContext
from calc.operators.fusion import SEPARATE, FusionPolicy
from calc.operators.layer_kinds import extra_weight, feed_forward_module, mixer_module, own_weights
from calc.operators.numbers import NumberPlan
from calc.operators.operator import Collective, Operator
from calc.operators.sharding import Sharding
from calc.operators.weight import Weight
from calc.operators.work import Requests, Work, share
from calc.profiles.model import Encoder, Experts, Heads, LayerKind, ModelProfile, layer_counts


def step_operators(
    model: ModelProfile,
    sharding: Sharding,
    numbers: NumberPlan,
    work: Work,
    policy: FusionPolicy = SEPARATE,
    *,
    evenly: bool = False,
) -> list[Operator]:
    """Operators of one step on one replica, in order: embedding, layers by kind, head. Identical layers are one entry.

    ``work`` is that of the replica. With data-parallel attention figures are those of the rank that has most requests, for which all
    others wait; with ``evenly`` those of the mean rank, so that they sum to the step (ranks without a request read no weights).
    Raises UsageError when the sharding does not divide the model or an encoder-only model is asked to decode, ProfileError for a
    kind without a law.
    """
    if work.phase != "prefill" and is_encoder_only(model):
        raise UsageError(f"{model.id} is an encoder: it has no decode step", "ask for prefill alone")

    def context(layers: str, count: int, done: Work = work) -> LayerContext:
        skew, own = model.routing_skew or 0.0, share(done, sharding.data_ranks, evenly=evenly)
        is_layer_norm, all_tokens = model.norm.kind == "layer", done.tokens if sharding.is_wide else None
        return LayerContext(model.hidden_size, is_layer_norm, sharding, numbers, policy, own, layers, count, skew, all_tokens)

    before, after = embedding.operators(model, context("model", 1))
    found = _encoder_operators(model, work, context) + before + _extras(map(extra_weight, model.extras), context("model", 1))
    for name, count in model.layer_counts().items():
        found += layer_operators(model.layer_kinds[name], model, context(name, count))
    if sharding.pipeline > 1:
        ctx = context("stages", sharding.pipeline - 1)
        message = ctx.tokens * model.hidden_size * ctx.activation
        found.append(ctx.collective("stage_send", Collective("send", 2, message), sharding.pipeline - 1))
    found += after
    return _without_idle(found, work, sharding) if evenly and sharding.is_wide else found


def _without_idle(operators: list[Operator], work: Work, sharding: Sharding) -> list[Operator]:
    """The mean rank of a step with fewer requests than data-parallel ranks: of the weights that are on all of them only those are read
    that a request passes."""
    busy = minimum(work.sequences / sharding.data_ranks, 1)
    if is_plain(busy) and busy == 1:
        return operators
    return [o if o.op_class == "experts" else replace(o, weight_bytes=o.weight_bytes * busy) for o in operators]


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
    found += _extras(map(extra_weight, model.encoder.extras), ctx)
    return found + ([ctx.norm("encoder_norm", 1)] if model.encoder.final_norm else [])


def layer_operators(kind: LayerKind, model: ModelProfile, ctx: LayerContext) -> list[Operator]:
    """Operators of one layer kind: norms, mixers, feed-forward parts and the reductions between ranks."""
    found: list[Operator] = []
    if kind.norms:
        found.append(ctx.norm("layer_norm" if ctx.layer_norm else "rms_norm", kind.norms * ctx.count))
    for mixer in kind.mixers:
        found += decode_context.shared_out(mixer_module(mixer).operators(mixer, ctx), ctx)
    for part in kind.feed_forwards:
        found += feed_forward_module(part).operators(part, ctx)
    found += _extras((w for w in own_weights(kind, model) if w.role == "extras"), ctx)
    count = remaining_reductions(kind) if ctx.sharding.is_wide else reductions(kind)
    if ctx.sharding.tensor > 1 and count:
        found.append(ctx.all_reduce(count * ctx.count))
    return found


def remaining_reductions(kind: LayerKind) -> int:
    """All-reduces of a layer that are left where tokens travel to experts: the mixture's own result needs none."""
    dense = [part for part in kind.feed_forwards if not isinstance(part, Experts)]
    if len(dense) == len(kind.feed_forwards):
        return reductions(kind)
    return min(reductions(kind), (1 if kind.mixers else 0) + (1 if dense else 0))


def reductions(kind: LayerKind) -> int:
    """All-reduces of one layer under tensor parallelism: after the mixers and after the feed-forward parts."""
    if kind.reductions is not None:
        return kind.reductions
    if kind.parallel:
        return 1
    return (1 if kind.mixers else 0) + (1 if kind.feed_forwards else 0)


def _extras(weights: Iterable[Weight], ctx: LayerContext) -> list[Operator]:
    """Work of weights outside the described parts; tables are looked up."""
    return [_extra(w.name, w.elements, matrix=not w.vector, ctx=ctx) for w in weights if w.use != "table"]


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
