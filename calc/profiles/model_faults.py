"""Contradictions within a model profile that the schema cannot say."""

from __future__ import annotations

from collections.abc import Iterator

from calc.profiles.model import Block, Experts, GatedDeltaNet, Heads, LayerKind, Mamba2, Mixer, ModelProfile

#: Longest stack that is accepted: bounds every list that is made of one.
MAX_LAYERS = 20_000

Fault = tuple[tuple[str | int, ...], str]


def faults(model: ModelProfile) -> list[Fault]:
    """(path, message) of every contradiction."""
    if model.num_hidden_layers > MAX_LAYERS:
        return [(("stack",), f"{model.num_hidden_layers:,} layers; at most {MAX_LAYERS:,} are accepted")]
    found = list(_unknown_kinds(model))
    for name, kind in model.layer_kinds.items():
        found += _kind_faults(kind, ("layer_kinds", name))
    return found


def _unknown_kinds(model: ModelProfile) -> Iterator[Fault]:
    stacks: list[tuple[tuple[str | int, ...], list[Block]]] = [(("stack",), model.stack)]
    if model.encoder:
        stacks.append((("encoder", "stack"), model.encoder.stack))
    for place, stack in stacks:
        for index, block in enumerate(stack):
            yield from (_unknown((*place, index, "layers"), n) for n in block.layers if n not in model.layer_kinds)
    if model.next_token_layers:
        place = ("next_token_layers", "layers")
        yield from (_unknown(place, n) for n in model.next_token_layers.layers if n not in model.layer_kinds)


def _unknown(place: tuple[str | int, ...], name: str) -> Fault:
    return place, f"layer kind {name!r} is not among layer_kinds"


def _kind_faults(kind: LayerKind, place: tuple[str | int, ...]) -> Iterator[Fault]:
    for i, mixer in enumerate(kind.mixers):
        yield from _mixer_faults(mixer, (*place, "mixers", i))
    for i, part in enumerate(kind.feed_forwards):
        if isinstance(part, Experts) and part.num_experts_per_token > part.num_experts + part.zero_experts:
            message = f"a token cannot pass {part.num_experts_per_token} of {part.num_experts} experts"
            yield (*place, "feed_forwards", i, "num_experts_per_token"), message


def _mixer_faults(mixer: Mixer, place: tuple[str | int, ...]) -> Iterator[Fault]:
    if isinstance(mixer, Heads) and mixer.num_attention_heads % mixer.num_key_value_heads:
        heads, kv_heads = mixer.num_attention_heads, mixer.num_key_value_heads
        yield (*place, "num_key_value_heads"), f"{heads} query heads cannot share {kv_heads} key-value heads evenly"
    if isinstance(mixer, GatedDeltaNet) and mixer.num_value_heads % mixer.num_key_heads:
        yield (*place, "num_value_heads"), "value heads must be a multiple of key heads"
    if isinstance(mixer, Mamba2) and mixer.num_heads % mixer.num_groups:
        yield (*place, "num_groups"), "heads must be a multiple of groups"
