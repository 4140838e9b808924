"""Bytes per element of each tensor role as counted in a checkpoint's own files: what GGUF and safetensors headers list."""

from __future__ import annotations

from calc.operators.numbers import plan
from calc.operators.parameters import Held, held_bytes, model_weights
from calc.profiles.model import ModelProfile

#: Bytes an element may take; a role outside holds tensors that the architecture does not have, or lacks some of its own.
_PLAUSIBLE = (0.1, 8.5)
#: How far a role may be from the bytes that the config implies before its tensors are taken to stand under another name.
_ALIKE = (0.4, 2.5)
#: How far an index's total may be from the computed one to be spread over the roles: beyond, files hold copies or lack parts.
_NEAR = (0.7, 1.4)
_UNNAMED = "other"  # tensors that no role was found for


def counted_bytes(model: ModelProfile) -> dict[str, float]:
    """Bytes per element by role, scales included; empty where no file was at hand.

    Headers give them by role. An index alone gives a total: of a quantised checkpoint it is spread over the roles in proportion, as it
    says what the modules that stayed in 16 bit take. A tied head is read in the format of the embedding.
    """
    storage = model.storage
    if not storage.role_bytes and not (storage.total_bytes and storage.roles):
        return {}
    by_role: dict[str, list[Held]] = {}
    for held in model_weights(model):
        apart = held.part == "next_token_layers" and held.part in storage.role_bytes
        if held.weight.is_held and not apart:
            by_role.setdefault(held.weight.role, []).append(held)
    elements = {role: sum(h.weight.elements * h.count for h in tensors) for role, tensors in by_role.items()}
    numbers = plan(storage.dtype, storage.roles, compute="bf16", group_size=storage.group_size)
    computed = {role: held_bytes(tensors, numbers) for role, tensors in by_role.items()}
    if not storage.role_bytes:
        bytes_by_role = _spread(storage.total_bytes or 0, computed)
    elif storage.scheme:  # the importer has named every tensor
        bytes_by_role = {role: float(storage.role_bytes[role]) for role in by_role if role in storage.role_bytes}
    else:
        bytes_by_role = _by_name(storage.role_bytes, computed)
    found = {role: total / elements[role] for role, total in bytes_by_role.items() if elements[role]}
    found = {role: each for role, each in found.items() if _PLAUSIBLE[0] <= each <= _PLAUSIBLE[1]}
    if model.tie_word_embeddings and "embedding" in found:
        found.setdefault("lm_head", found["embedding"])
    return found


def _by_name(stored: dict[str, int], computed: dict[str, int]) -> dict[str, float]:
    """Bytes of roles that were told apart by the names of tensors. Where names mislead, two roles or more are off, one for the other:
    those share what they hold together in proportion."""
    astray = [role for role, expected in computed.items() if not _ALIKE[0] <= stored.get(role, 0) / max(1, expected) <= _ALIKE[1]]
    found = {role: float(stored[role]) for role in computed if role not in astray}
    together = sum(stored.get(role, 0) for role in astray) + (stored.get(_UNNAMED, 0) if astray else 0)
    expected = sum(computed[role] for role in astray)
    return found | {role: together * computed[role] / expected for role in astray if expected}


def _spread(total: int, computed: dict[str, int]) -> dict[str, float]:
    ratio = total / max(1, sum(computed.values()))
    return {role: ratio * expected for role, expected in computed.items()} if _NEAR[0] <= ratio <= _NEAR[1] else {}
