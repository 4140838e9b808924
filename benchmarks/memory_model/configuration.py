"""The configuration of a start-up record: what may enter a prediction. Everything else in a record is an answer.

A field that is null takes its value under ``inferred`` (never ``inferred.reported.*``, never over a stated value). Free text there is
read up to its first explanation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Fields that hold answers or comments on them.
ANSWERS = ("reported", "derived", "naive", "quirks", "check", "check_basis", "inferred")
#: The engines' own names of the fraction, under which records infer it.
_FRACTION_NAMES = ("gpu_memory_utilization", "mem_fraction_static", "kv_cache_free_gpu_mem_fraction")


@dataclass(frozen=True)
class Configuration:
    """What a record says about a deployment. ``geometry`` is what stands in for a model that the library lacks."""

    id: str
    engine: str
    engine_version: str | None
    engine_generation: str | None
    model: str | None
    quantization: str | None
    weight_dtype: str | None
    kv_dtype: str | None
    gpu: str | None
    gpu_count: int | None
    gpu_memory_gib: float | None
    tensor: int | None
    pipeline: int
    data: int
    expert_parallel: bool
    fraction: float | None
    fraction_is_stated: bool
    max_model_len: int | None
    max_num_seqs: int | None
    seqs_are_stated: bool
    max_num_batched_tokens: int | None
    block_size: int | None
    ubatch: int | None
    flags: str
    geometry: Mapping[str, Any] = field(default_factory=dict)


def configuration(record: Mapping[str, Any]) -> Configuration:
    """Read a record's configuration."""
    stated = {key: value for key, value in record.items() if key not in ANSWERS}
    inferred = {k: v for k, v in (record.get("inferred") or {}).items() if not k.startswith("reported.")}

    def text(name: str) -> str | None:
        value = stated.get(name)
        value = inferred.get(name) if value is None else value
        return None if value is None else str(value)

    def number(name: str) -> float | None:
        value = stated.get(name)
        return leading_number(inferred.get(name) if value is None else value)

    def count(name: str) -> int | None:
        value = number(name)
        return None if value is None else int(value)

    fraction = leading_number(stated.get("gpu_memory_utilization"))
    inferred_fraction = next((n for n in (leading_number(inferred.get(k)) for k in _FRACTION_NAMES) if n is not None), None)
    hparams = dict((record.get("naive") or {}).get("hparams") or {})
    hparams.pop("caches", None)
    return Configuration(
        id=str(record["id"]),
        engine=str(record["engine"]),
        engine_version=text("engine_version"),
        engine_generation=text("engine_generation"),
        model=text("model"),
        quantization=text("quantization"),
        weight_dtype=text("weight_dtype"),
        kv_dtype=text("kv_dtype"),
        gpu=text("gpu"),
        gpu_count=count("gpu_count"),
        gpu_memory_gib=number("gpu_memory_gib"),
        tensor=count("tp"),
        pipeline=count("pp") or 1,
        data=count("dp") or 1,
        expert_parallel=bool(stated.get("ep")),
        fraction=fraction if fraction is not None else inferred_fraction,
        fraction_is_stated=fraction is not None,
        max_model_len=count("max_model_len"),
        max_num_seqs=count("max_num_seqs"),
        seqs_are_stated=stated.get("max_num_seqs") is not None,
        max_num_batched_tokens=count("max_num_batched_tokens"),
        block_size=count("block_size"),
        ubatch=count("n_ubatch"),
        flags=text("other_flags") or "",
        geometry=hparams,
    )


def leading_number(value: Any) -> float | None:
    """A number, or the number that a text begins with: ``256, the default`` is 256; ``64 or 32`` leaves it open."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    text = str(value).strip()
    match = re.match(r"(\d+(?:\.\d+)?)(?![\w.])", text)
    if not match or re.match(r"\s+or\s+\d", text[match.end() :]):
        return None
    return float(match[1])
