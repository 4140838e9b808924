"""The cache of one rank: three numbers that are never merged: ideal bytes, bytes an engine reserves, bytes a step reads.

Bytes are a function of (tokens, sequences), never a slope times tokens; the inverse is a monotone search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from calc.arrays import Number, minimum
from calc.memory.memo import remembered
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
    """``count`` layers of one cache law; ``columns`` of a convolution's inputs are kept (its kernel less one)."""

    law: CacheLaw
    count: int
    columns: int = 0


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

    @cached_property
    def bytes_per_token(self) -> float:
        """Slope at large context: layers whose cache grows without bound."""
        total = sum(
            layer.count * self.token_bytes(layer.law) / layer.law.tokens_per_entry for layer in self.layers if layer.law.grows
        )
        total /= self.decode_context
        return int(total) if total == int(total) else total

    @cached_property
    def window_bytes_max(self) -> float:
        """Most bytes that bounded layers (windows, chunks, encoder positions) hold per sequence."""
        total = 0.0
        for layer in self.layers:
            law = layer.law
            if not law.grows:
                total += layer.count * self.token_bytes(law) * (law.fixed_tokens or law.limit or 0)
        return int(total) if total == int(total) else total

    @cached_property
    def state_bytes(self) -> int:
        """Constant bytes of recurrent state per sequence."""
        return sum(layer.count * self.layer_state_bytes(layer.law) for layer in self.layers)


@remembered
def rank_caches(
    model: ModelProfile,
    sharding: Sharding,
    numbers: NumberPlan,
    *,
    layers: tuple[int, ...] | None = None,
    drafting: bool = False,
    draft_layers: int | None = None,
) -> list[RankCache]:
    """The cache of a rank of every pipeline stage.

    ``layers`` says how many layers each stage has. ``drafting`` adds the caches of the model's next-token layers to the last stage, or
    of ``draft_layers`` attention layers of a separate draft head.
    """
    result = []
    split = stages(model, sharding, layers)
    for index, names in enumerate(split):
        counts: dict[tuple[CacheLaw, int], int] = {}
        extra = _draft_names(model, draft_layers) if drafting and index == len(split) - 1 else []
        for name in [*names, *extra]:
            for law, columns in kind_laws(model, name, sharding.tensor):
                counts[law, columns] = counts.get((law, columns), 0) + 1
        caches = tuple(LayerCache(law, count, columns) for (law, columns), count in counts.items())
        result.append(RankCache(caches, numbers, sharding.decode_context))
    return result


@remembered
def kind_laws(model: ModelProfile, name: str, tensor: int) -> list[tuple[CacheLaw, int]]:
    """Cache laws of a layer kind on one rank, each with the convolution columns it keeps."""
    kind = model.layer_kinds[name]
    columns = max((getattr(m, "conv_kernel", 1) - 1 for m in kind.mixers), default=0)
    return [(law, columns if law.kind == "state" else 0) for law in cache_laws(kind, tensor, model.hidden_size)]


def _draft_names(model: ModelProfile, draft_layers: int | None) -> list[str]:
    """Kinds of the layers that draft: the model's own next-token layers, else as many of its last unbounded attention layer."""
    following = model.next_token_layers
    if draft_layers is None and following:
        return list(following.layers) * following.count
    attention = [n for n in model.layers() if any(law.grows for law, _ in kind_laws(model, n, 1))]
    return attention[-1:] * (draft_layers or 0)


def shared_tokens(prefix: int, context: Number) -> Number:
    """Tokens of a request of ``context`` tokens that it shares: never its last one, which every engine computes itself."""
    return minimum(prefix, context - 1)


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


def index_keys_in_16bit(model: ModelProfile, cache: RankCache) -> float:
    """What the keys of sparse-attention indexers would take beyond their fp8 bytes if they were cached in 16 bit."""
    from calc.operators.indexer import key_bytes

    indexers = [getattr(m, "indexer", None) for kind in model.layer_kinds.values() for m in kind.mixers]
    more: dict[float, int] = {key_bytes(i): 2 * i.head_dim - key_bytes(i) for i in indexers if i is not None and key_bytes(i)}
    laws = [(layer.count, layer.law) for layer in cache.layers if layer.law.grows]
    total = sum(count * more.get(law.extra_bytes_per_token, 0) / law.tokens_per_entry for count, law in laws)
    return int(total) if total == int(total) else total
