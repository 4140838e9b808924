"""Models that are split over several GGUF files: the metadata stand in the first, each file lists its own tensors."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from calc.errors import ProfileError
from calc.profiles.importers.gguf.header import MAX_TENSORS, Header, read_header

_DAMAGED = "the file is damaged or not what its name says; fetch it again"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
MAX_PARTS = 1_000


def read_parts(path: Path) -> Header:
    """The header of a file, or of all files of a split model as one. Any of its files may be named."""
    found = _PART.fullmatch(path.name)
    if found is None:
        header = read_header(path)
        if _count(header) > 1:
            raise ProfileError(
                f"{path}: is one of {_count(header)} files of a model, and its name does not lead to the others",
                "keep the names NAME-00001-of-0000N.gguf",
            )
        return header
    stem, count = found[1], int(found[3])
    if not 0 < count <= MAX_PARTS:
        raise ProfileError(f"{path}: is part of {count:,} files; 1 to {MAX_PARTS:,} are read", _DAMAGED)
    paths = [path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    absent = [p for p in paths if not p.exists()]
    if absent:
        raise ProfileError(f"{absent[0]}: no such file; the model is split over {count} files", "download all of its parts")
    return _joined([read_header(p) for p in paths])


def _count(header: Header) -> int:
    count = header.metadata.get("split.count", 1)
    return count if isinstance(count, int) else 1


def _joined(headers: list[Header]) -> Header:
    """One header with the tensors of all parts, which must not share any."""
    first = headers[0]
    for header in headers:
        if _count(header) != len(headers):
            raise ProfileError(f"{header.name}: split.count is {_count(header)}, the file name says {len(headers)}", _DAMAGED)
    tensors = [tensor for header in headers for tensor in header.tensors]
    if len(tensors) > MAX_TENSORS:
        raise ProfileError(f"{first.name}: {len(tensors):,} tensors; at most {MAX_TENSORS:,} are read", _DAMAGED)
    names = {tensor.name for tensor in tensors}
    if len(names) < len(tensors):
        raise ProfileError(f"{first.name}: the parts of the model list a tensor twice", _DAMAGED)
    stated = first.metadata.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise ProfileError(f"{first.name}: split.tensors.count is {stated!r:.40}, the parts list {len(tensors):,}", _DAMAGED)
    digest = hashlib.sha256("".join(header.sha256 for header in headers).encode()).hexdigest()
    return replace(first, tensors=tensors, sha256=digest, missing_bytes=sum(header.missing_bytes for header in headers))


def stem_of(path: Path) -> str:
    """Name of the model's file without its part and suffix."""
    found = _PART.fullmatch(path.name)
    return found[1] if found else path.stem
