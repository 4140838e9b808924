"""From a configuration to the questions that the engines' laws answer: one for each version that the record may mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from benchmarks.memory_model import spellings
from benchmarks.memory_model.configuration import Configuration
from benchmarks.memory_model.geometry import unlisted_model
from calc.memory.budget import MemoryOptions, MemoryQuestion
from calc.memory.engines import EngineLaw, engine
from calc.operators.numbers import NumberPlan, plan
from calc.operators.sharding import Sharding
from calc.profiles.model import ModelProfile
from calc.serving.logged import checkpoint_format, device_of_memory
from calc.units import GIB

#: Engines without a law of their own are held against the ideal one.
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llama.cpp", "trt-llm": "tensorrt-llm"}
#: Stands in for a memory that is not known; what depends on it is not predicted.
_ANY_MEMORY_GIB = 65.0
#: Versions that stand for vLLM's eras where a record names none.
_ERAS = {"v0": ("0.7",), "v1": ("0.11", "0.19", None)}
#: First build of llama.cpp in a month, where a record gives a date.
_BUILDS = (("2025-03", 4790), ("2025-04", 5020), ("2025-05", 5250), ("2025-06", 5570), ("2025-08", 6070), ("2025-11", 6900))


@dataclass(frozen=True)
class Asked:
    """A record's questions. The last version is the expected one; the others widen the range. ``listed`` says whether the model is the
    library's, ``memory_known`` whether total memory is."""

    law: EngineLaw
    questions: tuple[MemoryQuestion, ...]
    listed: bool
    memory_known: bool
    version_known: bool


class NotAnswerableError(Exception):
    """Why a record cannot be predicted."""


def ask(config: Configuration) -> Asked:
    """The questions of a record. Raises NotAnswerableError with the reason."""
    model = spellings.model(config.model)
    flags = spellings.flags(config.engine, config.flags)
    listed = model is not None
    model = model or unlisted_model(config.geometry, config.model, config.max_model_len)
    if model is None:
        raise NotAnswerableError(f"the model {config.model!r} is not in the library and the record gives no geometry")
    model = _loaded_model(model, flags)
    named = spellings.devices(config.gpu)
    memory_known = bool(named) or config.gpu_memory_gib is not None
    device = named[0] if named else device_of_memory(config.gpu_memory_gib or _ANY_MEMORY_GIB)
    sharding = _sharding(config)
    devices = tuple(named) if named and len(named) == sharding.pipeline > 1 else ()
    numbers = _numbers(config, model, listed)
    options = _options(config, flags)
    versions = _versions(config)
    questions = tuple(
        MemoryQuestion(model, device, sharding, numbers, replace(options, engine_version=v, devices=devices)) for v in versions
    )
    law = engine(_ENGINES.get(config.engine, "ideal"))
    return Asked(law, questions, listed, memory_known, bool(config.engine_version))


def _loaded_model(model: ModelProfile, flags: dict[str, Any]) -> ModelProfile:
    return msgspec.structs.replace(model, towers=[]) if flags.get("text_only") else model


def _sharding(config: Configuration) -> Sharding:
    if config.engine == "llama.cpp":
        return Sharding(1, max(1, config.gpu_count or 1))
    return Sharding(config.tensor or 1, config.pipeline, config.data, config.expert_parallel)


def _numbers(config: Configuration, model: ModelProfile, listed: bool) -> NumberPlan:
    """Formats: as the record says; the checkpoint's own where it says nothing or the same."""
    keys, values = spellings.cache_formats(config.kv_dtype)
    own = model.storage.kv_cache or "bf16"
    form = spellings.weight_format(config.quantization, config.weight_dtype)
    form = checkpoint_format(model, form)
    if not listed and form not in (None, "none"):
        model = msgspec.structs.replace(model, storage=msgspec.structs.replace(model.storage, dtype=form or "bf16"))
        form = None
    return plan(
        model.storage.dtype,
        model.storage.roles,
        compute="bf16",
        quantization=_block_scaled(config, form),
        group_size=model.storage.group_size if form is None else None,
        kv_cache=own if keys == "auto" else keys,
        kv_cache_values=own if values == "auto" else values,
        state_dtype=model.state_dtype,
    )


def _block_scaled(config: Configuration, form: str | None) -> str | None:
    """Qwen and DeepSeek publish fp8 with scales of blocks."""
    own = re.match(r"(Qwen|deepseek-ai|zai-org)/", config.model or "")
    return "fp8-block" if form == "fp8" and own else form


def _options(config: Configuration, flags: dict[str, Any]) -> MemoryOptions:
    known = {name: _value(value) for name, value in flags.items() if name in MemoryOptions.__dataclass_fields__}
    if "pipeline_layers" in known:
        known["pipeline_layers"] = tuple(int(n) for n in str(flags["pipeline_layers"]).split(","))
    generation = config.engine_generation if config.engine_generation in ("v0", "v1") else None
    own: dict[str, Any] = {
        "gpu_memory_utilization": config.fraction,
        "gpu_memory_bytes": None if config.gpu_memory_gib is None else int(config.gpu_memory_gib * GIB),
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "block_size": config.block_size if config.engine != "llama.cpp" else None,
        "engine_generation": generation,
        "ubatch_size": config.ubatch,
    }
    length = "context_size" if config.engine == "llama.cpp" else "max_model_len"
    own[length] = config.max_model_len
    return MemoryOptions(**(known | {k: v for k, v in own.items() if v is not None}))


def _value(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _versions(config: Configuration) -> tuple[str | None, ...]:
    text = config.engine_version or ""
    if config.engine == "llama.cpp":
        return (_build(text),)
    if config.engine not in ("vllm", "sglang"):
        found = re.match(r"(\d+\.\d+)", text)
        return (found[1] if found else None,)
    tens = re.match(r"0\.2x", text)
    numbers = [] if tens else re.findall(r"(?<![\d.])0\.\d+(?:\.\d+)?", text)
    if numbers:
        return tuple(dict.fromkeys(numbers))
    if tens or "development" in text or "2026" in text:
        return (None,)
    if config.engine == "vllm":
        return _ERAS.get(config.engine_generation or "v1", (None,))
    return (None,)


def _build(text: str) -> str | None:
    if re.match(r"ik\b", text):
        return "ik"
    build = re.search(r"build (\d+)", text)
    if build:
        return f"b{build[1]}"
    month = re.search(r"20\d\d-\d\d", text)
    if month:
        past = [number for start, number in _BUILDS if start <= month[0]]
        return f"b{past[-1]}" if past and month[0] < "2026" else None
    return None
