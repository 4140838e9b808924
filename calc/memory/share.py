"""What an engine's utilisation is a share of, and what that leaves for the cache: the formula beside the figures it gives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from calc.memory.term import Term

Taken = tuple[Term, ...]


class Share(Protocol):
    """The memory law of one rank. ``taken`` are the terms beside the cache, sizes are bytes per GPU."""

    @property
    def value(self) -> float:
        """The utilisation."""
        ...

    @property
    def formula(self) -> str:
        """The cache in the names of the terms, exactly as it is computed."""
        ...

    @property
    def words(self) -> str:
        """What the utilisation does, in a few words after the total memory."""
        ...

    def left(self, memory: Term, taken: Taken) -> Term:
        """What the cache gets; nothing where the rest does not fit."""
        ...

    def base(self, memory: Term, taken: Taken) -> tuple[str, int]:
        """The line of the budget that the utilisation makes: its name and bytes."""
        ...

    def limit_bytes(self, memory: Term, taken: Taken) -> int:
        """What all terms and the cache take together at most."""
        ...

    def missing_bytes(self, memory: Term, taken: Taken, needed: int) -> int:
        """Weights that would have to go for ``needed`` bytes of cache; 0 where they find room."""
        ...


@dataclass(frozen=True)
class OfTotal:
    """A share of all memory, from which everything is subtracted (vLLM, llama.cpp, the ideal engine)."""

    value: float
    formula = "max(0, floor(gpu_memory * utilization) - weights - activation - runtime - cuda_graphs)"

    @property
    def words(self) -> str:
        """As in the budget."""
        return f" x {self.value:g}"

    def left(self, memory: Term, taken: Taken) -> Term:
        """The share less all terms."""
        return remainder(memory.scaled("usable", self.value), taken)

    def base(self, memory: Term, taken: Taken) -> tuple[str, int]:
        """The share itself."""
        return f"usable (x {self.value:g})", int(memory.bytes * self.value)

    def limit_bytes(self, memory: Term, taken: Taken) -> int:
        """The share itself."""
        return int(memory.bytes * self.value)

    def missing_bytes(self, memory: Term, taken: Taken, needed: int) -> int:
        """Terms and cache beyond the share."""
        return max(0, _sum(taken) + needed - int(memory.bytes * self.value))


@dataclass(frozen=True)
class OfFreeBefore:
    """A share of what is free before weights are loaded holds weights and cache (SGLang); the rest of it stays free for activations
    and graphs."""

    value: float
    formula = "max(0, floor(max(0, gpu_memory - runtime) * utilization) - weights)"

    @property
    def words(self) -> str:
        """As in the budget."""
        return f"; weights and cache get {self.value:g} of what is free before loading"

    def static(self, memory: Term, before: Term) -> Term:
        """The share of what ``before`` leaves free."""
        return remainder(memory, [before], "free_before_loading").scaled("static", self.value)

    def left(self, memory: Term, taken: Taken) -> Term:
        """The share less the weights."""
        weights, before = (_named(taken, name) for name in ("weights", "runtime"))
        return remainder(self.static(memory, before), [weights])

    def base(self, memory: Term, taken: Taken) -> tuple[str, int]:
        """The static share."""
        return f"static (x {self.value:g} of what is free before loading)", self.static(memory, _named(taken, "runtime")).bytes

    def limit_bytes(self, memory: Term, taken: Taken) -> int:
        """All memory: what stays free is one of the terms."""
        return memory.bytes

    def missing_bytes(self, memory: Term, taken: Taken, needed: int) -> int:
        """Weights and cache beyond the static share."""
        return max(0, _named(taken, "weights").bytes + needed - self.static(memory, _named(taken, "runtime")).bytes)


@dataclass(frozen=True)
class OfFreeAfter:
    """A share of what stays free after everything is loaded is the cache (TensorRT-LLM)."""

    value: float
    formula = "floor(max(0, gpu_memory - weights - activation - runtime - cuda_graphs) * utilization)"

    @property
    def words(self) -> str:
        """As in the budget."""
        return f"; the cache gets {self.value:g} of what stays free"

    def left(self, memory: Term, taken: Taken) -> Term:
        """The share of the rest."""
        return remainder(memory, taken, "free").scaled("kv_cache", self.value)

    def base(self, memory: Term, taken: Taken) -> tuple[str, int]:
        """The rest, of which the cache gets its share."""
        return f"free after loading (x {self.value:g} is the cache)", remainder(memory, taken, "free").bytes

    def limit_bytes(self, memory: Term, taken: Taken) -> int:
        """All terms and the share of the rest."""
        return min(memory.bytes, _sum(taken)) + self.left(memory, taken).bytes

    def missing_bytes(self, memory: Term, taken: Taken, needed: int) -> int:
        """A byte of cache takes more than a byte that is free."""
        return max(0, _sum(taken) + math.ceil(needed / self.value) - memory.bytes)


def remainder(usable: Term, taken: Iterable[Term], name: str = "kv_cache") -> Term:
    """What is left of ``usable``. Spreads of independent terms add in quadrature: not all of them are at their worst at once."""
    taken = list(taken)
    rest = usable.bytes - sum(t.bytes for t in taken)
    less = math.hypot(usable.bytes - usable.least, *(t.most - t.bytes for t in taken))
    more = math.hypot(usable.most - usable.bytes, *(t.bytes - t.least for t in taken))
    return Term(name, max(0, rest), "what is left", max(0, int(rest - less)), max(0, int(rest + more)))


def _sum(taken: Taken) -> int:
    return sum(t.bytes for t in taken)


def _named(taken: Taken, name: str) -> Term:
    return next(t for t in taken if t.name == name)
