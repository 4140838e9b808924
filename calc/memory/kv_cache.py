"""The cache of one rank: three numbers that are never merged: ideal bytes, bytes an engine reserves, bytes a step reads.

Bytes are a function of (tokens, sequences), never a slope times tokens; the inverse is a monotone search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calc.arrays import Number
from calc.memory.weights import stages
from calc.operators.cache_law import CacheLaw
from calc.operators.layer_kinds import cache_laws
from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.profiles.model import ModelProfile

#: Longest context a search looks at.
MAX_CONTEXT = 1 << 40


@dataclass(frozen=True, slots=True)
class LayerCache:
    """``count`` layers of one cache law."""

    law: CacheLaw
    count: int


@dataclass(frozen=True)
class RankCache:
    """The caches of one rank of one pipeline stage, in given formats. ``decode_context`` ranks share the tokens of each sequence."""

    layers: tuple[LayerCache, ...]
    numbers: NumberPlan
    decode_context: int = 1

    def token_bytes(self, law: CacheLaw) -> float:
        """Bytes of one stored token in one layer."""
        return law.token_bytes(self.numbers.keys, self.numbers.values)

    def layer_state_bytes(self, law: CacheLaw) -> int:
        """Constant bytes per sequence of one layer."""
        return law.state_bytes(self.numbers.state_bytes, self.numbers.convolution_bytes)

    def ideal_bytes(self, context: Number) -> Number:
        """Bytes of one sequence of ``context`` tokens if nothing were rounded up."""
        total: Number = self.state_bytes
        for layer in self.layers:
            tokens = -(-context // self.decode_context) if self.decode_context > 1 else context
            total = total + layer.count * self.token_bytes(layer.law) * layer.law.stored_tokens(tokens)
        return total

    @property
    def bytes_per_token(self) -> float:
        """Slope at large context: layers whose cache grows without bound."""
        total = sum(
            layer.count * self.token_bytes(layer.law) / layer.law.tokens_per_entry for layer in self.layers if layer.law.grows
        )
        total /= self.decode_context
        return int(total) if total == int(total) else total

    @property
    def window_bytes_max(self) -> float:
        """Most bytes that bounded layers (windows, chunks, encoder positions) hold per sequence."""
        total = 0.0
        for layer in self.layers:
            law = layer.law
            if not law.grows:
                total += layer.count * self.token_bytes(law) * (law.fixed_tokens or law.limit or 0)
        return int(total) if total == int(total) else total

    @property
    def state_bytes(self) -> int:
        """Constant bytes of recurrent state per sequence."""
        return sum(layer.count * self.layer_state_bytes(layer.law) for layer in self.layers)


def rank_caches(model: ModelProfile, sharding: Sharding, numbers: NumberPlan) -> list[RankCache]:
    """The cache of a rank of every pipeline stage."""
    result = []
    for names in stages(model, sharding):
        counts: dict[CacheLaw, int] = {}
        for name in names:
            for law in cache_laws(model.layer_kinds[name], sharding.tensor):
                counts[law] = counts.get(law, 0) + 1
        layers = tuple(LayerCache(law, count) for law, count in counts.items())
        result.append(RankCache(layers, numbers, sharding.decode_context))
    return result


def largest_context(fits: Callable[[int], bool], limit: int = MAX_CONTEXT) -> int:
    """The largest whole number up to ``limit`` that fits; 0 if none. ``fits`` must be monotone (bisection)."""
    if not fits(1):
        return 0
    low = 1
    while low < limit and fits(min(2 * low, limit)):
        low = min(2 * low, limit)
    high = min(2 * low, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
