"""Bytes per element of each tensor role as counted in a checkpoint's own files: what GGUF and safetensors headers list."""

from __future__ import annotations

from calc.operators.numbers import NumberPlan, plan
from calc.operators.parameters import held_bytes, model_weights
from calc.profiles.model import ModelProfile

#: Bytes an element may take; a role outside holds tensors that the architecture does not have, or lacks some of its own.
_PLAUSIBLE = (0.1, 8.5)
#: How far an index's total may be from the computed one to be spread over the roles: beyond, files hold copies or lack parts.
_NEAR = (0.7, 1.4)


def counted_bytes(model: ModelProfile) -> dict[str, float]:
    """Bytes per element by role, scales included; empty where no file was at hand.

    Headers give them by role. An index alone gives a total: of a quantised checkpoint it is spread over the roles in proportion, as it
    says what the modules that stayed in 16 bit take. A tied head is read in the format of the embedding.
    """
    storage = model.storage
    if not storage.role_bytes and not (storage.total_bytes and storage.roles):
        return {}
    elements: dict[str, int] = {}
    for held in model_weights(model):
        if held.weight.is_held and not (held.part in storage.role_bytes and held.part == "next_token_layers"):
            elements[held.weight.role] = elements.get(held.weight.role, 0) + held.weight.elements * held.count
    found = _by_role(storage.role_bytes, elements) if storage.role_bytes else _spread(model, elements)
    if model.tie_word_embeddings and "embedding" in found:
        found.setdefault("lm_head", found["embedding"])
    return found


def _by_role(stored: dict[str, int], elements: dict[str, int]) -> dict[str, float]:
    each = {role: stored[role] / count for role, count in elements.items() if count and stored.get(role)}
    return {role: value for role, value in each.items() if _PLAUSIBLE[0] <= value <= _PLAUSIBLE[1]}


def _spread(model: ModelProfile, elements: dict[str, int]) -> dict[str, float]:
    storage = model.storage
    numbers: NumberPlan = plan(storage.dtype, storage.roles, compute="bf16", group_size=storage.group_size)
    computed: dict[str, int] = {}
    for role in elements:
        tensors = [h for h in model_weights(model) if h.weight.is_held and h.weight.role == role]
        computed[role] = held_bytes(tensors, numbers)
    ratio = (storage.total_bytes or 0) / max(1, sum(computed.values()))
    if not _NEAR[0] <= ratio <= _NEAR[1]:
        return {}
    return {role: ratio * computed[role] / count for role, count in elements.items() if count}
