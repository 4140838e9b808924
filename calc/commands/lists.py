"""Comma lists and ranges of option values: ``1,8,64``, ``1..64``, ``1..512:*2``, ``1k..32k:1k``."""

from __future__ import annotations

import re

from calc import units
from calc.errors import UsageError

#: Longest list that one option may make.
MAX_VALUES = 1_000_000

_RANGE = re.compile(r"^\s*([^.:\s]+)\s*\.\.\s*([^.:\s]+)\s*(?::\s*(\*?)\+?\s*([^\s:]+))?\s*$")


def words(text: str, what: str) -> list[str]:
    """Values of a comma list of names."""
    found = [w.strip() for w in text.split(",")]
    if not all(found):
        raise UsageError(f"{what} has an empty value: {text!r}", "write it like a,b,c")
    return list(dict.fromkeys(found))


def counts(text: str, what: str, *, minimum: int = 1, maximum: int = units.MAX_COUNT) -> list[int]:
    """Whole numbers of a comma list whose items may be ranges, in the order given, each once."""
    found: dict[int, None] = {}
    for item in words(text, what):
        match = _RANGE.match(item)
        if not match:
            found.setdefault(units.parse_count(item, what, minimum=minimum, maximum=maximum))
            continue
        first = units.parse_count(match[1], what, minimum=minimum, maximum=maximum)
        last = units.parse_count(match[2], what, minimum=minimum, maximum=maximum)
        for value in _range(first, last, bool(match[3]), match[4], f"{what} {item!r}"):
            found.setdefault(value)
    return list(found)


def _range(first: int, last: int, multiply: bool, step_text: str | None, what: str) -> list[int]:
    if last < first:
        raise UsageError(f"{what}: the range ends before it begins")
    step = 1 if step_text is None else units.parse_count(step_text, f"step of {what}")
    if multiply:
        if step < 2:
            raise UsageError(f"{what}: the factor must be at least 2")
        if first == 0:
            raise UsageError(f"{what}: a range by factor cannot begin at 0")
        values = []
        while first <= last:
            values.append(first)
            first *= step
        return values
    size = (last - first) // step + 1
    if size > MAX_VALUES:
        raise UsageError(f"{what} has {size:,} values; at most {MAX_VALUES:,} are taken", "give it a step: 1..1m:*2")
    return list(range(first, last + 1, step))
