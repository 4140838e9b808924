"""One term of the memory budget: a figure with its evidence and, where the evidence spreads, its range."""

from __future__ import annotations

from dataclasses import dataclass

from calc.units import GIB

#: Evidence of what the user states.
GIVEN = "given"

#: Named shares of a sum, bytes.
Parts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the budget in bytes per GPU. ``low`` and ``high`` where the evidence spreads; ``parts`` are what the law put
    together, by name, where it is a sum."""

    name: str
    bytes: int
    evidence: str
    low: int | None = None
    high: int | None = None
    parts: Parts = ()

    @property
    def least(self) -> int:
        """Smallest value the evidence allows."""
        return self.bytes if self.low is None else self.low

    @property
    def most(self) -> int:
        """Largest value the evidence allows."""
        return self.bytes if self.high is None else self.high

    def scaled(self, name: str, share: float) -> Term:
        """A share of the term."""
        return Term(name, int(self.bytes * share), self.evidence, int(self.least * share), int(self.most * share))


def given(name: str, size: int) -> Term:
    """A term that the user states."""
    return Term(name, size, GIVEN, parts=((GIVEN, size),))


def gib_term(name: str, spread: tuple[float, float, float], evidence: str) -> Term:
    """A term from (low, expected, high) in GiB."""
    low, expected, high = (int(x * GIB) for x in spread)
    return Term(name, expected, evidence, low, high)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that an engine prints at start-up, in ``unit`` (bytes, tokens, blocks, cells, slots, x)."""

    name: str
    value: float
    unit: str = "bytes"
