"""One rank of a deployment: what its memory is taken by, and how its engine cuts the rest into a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from calc.arrays import Number
from calc.memory.kv_cache import RankCache
from calc.memory.share import Share
from calc.memory.term import GIVEN, Term


class Pool(Protocol):
    """How an engine cuts the cache memory of one rank. ``kv_bytes`` is that memory, ``context`` the tokens of a request."""

    @property
    def cache(self) -> RankCache:
        """What the layers of the rank keep."""
        ...

    @property
    def block_tokens(self) -> int:
        """Tokens per block."""
        ...

    def blocks(self, kv_bytes: int) -> int:
        """Blocks in the pool."""
        ...

    def printed_tokens(self, kv_bytes: int, length: int) -> int:
        """The token count that the engine prints, ``length`` being the longest sequence it allows."""
        ...

    def printed_concurrency(self, kv_bytes: int, length: int) -> float:
        """Requests of ``length`` tokens at once, as the engine prints it."""
        ...

    def concurrency(self, kv_bytes: int, context: Number, prefix: int = 0) -> Number:
        """Requests of ``context`` tokens that find room at once, ``prefix`` tokens of each being shared; not rounded down."""
        ...

    def reserved_bytes(self, context: int) -> float:
        """Bytes set aside for one request."""
        ...


@dataclass(frozen=True)
class Rank:
    """One rank of a pipeline stage: total memory, what is taken, what is left for the cache and how that is cut."""

    stage: int
    memory: Term
    taken: tuple[Term, ...]
    kv: Term
    pool: Pool

    def term(self, name: str) -> int:
        """Bytes of a taken term, 0 where there is none."""
        return sum(t.bytes for t in self.taken if t.name == name)

    @property
    def fixed_bytes(self) -> int:
        """All taken terms."""
        return sum(t.bytes for t in self.taken)

    @property
    def is_given(self) -> bool:
        """Whether the size of the cache was stated, which replaces the engine's law."""
        return self.kv.evidence == GIVEN

    @property
    def loaded(self) -> bool:
        """Whether the law leaves anything for the cache; a cache that was stated must find room beside the weights."""
        return self.term("weights") + self.kv.bytes <= self.memory.most if self.is_given else self.kv.bytes > 0

    def missing_bytes(self, share: Share, needed: int) -> int:
        """Weights that would have to go for ``needed`` bytes of cache; a cache that was stated does not grow."""
        if self.is_given:
            return max(0, self.term("weights") + self.kv.bytes - self.memory.bytes)
        return share.missing_bytes(self.memory, self.taken, needed)
