"""What differs between two models, key by key."""

from __future__ import annotations

from typing import Any

import msgspec

from calc.memory.model_facts import describe
from calc.profiles.model import ModelProfile
from calc.report.model import record
from calc.report.table import Column, Page, Table, flatten
from calc.units import format_number

_LEFT_OUT = ("id", "name", "hub_id", "aliases", "sources", "quirks", "parameters", "licence", "layer_kinds", "stack")
_FIGURES = (
    "parameters", "active_parameters", "weights_bytes", "kv_bytes_per_token", "window_bytes_per_sequence_max",
    "state_bytes_per_sequence", "num_hidden_layers",
)  # fmt: skip


def differences(one: ModelProfile, two: ModelProfile) -> list[dict[str, Any]]:
    """Figures first, then every key of the profiles whose values differ. Layer kinds are compared in order of appearance."""
    first, second = record(describe(one, None, "bf16", None)), record(describe(two, None, "bf16", None))
    found = [{"key": k, "one": first[k], "two": second[k]} for k in _FIGURES if first[k] != second[k]]
    a, b = _shape(one), _shape(two)
    found += [{"key": k, "one": a.get(k), "two": b.get(k)} for k in dict.fromkeys([*a, *b]) if a.get(k) != b.get(k)]
    return found


def _shape(model: ModelProfile) -> dict[str, Any]:
    data = {k: v for k, v in msgspec.to_builtins(model).items() if k not in _LEFT_OUT}
    flat = flatten(data)
    for position, (name, count) in enumerate(model.layer_counts().items(), start=1):
        kind = msgspec.to_builtins(model.layer_kinds[name])
        flat[f"kind {position}.layers"] = count
        for part in ("mixers", "feed_forwards"):
            for i, item in enumerate(kind.pop(part)):
                flat |= {f"kind {position}.{part}[{i}].{k}": v for k, v in flatten(item).items()}
        flat |= flatten(kind, f"kind {position}")
    return flat


def page(one: str, two: str, found: list[dict[str, Any]]) -> Page:
    """The differences as a table."""

    def shown(value: Any) -> str:
        return (
            "-" if value is None else format_number(value) if isinstance(value, (int, float)) and value is not True else str(value)
        )

    lines = [[d["key"], shown(d["one"]), shown(d["two"])] for d in found]
    headline = [f"{one} and {two}: {len(found)} differences"]
    return Page(headline, [Table((Column(""), Column(one, right=True), Column(two, right=True)), lines)] if found else [])
