"""Parameters of a model: totals by part, active parameters, bytes. Counted from the same weights that the operators stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calc.operators import embedding
from calc.operators.layer_kinds import extra_weight, own_weights, part_weights
from calc.operators.numbers import NumberPlan
from calc.operators.weight import Weight
from calc.profiles.model import Block, Experts, Extra, ModelProfile

PARTS = (
    "embedding", "attention", "linear_attention", "feed_forward", "experts", "shared_experts", "router", "norm", "extras",
    "lm_head", "encoder", "next_token_layers", "towers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """``count`` tensors of one shape that a part of the model holds."""

    part: str
    weight: Weight
    count: int


def layer_weights(model: ModelProfile, names: list[str], tensor: int = 1, expert_ranks: int = 1) -> Iterator[Held]:
    """Weights that the given layers hold on one rank; parts that layers share under one name are held once."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    shared: set[str] = set()
    for name, count in counts.items():
        kind = model.layer_kinds[name]
        copies = count
        if kind.shared_weights is not None:
            copies = 0 if kind.shared_weights in shared else 1
            shared.add(kind.shared_weights)
        if copies:
            for weight in part_weights(kind, model, tensor, expert_ranks):
                yield Held(weight.role, weight, copies)
        for weight in own_weights(kind, model):
            yield Held(weight.role, weight, count)


def _names(stack: list[Block]) -> list[str]:
    return [name for block in stack for name in block.layers * block.repeat]


def _extra_weights(extras: list[Extra], part: str) -> Iterator[Held]:
    for extra in extras:
        yield Held(part, extra_weight(extra), 1)


def model_extras(model: ModelProfile, tensor: int = 1) -> Iterator[Held]:
    """What the model holds once outside its layers (extras, the encoder, towers): on the first stage; encoder layers are split."""
    yield from _extra_weights(model.extras, "extras")
    if model.encoder:
        for held in layer_weights(model, _names(model.encoder.stack), tensor):
            yield Held("encoder", held.weight, held.count)
        if model.encoder.final_norm:
            yield Held("encoder", embedding.norm_vector(model, "encoder_norm"), 1)
        yield from _extra_weights(model.encoder.extras, "encoder")
    for tower in model.towers:
        yield Held("towers", Weight(tower.modality + "_tower", "tower", 1, tower.parameters), 1)


def model_weights(model: ModelProfile) -> Iterator[Held]:
    """Every tensor of the architecture on one device."""
    for weight in embedding.embedding_weights(model, 1):
        yield Held("norm" if weight.role == "norm" else "embedding", weight, 1)
    yield from layer_weights(model, model.layers())
    yield from model_extras(model)
    for weight in embedding.head_weights(model, 1):
        yield Held(weight.role, weight, 1)
    yield from next_token_weights(model)


def next_token_weights(model: ModelProfile, tensor: int = 1, expert_ranks: int = 1) -> Iterator[Held]:
    """Weights of the multi-token-prediction layers."""
    following = model.next_token_layers
    if following:
        for held in layer_weights(model, following.layers * following.count, tensor, expert_ranks):
            yield Held("next_token_layers", held.weight, held.count)
        for held in _extra_weights(following.extras, "next_token_layers"):
            yield Held("next_token_layers", held.weight, following.count)


@dataclass(frozen=True)
class Parameters:
    """Parameter counts in elements; ``text`` leaves out next-token layers and towers."""

    total: int
    text: int
    active: int
    by_part: dict[str, int]
    weights_bytes: int


def count_parameters(model: ModelProfile, numbers: NumberPlan | None = None) -> Parameters:
    """Totals of the architecture (copies and buffers not counted) and the bytes of a format plan."""
    by_part: dict[str, int] = {}
    tensors = [held for held in model_weights(model) if held.weight.is_held]
    for held in tensors:
        by_part[held.part] = by_part.get(held.part, 0) + held.weight.elements * held.count
    weights_bytes = held_bytes(tensors, numbers) if numbers is not None else 0
    total = sum(by_part.values())
    text = total - by_part.get("next_token_layers", 0) - by_part.get("towers", 0)
    ordered = {part: by_part[part] for part in PARTS if part in by_part}
    return Parameters(total, text, text - idle_experts(model), ordered, weights_bytes)


def held_bytes(tensors: Iterable[Held], numbers: NumberPlan) -> int:
    """Bytes of tensors. Counted bytes are summed before they are rounded: the sum over a whole model is that of its files."""
    whole, counted = 0, 0.0
    for held in tensors:
        number_format = numbers.weight(held.weight.role)
        if number_format.counted_bytes:
            counted += number_format.counted_bytes * held.weight.elements * held.count
        else:
            whole += held.weight.bytes(number_format) * held.count
    return whole + round(counted)


def idle_experts(model: ModelProfile) -> int:
    """Parameters of the routed experts that a token does not pass."""
    idle = 0
    for name, count in model.layer_counts().items():
        kind = model.layer_kinds[name]
        for part in kind.feed_forwards:
            if isinstance(part, Experts):
                routed = sum(w.elements for w in part_weights(kind, model, 1) if w.role == "experts")
                idle += count * routed * (part.num_experts - part.num_experts_per_token) // part.num_experts
    return idle
