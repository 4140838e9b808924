"""What safetensors files say about stored bytes: the index (total size, tensor names) and headers (exact bytes per tensor).

Only the header of a file is read: 8 bytes of length and that much JSON. A header that contradicts itself or its file is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from calc.errors import ProfileError
from calc.profiles.importers.json_file import MAX_INDEX_BYTES, parse_json, read_json

_DAMAGED = "the file is damaged or not what its name says; fetch it again"
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
MAX_HEADER_BYTES = 100_000_000  # the limit of the format itself
MAX_TENSORS = 2_000_000

#: Bits of an element by the format's dtype names.
DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor."""

    name: str
    dtype: str
    elements: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """``metadata.total_size`` and the file of each tensor."""

    total_bytes: int | None
    files: dict[str, str]


def read_index(path: Path) -> Index:
    """Read ``model.safetensors.index.json``. Raises ProfileError."""
    document = read_json(path, MAX_INDEX_BYTES)
    metadata, weights = document.data.get("metadata", {}), document.data.get("weight_map")
    if not isinstance(metadata, dict) or not isinstance(weights, dict):
        raise ProfileError(
            f"{document.name}: is not a safetensors index: weight_map is missing", "is this model.safetensors.index.json?"
        )
    total = metadata.get("total_size")
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if total is not None and (isinstance(total, bool) or not isinstance(total, int) or not 0 < total < 1 << 50):
        raise ProfileError(
            f"{document.at('metadata', 'total_size')}: metadata.total_size is not a number of bytes: {total!r:.60}", _DAMAGED
        )
    for name, file in weights.items():
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]{1,200}\.safetensors", file):
            raise ProfileError(
                f"{document.at('weight_map', name)}: {name[:80]!r} is said to be in {file!r:.80}", "a file name is expected"
            )
    return Index(total, weights)


def read_header(path: Path) -> list[Tensor]:
    """Tensors of one safetensors file from its header. Raises ProfileError when it is cut off, oversized or contradictory."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            if len(start) < 8:
                raise ProfileError(f"{path}: {size} bytes: too short for a safetensors file", _DAMAGED)
            (length,) = struct.unpack("<Q", start)
            if length > MAX_HEADER_BYTES:
                raise ProfileError(
                    f"{path}: a header of {length:,} bytes; at most {MAX_HEADER_BYTES:,} are read", "is this safetensors?"
                )
            if length > size - 8:
                raise ProfileError(
                    f"{path}: the header says {length:,} bytes, the file has {max(0, size - 8):,}", "is the file cut off?"
                )
            content = file.read(length)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}", _DAMAGED) from error
    return parse_header(content, str(path), size - 8 - length)


def parse_header(content: bytes, name: str, data_bytes: int | None = None) -> list[Tensor]:
    """Tensors of a header's JSON. ``data_bytes`` is what follows it in the file, where known."""
    data = parse_json(content.rstrip(b" "), name).data
    data.pop("__metadata__", None)
    if len(data) > MAX_TENSORS:
        raise ProfileError(f"{name}: {len(data):,} tensors; at most {MAX_TENSORS:,} are read", _DAMAGED)
    spans: list[tuple[int, int]] = []
    tensors = [_tensor(key, entry, name, spans) for key, entry in data.items()]
    spans.sort()
    end = 0
    for first, last in spans:
        if first < end:
            raise ProfileError(f"{name}: two tensors share the bytes at {first:,}", _DAMAGED)
        end = last
    if data_bytes is not None and end > data_bytes:
        raise ProfileError(f"{name}: tensors end at byte {end:,} of {data_bytes:,}", "is the file cut off?")
    return tensors


def _tensor(key: str, entry: Any, name: str, spans: list[tuple[int, int]]) -> Tensor:
    where = f"{name}: tensor {key[:80]!r}"
    if not isinstance(entry, dict):
        raise ProfileError(f"{where} is not described by an object", _DAMAGED)
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise ProfileError(f"{where} has the unknown dtype {dtype!r:.40}", "known: " + ", ".join(DTYPE_BITS))
    if not _whole_numbers(shape, 64) or not _whole_numbers(offsets, 2) or len(offsets) != 2:
        raise ProfileError(f"{where} has no valid shape and data_offsets", _DAMAGED)
    elements = 1
    for width in shape:
        elements *= width
    first, last = offsets
    if last - first != -(-elements * bits // 8) or elements > 1 << 50:
        raise ProfileError(f"{where} holds {elements:,} elements of {dtype} in {last - first:,} bytes", _DAMAGED)
    if elements:
        spans.append((first, last))
    return Tensor(key, str(dtype), elements, last - first)


def _whole_numbers(values: Any, most: int) -> TypeGuard[list[int]]:
    return isinstance(values, list) and len(values) <= most and all(type(v) is int and 0 <= v < 1 << 60 for v in values)


#: Role of a tensor by its name; the first that matches counts.
_ROLES = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        ("tower", r"(^|\.)(vision|visual|vit|audio|image|multi_modal|multimodal|mm_|vision_tower|embed_vision|embed_audio)"),
        ("next_token_layers", r"(^|\.)(mtp|nextn|eh_proj|enorm|hnorm)"),
        ("norm", r"norm[^.]*(\.(weight|bias))?$|(^|\.)ln_\w+\.|layernorm"),
        ("embedding", r"(^|\.)(embed_tokens|tok_embeddings|wte|wpe|embed_in|word_embeddings|embeddings?|embed_positions)(\.|$)"),
        ("lm_head", r"(^|\.)(lm_head|embed_out|output_layer)\.|^output\.weight$"),
        ("shared_experts", r"shared_expert|shared_mlp"),
        ("experts", r"(^|\.)experts\.|\.switch_mlp\."),
        ("router", r"(^|\.)(router|gate|wg|e_score_correction_bias)(\.|$)"),
        ("linear_attention", r"(^|\.)(linear_attn|mamba|mixer|conv1d|time_mix|temporal_block|ssm)\."),
        ("attention", r"attn|attention|(^|\.)(q|k|v|o|qkv|q_a|q_b|kv_a|kv_b)_proj"),
        ("feed_forward", r"(^|\.)(mlp|feed_forward|ffn|fc1|fc2|dense_h_to_4h|dense_4h_to_h|channel_mix|w1|w2|w3)(\.|$)"),
    )
)
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
OTHER = "other"


def role_of(name: str, layers: int | None = None) -> str:
    """The role of a tensor. ``layers`` is the depth of the stack: what is numbered beyond it predicts further tokens."""
    for role, pattern in _ROLES[:1]:
        if pattern.search(name):
            return role
    number = _LAYER.search(name)
    if layers is not None and number and int(number[1][:9]) >= layers:
        return "next_token_layers"
    return next((role for role, pattern in _ROLES if pattern.search(name)), OTHER)


def bytes_by_role(tensors: Iterable[Tensor], layers: int | None = None) -> dict[str, int]:
    """Stored bytes of each role, scales and zero points with the matrices they belong to."""
    found: dict[str, int] = {}
    for tensor in tensors:
        role = role_of(tensor.name, layers)
        found[role] = found.get(role, 0) + tensor.bytes
    return found


@dataclass(frozen=True)
class StoredBytes:
    """Bytes of a checkpoint on disk; by role where all of its headers are at hand."""

    total: int
    by_role: dict[str, int]


def stored_bytes(folder: Path, layers: int | None = None) -> StoredBytes | None:
    """What the safetensors files of a folder, or their index alone, say about stored bytes; None where there are none."""
    index_path, single = folder / INDEX_NAME, folder / SINGLE_NAME
    index = read_index(index_path) if index_path.is_file() else None
    files = sorted({*index.files.values()}) if index else [SINGLE_NAME] if single.is_file() else []
    if files and all((folder / name).is_file() for name in files):
        tensors = [tensor for name in files for tensor in read_header(folder / name)]
        if index:
            tensors = [tensor for tensor in tensors if tensor.name in index.files]
        return StoredBytes(sum(t.bytes for t in tensors), bytes_by_role(tensors, layers))
    return StoredBytes(index.total_bytes, {}) if index and index.total_bytes else None
