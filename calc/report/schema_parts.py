"""Pieces of a JSON Schema: a figure that may be missing, with its definition."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def number(text: str) -> Schema:
    """A number; null where it is not answered."""
    return {"type": ["number", "null"], "description": text}


def integer(text: str) -> Schema:
    """A whole number; null where it is not answered."""
    return {"type": ["integer", "null"], "description": text}


def text(text: str) -> Schema:
    """Text; null where there is none."""
    return {"type": ["string", "null"], "description": text}


def boolean(text: str) -> Schema:
    """Yes or no; null where it is not answered."""
    return {"type": ["boolean", "null"], "description": text}


def nullable(schema: Schema) -> Schema:
    """The same, or null where it is not answered."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(properties: Schema, text: str = "") -> Schema:
    """Keys with their definitions."""
    return {"type": "object", "properties": properties, **({"description": text} if text else {})}


def listed(properties: Schema, text: str = "") -> Schema:
    """A list of records."""
    return {"type": "array", "items": record(properties), **({"description": text} if text else {})}
