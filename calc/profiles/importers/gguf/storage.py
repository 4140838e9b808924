"""How the tensors of a file are stored: the type of each role, and the exact bytes that were counted."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from calc.profiles.importers.gguf.tensor_list import Ledger
from calc.profiles.importers.gguf.tensor_types import file_type_name
from calc.profiles.model import Storage, StoredBeyond

_INTEGERS = ("i8", "i16", "i32", "i64")


def storage_of(ledger: Ledger, file_type: object, *, tied: bool) -> Storage:
    """Types by role (that of most elements) and bytes by role; a tied head is read in the type of the embedding."""
    _settle(ledger)
    by_role = {role: _most(types) for role, types in ledger.types.items()}
    weights: dict[str, int] = {}
    for types in ledger.types.values():
        for name, elements in types.items():
            weights[name] = weights.get(name, 0) + elements
    dtype = _most(weights) or "fp32"
    if tied and "embedding" in by_role:
        by_role["lm_head"] = by_role["embedding"]
    known = get_args(get_args(get_type_hints(Storage)["roles"])[0])
    roles: Any = {role: by_role[role] for role in known if by_role.get(role)}
    return Storage(
        dtype=dtype,
        roles=roles,
        scheme=file_type_name(file_type) or dtype.upper(),
        total_bytes=sum(ledger.bytes.values()),
        role_bytes={role: ledger.bytes[role] for role in sorted(ledger.bytes)},
    )


def _most(types: dict[str, int]) -> str | None:
    usable = {name: elements for name, elements in types.items() if name not in _INTEGERS}
    return max(usable, key=lambda name: usable[name]) if usable else None


def _settle(ledger: Ledger) -> None:
    """Bytes of a role that holds no parameters (rotary tables of a model without norms) go to the largest one."""
    largest = max(ledger.bytes, key=lambda role: ledger.bytes[role])
    for role in [r for r in ledger.bytes if not ledger.types.get(r) and r != largest]:
        ledger.bytes[largest] += ledger.bytes.pop(role)


def stored_beyond(ledger: Ledger) -> list[StoredBeyond]:
    """Elements of the file that are no parameters of the architecture."""
    return [StoredBeyond(what=what, elements=elements) for what, elements in sorted(ledger.beyond.items())]
