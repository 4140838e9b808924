"""The facts of one model apart from any device: parameters, layers by kind, and the cache told apart by how it grows."""

from __future__ import annotations

from dataclasses import dataclass

from calc.memory.kv_cache import RankCache, index_keys_in_16bit, rank_caches
from calc.numerics import weight_format
from calc.operators.layer_kinds import cache_laws, part_weights
from calc.operators.numbers import NumberPlan, plan
from calc.operators.parameters import Parameters, count_parameters
from calc.operators.sharding import Sharding
from calc.operators.stored import counted_bytes
from calc.profiles.model import Heads, ModelProfile


@dataclass(frozen=True)
class LayerRow:
    """Layers of one kind."""

    name: str
    kind: str
    count: int
    positions: str
    parameters_each: int
    detail: str
    cache: str


@dataclass(frozen=True)
class ModelFacts:
    """What ``models show`` answers; bytes are those of one whole model, cache figures at the given cache format."""

    model: ModelProfile
    numbers: NumberPlan
    parameters: Parameters
    layers: list[LayerRow]
    cache: RankCache
    kv_bytes_per_token: float
    window_bytes_per_sequence_max: float
    state_bytes_per_sequence: int
    context: int
    context_bytes: float
    stored_elements: int | None
    weights_format: str
    warnings: tuple[tuple[str, str], ...]


def describe(model: ModelProfile, quantization: str | None, kv_cache: str, context: int | None) -> ModelFacts:
    """Facts of a model at a weight format (None: as stored) and a cache format."""
    numbers = plan(
        model.storage.dtype,
        model.storage.roles,
        compute="bf16",
        quantization=quantization,
        group_size=model.storage.group_size if quantization is None else None,
        kv_cache="bf16" if kv_cache == "auto" else kv_cache,
        state_dtype=model.state_dtype,
        counted_bytes=counted_bytes(model),
    )
    cache = rank_caches(model, Sharding(), numbers)[0]
    length = context or model.max_position_embeddings or 4096
    # Engines keep index keys in fp8; published figures of a 16-bit cache count them in 16 bit.
    wider = index_keys_in_16bit(model, cache) if numbers.keys.name in ("bf16", "fp16") else 0
    warnings: tuple[tuple[str, str], ...] = ()
    if quantization is not None and weight_format(quantization).approximate:
        warnings = (("approximate_format", f"{quantization} is a mix of types by tensor: its average bits are used"),)
    return ModelFacts(
        model,
        numbers,
        count_parameters(model, numbers),
        [_layer_row(model, name, count) for name, count in model.layer_counts().items()],
        cache,
        cache.bytes_per_token + wider,
        cache.window_bytes_max,
        cache.state_bytes,
        length,
        float(cache.ideal_bytes(length)) + wider * length,
        model.parameters.total,
        quantization or model.storage.format_name,
        warnings,
    )


def _layer_row(model: ModelProfile, name: str, count: int) -> LayerRow:
    kind = model.layer_kinds[name]
    tags = [str(type(m).__struct_config__.tag) for m in kind.mixers] + [
        str(type(p).__struct_config__.tag) for p in kind.feed_forwards
    ]
    details = []
    for mixer in kind.mixers:
        if isinstance(mixer, Heads):
            details.append(f"{mixer.num_attention_heads}/{mixer.num_key_value_heads} heads x {mixer.head_dim}")
            window = getattr(mixer, "window", None) or getattr(mixer, "chunk", None)
            if window:
                details.append(f"{window:,} tokens")
    for part in kind.feed_forwards:
        experts = getattr(part, "num_experts", None)
        prefix = f"{experts} experts, {part.num_experts_per_token} a token, " if experts else ""  # type: ignore[union-attr]
        details.append(f"{prefix}width {part.intermediate_size:,}")
    laws = cache_laws(kind, 1, model.hidden_size)
    growth = (
        "none"
        if not laws
        else "grows"
        if any(law.grows for law in laws)
        else "bounded"
        if any(law.key_vectors for law in laws)
        else "state"
    )
    return LayerRow(
        name,
        tags[0] if tags else "none",
        count,
        positions(model, name),
        sum(w.elements for w in part_weights(kind, model, 1)),
        ", ".join(details),
        growth,
    )


def positions(model: ModelProfile, name: str) -> str:
    """Indices of the layers of a kind as ranges: ``0-4, 6-10, …``."""
    indices = [i for i, n in enumerate(model.layers()) if n == name]
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in runs)
