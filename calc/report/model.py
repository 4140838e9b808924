"""One model as people ask about it: parameters by part, layers by kind, weight bytes, and the cache told apart by how it grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.memory.kv_cache import RankCache, index_keys_in_16bit, rank_caches
from calc.numerics import weight_format
from calc.operators.layer_kinds import cache_laws, part_weights
from calc.operators.numbers import NumberPlan, plan
from calc.operators.parameters import Parameters, count_parameters
from calc.operators.sharding import Sharding
from calc.operators.stored import counted_bytes
from calc.profiles.model import Heads, ModelProfile
from calc.report.table import Column, Page, Table
from calc.units import format_bytes, format_number, format_parameters


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
    warnings: tuple[tuple[str, str], ...] = ()
    if quantization is not None and weight_format(quantization).approximate:
        warnings = (("approximate_format", f"{quantization} is a mix of types by tensor: its average bits are used"),)
    return ModelFacts(
        model,
        numbers,
        count_parameters(model, numbers),
        [_layer_row(model, name, count) for name, count in model.layer_counts().items()],
        cache,
        cache.bytes_per_token + (index_keys_in_16bit(model, cache) if numbers.keys.name in ("bf16", "fp16") else 0),
        cache.window_bytes_max,
        cache.state_bytes,
        length,
        float(cache.ideal_bytes(length)),
        _stored(model),
        quantization or model.storage.format_name,
        warnings,
    )


def _stored(model: ModelProfile) -> int | None:
    return model.parameters.total


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


def record(facts: ModelFacts) -> dict[str, Any]:
    """``results`` of ``models show``."""
    model = facts.model
    return {
        "name": model.name,
        "id": model.id,
        "hub_id": model.hub_id,
        "family": model.family,
        "parameters": facts.parameters.total,
        "parameters_by_part": facts.parameters.by_part,
        "parameters_text": facts.parameters.text,
        "stored_elements": facts.stored_elements,
        "stored_beyond_architecture": [{"what": s.what, "elements": s.elements} for s in model.parameters.stored_beyond_architecture],
        "active_parameters": facts.parameters.active,
        "weights_bytes": facts.parameters.weights_bytes,
        "weights_format": facts.weights_format,
        "kv_cache_dtype": facts.numbers.keys.name,
        "kv_bytes_per_token": facts.kv_bytes_per_token,
        "window_bytes_per_sequence_max": facts.window_bytes_per_sequence_max,
        "state_bytes_per_sequence": facts.state_bytes_per_sequence,
        "context_len": facts.context,
        "kv_bytes_at_context": facts.context_bytes,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "num_hidden_layers": model.num_hidden_layers,
        "layers": [
            {
                "name": row.name, "kind": row.kind, "count": row.count, "positions": row.positions, "parameters_each": row.parameters_each,
                "detail": row.detail, "cache": row.cache,
            }
            for row in facts.layers
        ],
        "sources": [s.url for s in model.sources],
    }  # fmt: skip


def page(facts: ModelFacts) -> Page:
    """One model on one screen."""
    model, parameters = facts.model, facts.parameters
    headline = [
        f"{model.name} ({model.family}): {format_parameters(parameters.total)} parameters"
        + (f", {format_parameters(parameters.active)} active" if parameters.active != parameters.text else "")
        + f", {format_bytes(parameters.weights_bytes)} of weights in {facts.weights_format}",
        f"{model.num_hidden_layers} layers, hidden size {model.hidden_size:,}, vocabulary {format_number(model.vocab_size)}, "
        f"context {format_number(model.max_position_embeddings)}",
    ]
    layers = Table(
        (
            Column("layers", right=True),
            Column("kind"),
            Column("each", right=True),
            Column("cache"),
            Column("shape"),
            Column("which", priority=1),
        ),
        [
            [str(r.count), r.kind, format_parameters(r.parameters_each), r.cache, r.detail, _short(r.positions)]
            for r in facts.layers
        ],
    )
    parts = Table(
        (Column("parameters in"), Column("", right=True), Column("share", right=True)),
        [[part.replace("_", " "), f"{n:,}", f"{100 * n / parameters.total:.1f} %"] for part, n in parameters.by_part.items()]
        + [["total", f"{parameters.total:,}", ""]],
    )
    rows = [
        ["per further token (layers that grow without bound)", f"{format_number(facts.kv_bytes_per_token)} B"],
        ["windows and other bounded caches, at most per sequence", format_bytes(facts.window_bytes_per_sequence_max)],
        ["recurrent state per sequence", format_bytes(facts.state_bytes_per_sequence)],
        [f"one sequence of {facts.context:,} tokens", format_bytes(facts.context_bytes)],
    ]
    cache = Table((Column(f"KV cache in {facts.numbers.keys.name}, whole model"), Column("", right=True)), rows)
    notes = [f"stored beyond the architecture: {s.elements:,} ({s.what})" for s in model.parameters.stored_beyond_architecture]
    notes += [f"quirk: {q}" for q in model.quirks] + [f"source: {s.url}" for s in model.sources[:4]]
    notes += [f"warning [{code}]: {message}" for code, message in facts.warnings]
    return Page(headline, [layers, parts, cache], notes)


def _short(text: str, limit: int = 30) -> str:
    return text if len(text) <= limit else text[: limit - 2].rsplit(",", 1)[0] + ", …"
