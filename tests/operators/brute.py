"""Counts made the long way, position by position: what the closed forms are held to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from math import comb


def positions(new: int, cached: int) -> range:
    """Indices (from 0) of the new tokens."""
    return range(cached, cached + new)


def causal(i: int) -> set[int]:
    """Keys that position i sees under a causal mask."""
    return set(range(i + 1))


def window(i: int, width: int) -> set[int]:
    """A key is visible iff the distance is less than the window."""
    return {j for j in range(i + 1) if i - j < width}


def chunk(i: int, width: int) -> set[int]:
    """Keys of the same chunk."""
    return {j for j in range(i + 1) if j // width == i // width}


def complete_entries(i: int, ratio: int) -> set[int]:
    """Compressed entries whose last token is at or before position i."""
    return {e for e in range(i // ratio + 1) if (e + 1) * ratio - 1 <= i}


def pairs(sets: Iterable[set[int]]) -> int:
    """Visible (query, key) pairs."""
    return sum(len(s) for s in sets)


def distinct(sets: Iterable[set[int]]) -> int:
    """Different keys seen by any query."""
    return len(set().union(*sets))


def read_span(sets: list[set[int]]) -> int:
    """Keys from the first to the last that any query sees."""
    return max(max(s) for s in sets) - min(min(s) for s in sets) + 1


def routings(experts: int, per_token: int, tokens: int) -> Iterator[set[int]]:
    """Experts hit, for every way in which the tokens can choose."""
    choices = list(combinations(range(experts), per_token))
    for chosen in product(choices, repeat=tokens):
        yield set().union(*map(set, chosen))


def mean_distinct(experts: int, per_token: int, tokens: int) -> float:
    """Expected number of experts hit, by enumeration."""
    total = sum(len(hit) for hit in routings(experts, per_token, tokens))
    return float(total / comb(experts, per_token) ** tokens)
