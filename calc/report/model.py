"""One model as people ask about it: parameters by part, layers by kind, weight bytes, and the cache told apart by how it grows."""

from __future__ import annotations

from typing import Any

from calc.memory.model_facts import ModelFacts
from calc.report.table import Column, Page, Table
from calc.units import format_bytes, format_number, format_parameters


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
    return Page(headline, [layers, parts, cache], notes, facts.warnings)


def _short(text: str, limit: int = 30) -> str:
    return text if len(text) <= limit else text[: limit - 2].rsplit(",", 1)[0] + ", …"
