"""The header of a GGUF file, read within bounds: metadata and tensor infos, never tensor data.

Format: ggml ``docs/gguf.md``, versions 2 and 3 (version 3 may be big-endian). Of long arrays (vocabularies, merges) only the length is
kept. Nothing is built that the bytes at hand do not pay for: every count is compared with what is left of the file first.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calc.errors import ProfileError
from calc.profiles.importers.gguf.tensor_types import TYPES, Tensor, block_of

_DAMAGED = "the file is damaged or not what its name says; fetch it again"
MAGIC = b"GGUF"
MAX_HEADER_BYTES = 100_000_000
MAX_KEYS = 100_000
MAX_TENSORS = 100_000
MAX_NAME_BYTES = 1_024
MAX_TEXT_BYTES = 4_096  # of a value that is kept: names and types; templates are skipped
MAX_ITEMS = 20_000  # of an array that is kept: one value a layer
MAX_ALL_ITEMS = 500_000  # of all arrays that are kept
MAX_ELEMENTS = 1 << 50
_STARTS = (4 << 20, 32 << 20, MAX_HEADER_BYTES)  # most headers fit the first

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES = {kind: struct.calcsize(f"<{code}") for kind, code in _SCALARS.items()}


@dataclass(frozen=True, slots=True)
class Length:
    """What is kept of an array of texts, or of one too long to hold a value per layer."""

    items: int


@dataclass(frozen=True)
class Header:
    """Metadata and tensors of one file; ``sha256`` is that of the header's bytes."""

    name: str
    metadata: dict[str, Any]
    tensors: list[Tensor]
    sha256: str
    missing_bytes: int = 0  # of the tensor data: what a download that broke off, or a header alone, lacks


class _CutOffError(Exception):
    """The bytes at hand end within the header."""


def read_header(path: Path) -> Header:
    """Read the header of a regular file. Raises ProfileError (exit code 3)."""
    for limit in _STARTS:
        content, size = _start_of(path, limit)
        try:
            return parse_header(content, str(path), size)
        except _CutOffError:
            if len(content) >= size:
                raise ProfileError(f"{path}: the file ends within its header", "is the file cut off?") from None
    raise ProfileError(f"{path}: the header is longer than {MAX_HEADER_BYTES:,} bytes", "is this a GGUF file of a model?")


def _start_of(path: Path, count: int) -> tuple[bytes, int]:
    """(the first ``count`` bytes, size of the file)."""
    try:
        if path.is_dir():
            raise ProfileError(f"{path}: is a folder, not a file", "name the .gguf file inside it")
        if not path.exists():
            raise ProfileError(f"{path}: no such file", "check the spelling and the folder")
        if not path.is_file():
            raise ProfileError(f"{path}: is not a regular file", "copy what it gives into a file and name that")
        with path.open("rb") as file:
            return file.read(count), path.stat().st_size
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}", _DAMAGED) from error


def parse_header(content: bytes, name: str, size: int) -> Header:
    """Parse the header that ``content`` begins with; ``size`` is that of the whole file."""
    reader = _Reader(content, name, size)
    tensor_count, key_count = reader.begin()
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = reader.text("a key")
        if key in metadata:
            raise reader.fault(f"key {key[:80]!r} stands twice")
        metadata[key] = reader.value(reader.number("I"), key)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise reader.fault(f"general.alignment is {alignment!r:.40}; a power of two is expected")
    tensors: dict[str, Tensor] = {}
    for _ in range(tensor_count):
        tensor = reader.tensor(alignment)
        if tensor.name in tensors:
            raise reader.fault(f"tensor {tensor.name!r} stands twice")
        tensors[tensor.name] = tensor
    end = _check_places(reader, list(tensors.values()))
    start = -(-reader.position // alignment) * alignment
    digest = hashlib.sha256(content[: reader.position]).hexdigest()
    return Header(name, metadata, list(tensors.values()), digest, max(0, start + end - size))


def _check_places(reader: _Reader, tensors: list[Tensor]) -> int:
    """Where the tensor data ends; two tensors that share bytes are refused."""
    end, before = 0, ""
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset < end:
            raise reader.fault(f"tensors {before!r} and {tensor.name!r} share bytes")
        end, before = tensor.offset + tensor.bytes, tensor.name
    return end


class _Reader:
    """A place in the header. Every step first asks whether its bytes are there."""

    def __init__(self, content: bytes, name: str, size: int) -> None:
        self.content = content
        self.name = name
        self.size = size
        self.position = 0
        self.order = "<"
        self.items = 0  # of arrays that were kept

    def fault(self, message: str, hint: str | None = None) -> ProfileError:
        return ProfileError(f"{self.name}: {message}", hint)

    def begin(self) -> tuple[int, int]:
        """(tensors, keys) after the magic number and the version."""
        if self.content[:4] != MAGIC:
            raise self.fault("does not begin with GGUF", "is this a GGUF file?")
        self.position = 4
        version = self.number("I")
        if version and not version & 0xFFFF:  # a version in the low half of the other byte order
            self.order, self.position = ">", 4
            version = self.number("I")
        if version not in (2, 3):
            raise self.fault(f"GGUF version {version:,} is not read; versions 2 and 3 are", "convert the file anew")
        tensors, keys = self.number("Q"), self.number("Q")
        for what, count, limit, least in (("tensors", tensors, MAX_TENSORS, 32), ("keys", keys, MAX_KEYS, 13)):
            if count > limit:
                raise self.fault(f"claims {count:,} {what}; at most {limit:,} are read")
            self.expect(count * least, f"{count:,} {what}")
        return tensors, keys

    def expect(self, count: int, what: str) -> None:
        """Refuse what the rest of the file cannot hold."""
        if count > self.size - self.position:
            raise self.fault(f"claims {what}, more than the {self.size:,} bytes of the file hold", "is the file cut off?")

    def take(self, count: int) -> int:
        """Step over ``count`` bytes; where they begin."""
        start = self.position
        if start + count > len(self.content):
            raise _CutOffError
        self.position = start + count
        return start

    def number(self, code: str) -> int:
        size = struct.calcsize(f"<{code}")
        return int(struct.unpack_from(self.order + code, self.content, self.take(size))[0])

    def text(self, what: str, limit: int = MAX_NAME_BYTES) -> str:
        length = self.number("Q")
        if length > limit:
            raise self.fault(f"{what} of {length:,} bytes; at most {limit:,} are read")
        start = self.take(length)
        try:
            return self.content[start : start + length].decode()
        except UnicodeDecodeError as error:
            raise self.fault(f"{what} is not UTF-8 text") from error

    def value(self, kind: int, key: str) -> Any:
        """The value of a key: a scalar, a text (None where it is too long to be a name), a list, or the length of one."""
        if kind == _STRING:
            length = self.number("Q")
            self.expect(length, f"a text of {length:,} bytes under {key[:80]!r}")
            start = self.take(length)
            return self.content[start : start + length].decode(errors="replace") if length <= MAX_TEXT_BYTES else None
        if kind == _ARRAY:
            return self.array(key)
        if kind not in _SCALARS:
            raise self.fault(f"key {key[:80]!r} has the unknown value type {kind:,}")
        return struct.unpack_from(self.order + _SCALARS[kind], self.content, self.take(_SIZES[kind]))[0]

    def array(self, key: str) -> list[Any] | Length:
        kind, count = self.number("I"), self.number("Q")
        if kind != _STRING and kind not in _SCALARS:
            raise self.fault(f"key {key[:80]!r} is an array of the unknown value type {kind:,}")
        size = _SIZES.get(kind, 8)
        self.expect(count * size, f"{count:,} values under {key[:80]!r}")
        if kind == _STRING:
            self.skip_texts(count)
            return Length(count)
        start = self.take(count * size)
        if count > MAX_ITEMS or self.items + count > MAX_ALL_ITEMS or key.startswith("tokenizer."):
            return Length(count)
        self.items += count
        return list(struct.unpack_from(f"{self.order}{count}{_SCALARS[kind]}", self.content, start))

    def skip_texts(self, count: int) -> None:
        """Step over texts; a vocabulary holds some 100,000, so the loop is kept bare."""
        length_at, position, end = struct.Struct(f"{self.order}Q").unpack_from, self.position, len(self.content)
        for _ in range(count):
            if position + 8 > end:
                raise _CutOffError
            position += 8 + length_at(self.content, position)[0]
        if position > self.size:
            raise self.fault("a list of texts ends beyond the file", "is the file cut off?")
        if position > end:
            raise _CutOffError
        self.position = position

    def tensor(self, alignment: int) -> Tensor:
        name = self.text("a tensor name")
        dimensions = self.number("I")
        if not 1 <= dimensions <= 4:
            raise self.fault(f"tensor {name!r} has {dimensions:,} dimensions; 1 to 4 are expected")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        number, offset = self.number("I"), self.number("Q")
        if number not in TYPES:
            raise self.fault(f"tensor {name!r} has the unknown type {number:,}", "known: " + ", ".join(TYPES.values()))
        elements = 1
        for width in shape:
            elements *= width
        if not all(shape) or elements > MAX_ELEMENTS:
            raise self.fault(f"tensor {name!r} has the impossible shape {shape}")
        if shape[0] % block_of(TYPES[number])[0]:
            raise self.fault(f"tensor {name!r}: rows of {shape[0]:,} are not whole blocks of {TYPES[number]}")
        if offset % alignment or offset > 1 << 60:
            raise self.fault(f"tensor {name!r} begins at {offset:,}, which is no multiple of {alignment}")
        return Tensor(name, TYPES[number], shape, offset)
