"""The golden values, and the one comparison that every test of them uses."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "golden" / "golden_values.json"


@cache
def values() -> dict[str, dict[str, Any]]:
    """Entries by id."""
    return {entry["id"]: entry for entry in json.loads(FILE.read_text(encoding="utf-8"))["values"]}


def check(identifier: str, found: float) -> None:
    """Exact where the entry is exact, within its own tolerance elsewhere."""
    entry = values()[identifier]
    expected, tolerance = entry["expected"], entry["rel_tol"]
    if tolerance == 0:
        assert found == expected, f"{identifier}: found {found}, expected exactly {expected}"
    else:
        off = abs(found - expected) / abs(expected)
        assert off <= tolerance, f"{identifier}: found {found}, expected {expected} within {tolerance} (off by {off:.2e})"
