"""Weight bytes of one rank, stage by stage: sharded, replicated, padded, by part."""

from __future__ import annotations

from calc.numerics import NumberFormat
from calc.operators import embedding, parameters
from calc.operators.numbers import NumberPlan
from calc.operators.parameters import Held
from calc.operators.sharding import Sharding, stage_layers
from calc.profiles.model import ModelProfile


def stages(model: ModelProfile, sharding: Sharding) -> list[list[str]]:
    """Names of the layer kinds of each pipeline stage."""
    names = model.layers()
    result, start = [], 0
    for count in stage_layers(len(names), sharding.pipeline):
        result.append(names[start : start + count])
        start += count
    return result


def stage_weights(
    model: ModelProfile, sharding: Sharding, stage: int, *, vocabulary_multiple: int = 1, drafting: bool = False
) -> list[Held]:
    """Tensors that one rank of a pipeline stage holds. Engines pad the vocabulary to ``vocabulary_multiple`` before splitting it;
    next-token layers are loaded only when ``drafting``. A tied head is a copy of its own where the stages differ."""
    import msgspec

    if model.vocab_size and vocabulary_multiple > 1:
        padded = -(-model.vocab_size // vocabulary_multiple) * vocabulary_multiple
        rows = model.embedding_rows and -(-model.embedding_rows // vocabulary_multiple) * vocabulary_multiple
        model = msgspec.structs.replace(model, vocab_size=padded, embedding_rows=rows)
    tensor, last = sharding.tensor, sharding.pipeline - 1
    held: list[Held] = list(parameters.layer_weights(model, stages(model, sharding)[stage], tensor))
    if stage == 0:
        held += [Held("embedding", w, 1) for w in embedding.embedding_weights(model, tensor)]
        held += [Held("extras", h.weight, h.count) for h in parameters.model_extras(model)]
    if stage == last:
        held += [Held(w.role, w, 1) for w in embedding.head_weights(model, tensor) if w.is_held or sharding.pipeline > 1]
        if drafting:
            held += list(parameters.next_token_weights(model, tensor))
    return held


def bytes_by_part(held: list[Held], numbers: NumberPlan) -> dict[str, int]:
    """Bytes of tensors by part of the model."""
    parts: dict[str, int] = {}
    for item in held:
        number_format: NumberFormat = numbers.weight(item.weight.role)
        parts[item.part] = parts.get(item.part, 0) + item.weight.bytes(number_format) * item.count
    return parts


def largest_stage_bytes(
    model: ModelProfile, sharding: Sharding, numbers: NumberPlan, *, vocabulary_multiple: int = 1, drafting: bool = False
) -> tuple[int, dict[str, int]]:
    """(bytes, bytes by part) of the rank that holds most weights."""
    best: tuple[int, dict[str, int]] = (-1, {})
    for stage in range(sharding.pipeline):
        held = stage_weights(model, sharding, stage, vocabulary_multiple=vocabulary_multiple, drafting=drafting)
        parts = bytes_by_part(held, numbers)
        total = sum(parts.values())
        if total > best[0]:
            best = (total, parts)
    return best
