"""Comma lists and ranges of option values: ``1,8,64``, ``1..64``, ``1..512:*2``, ``1k..32k:1k``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from calc import units
from calc.errors import UsageError

#: Longest list that is written out; a single range is not.
MAX_VALUES = 1_000_000

_RANGE = re.compile(r"^\s*([^.:\s]+)\s*\.\.\s*([^.:\s]+)\s*(?::\s*(\*?)\+?\s*([^\s:]+))?\s*$")
#: What people write for a range elsewhere.
_DASHED = re.compile(r"^\s*(\d+[km]?)\s*(?:-|–|:|to)\s*(\d+[km]?)\s*$")


def words(text: str, what: str) -> list[str]:
    """Values of a comma list of names."""
    found = [w.strip() for w in text.split(",")]
    if not all(found):
        raise UsageError(f"{what} has an empty value: {text!r}", "write it like a,b,c")
    return list(dict.fromkeys(found))


def counts(text: str, what: str, *, minimum: int = 1, maximum: int = units.MAX_COUNT) -> Sequence[int]:
    """Whole numbers of a comma list whose items may be ranges, in the order given, each once. A single range stays a ``range``: its
    size is known before it is written out."""
    items = [_item(item, what, minimum, maximum) for item in words(text, what)]
    if len(items) == 1:
        return items[0]
    size = sum(map(len, items))
    if size > MAX_VALUES:
        raise UsageError(f"{what} has {size:,} values; at most {MAX_VALUES:,} are taken", "give ranges a step: 1..1m:*2")
    return list(dict.fromkeys(value for item in items for value in item))


def _item(text: str, what: str, minimum: int, maximum: int) -> Sequence[int]:
    match = _RANGE.match(text)
    if not match:
        meant = _DASHED.match(text)
        if meant:
            first, last = meant.groups()
            raise UsageError(f"{what} is no range: {text!r}", f"write {first}..{last}, or with a step {first}..{last}:*2")
        return [units.parse_count(text, what, minimum=minimum, maximum=maximum)]
    first = units.parse_count(match[1], what, minimum=minimum, maximum=maximum)
    last = units.parse_count(match[2], what, minimum=minimum, maximum=maximum)
    return _range(first, last, bool(match[3]), match[4], f"{what} {text!r}")


def _range(first: int, last: int, multiply: bool, step_text: str | None, what: str) -> Sequence[int]:
    if last < first:
        raise UsageError(f"{what}: the range ends before it begins", f"write the smaller end first: {last}..{first}")
    step = 1 if step_text is None else units.parse_count(step_text, f"step of {what}")
    if not multiply:
        return range(first, last + 1, step)
    if step < 2:
        raise UsageError(f"{what}: the factor must be at least 2", "like 1..512:*2, or a step: 1..512:8")
    if first == 0:
        raise UsageError(f"{what}: a range by factor cannot begin at 0", "begin it at 1, with 0 beside it: 0,1..512:*2")
    values = []
    while first <= last:
        values.append(first)
        first *= step
    return values
