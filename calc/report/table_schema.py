"""The JSON Schema of answers that are lists of figures: two deployments side by side, a start-up log, one model."""

from __future__ import annotations

from calc.report.schema_parts import Schema, boolean, integer, listed, number, record, text


def compared() -> Schema:
    """``results`` of ``compare``."""
    pair = {
        "name": text("The figure."),
        "unit": text("Its unit."),
        "one": number("Of the first deployment; null where it is not answered or, of a length, not limited."),
        "two": number("Of the second."),
        "ratio": number("Second over first."),
    }
    moved = {
        "where": text("prefill, decode or memory."),
        "name": text("The operator or term that moved most."),
        "unit": text("Its unit."),
        "one": number("Seconds or bytes of the first deployment."),
        "two": number("Of the second."),
    }
    return record({"pairs": listed(pair), "moved_most": listed(moved, "What makes up most of the difference.")})


def reconciled() -> Schema:
    """``results`` of ``reconcile``."""
    figure = {
        "name": text("The figure."),
        "unit": text("bytes, tokens, blocks, cells, slots or x."),
        "predicted": number("By the engine's law."),
        "low": number("Least that the evidence allows."),
        "high": number("Most that the evidence allows."),
        "printed": number("By the engine."),
        "difference": number("Printed less predicted."),
        "line": integer("Line of the log."),
    }
    printed = {
        "name": text("The figure."),
        "value": number("As printed, in its unit."),
        "unit": text("Its unit."),
        "line": integer("Line of the log."),
        "rank": integer("The rank that printed it, where the line says so."),
    }
    return record(
        {
            "engine": text("The engine that wrote the log."),
            "lines_read": integer("Lines read."),
            "truncated": boolean("Whether only the beginning was read."),
            "verdict": text("What comes of the comparison, in a sentence."),
            "gap_bytes": number("Printed cache less the predicted one."),
            "explained_by": text("The term that makes up most of the gap."),
            "figures": listed(figure),
            "from_printed_cache": listed(figure, "What follows from the cache that the log prints."),
            "printed": listed(printed, "Everything that was read."),
            "contradictions": {"type": "array", "items": {"type": "string"}, "description": "What in the log contradicts itself."},
            "overrides": {"type": "object", "description": "Options that bring the prediction to what the log printed."},
        }
    )


def model_shown() -> Schema:
    """``results`` of ``models show``."""
    layer = {
        "name": text("Kind of layer in the profile."),
        "kind": text("What its mixer is."),
        "count": integer("Layers of the kind."),
        "positions": text("Which they are."),
        "parameters_each": integer("Parameters of one."),
        "detail": text("Its shape."),
        "cache": text("How its cache grows: grows, bounded, state or none."),
    }
    beyond = {"what": text("What it is."), "elements": integer("Elements.")}
    return record(
        {
            "name": text("Name."),
            "id": text("Id of the profile."),
            "hub_id": text("Repository on the hub."),
            "family": text("Model type."),
            "parameters": integer("Every tensor of the architecture, without copies and buffers."),
            "parameters_by_part": {"type": "object", "description": "The same by part of the model."},
            "parameters_text": integer("Without next-token layers and towers."),
            "stored_elements": integer("What the checkpoint lists; null if unknown."),
            "stored_beyond_architecture": listed(beyond, "What the checkpoint holds that no step reads."),
            "active_parameters": integer("Parameters that a token passes."),
            "weights_bytes": integer("Bytes as stored, or in the format asked for."),
            "weights_format": text("That format."),
            "kv_cache_dtype": text("Format of the cache figures."),
            "kv_bytes_per_token": number("Slope of the layers whose cache grows without bound."),
            "window_bytes_per_sequence_max": number("Windows and other bounded caches, at most."),
            "state_bytes_per_sequence": integer("Recurrent state."),
            "context_len": integer("Length of the figure below."),
            "kv_bytes_at_context": number("Cache of one sequence of that length."),
            "hidden_size": integer("Hidden size."),
            "vocab_size": integer("Entries of the vocabulary."),
            "max_position_embeddings": integer("The model's own longest context."),
            "num_hidden_layers": integer("Layers."),
            "layers": listed(layer),
            "sources": {"type": "array", "items": {"type": "string"}, "description": "Where the profile comes from."},
        }
    )
