"""Writes GGUF files for tests: any header, sound or broken, and sparse tensor data."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from calc.operators.numbers import NumberPlan, plan
from calc.operators.stored import counted_bytes
from calc.profiles.importers.gguf.tensor_types import TYPES, Tensor
from calc.profiles.importers.gguf_file import import_gguf
from calc.profiles.model import ModelProfile

NUMBERS = {name: number for number, name in TYPES.items()}
#: Name, shape in the order of the file (row length first), type.
Spec = tuple[str, tuple[int, ...], str]


def text(value: str, order: str = "<") -> bytes:
    raw = value.encode()
    return struct.pack(f"{order}Q", len(raw)) + raw


def value(item: Any, order: str = "<") -> bytes:
    """A metadata value with its type number; whole numbers as u32, lists of texts, booleans, whole numbers or floats."""
    number, body = _typed(item, order)
    return struct.pack(f"{order}I", number) + body


def _typed(item: Any, order: str) -> tuple[int, bytes]:
    if isinstance(item, bool):
        return 7, struct.pack(f"{order}?", item)
    if isinstance(item, int):
        return (4, struct.pack(f"{order}I", item)) if 0 <= item < 1 << 32 else (11, struct.pack(f"{order}q", item))
    if isinstance(item, float):
        return 6, struct.pack(f"{order}f", item)
    if isinstance(item, str):
        return 8, text(item, order)
    kinds = {_typed(x, order)[0] for x in item} or {4}
    (kind,) = kinds
    return 9, struct.pack(f"{order}IQ", kind, len(item)) + b"".join(_typed(x, order)[1] for x in item)


def header(
    metadata: dict[str, Any], tensors: Iterable[Spec] = (), *, version: int = 3, order: str = "<", alignment: int = 32
) -> tuple[bytes, int]:
    """(bytes of the header, bytes of the tensor data that it describes)."""
    listed = list(tensors)
    parts = [b"GGUF", struct.pack(f"{order}IQQ", version, len(listed), len(metadata))]
    parts += [text(key, order) + value(item, order) for key, item in metadata.items()]
    offset = 0
    for name, shape, kind in listed:
        parts.append(text(name, order) + struct.pack(f"{order}I{len(shape)}QIQ", len(shape), *shape, NUMBERS[kind], offset))
        offset += -(-Tensor(name, kind, shape, 0).bytes // alignment) * alignment
    return b"".join(parts), offset


def write(path: Path, metadata: dict[str, Any], tensors: Sequence[Spec], *, data: bool = True, **options: Any) -> Path:
    """A file whose tensor data is a hole, or left out."""
    head, size = header(metadata, tensors, **options)
    with path.open("wb") as file:
        file.write(head)
        if data:
            file.truncate(-(-len(head) // 32) * 32 + size)
    return path


def bytes_of(tensors: Iterable[Spec]) -> int:
    """Tensor bytes."""
    return sum(Tensor(name, kind, shape, 0).bytes for name, shape, kind in tensors)


def elements_of(tensors: Iterable[Spec]) -> int:
    """Elements of all tensors."""
    return sum(Tensor(name, kind, shape, 0).elements for name, shape, kind in tensors)


def load(folder: Path, model: Any, **changes: Any) -> ModelProfile:
    """The profile of a file of a small model, with metadata changed or, where None, removed."""
    metadata = {k: v for k, v in (model.metadata | changes).items() if v is not None}
    return import_gguf(write(folder / "model.gguf", metadata, model.tensors))[0]


def numbers_of(profile: ModelProfile) -> NumberPlan:
    """The formats that the file stores, with the bytes that were counted in it."""
    return plan(profile.storage.dtype, profile.storage.roles, compute="bf16", counted_bytes=counted_bytes(profile))
