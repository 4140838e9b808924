"""SGLang's pools: tokens of full attention, tokens of windows, slots of recurrent state.

Sources: sglang/srt/model_executor/model_runner.py (profile_max_num_token, state budget), sglang/srt/mem_cache/memory_pool.py,
sglang/srt/mem_cache/swa_memory_pool.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from calc.arrays import Number, minimum
from calc.memory.engines.sglang_settings import SLOTS_PER_REQUEST, SPARE_SLOT, Settings
from calc.memory.kv_cache import LayerCache, RankCache, shared_tokens


@dataclass(frozen=True)
class TokenPool:
    """The pools of one rank. ``rest`` bytes are split between recurrent state and tokens; tokens of windows are a fixed share of the
    others."""

    cache: RankCache
    settings: Settings
    max_total_tokens: int | None = None
    tokens_only: bool = False  # the bytes are those of the token pools: states have theirs beside

    @property
    def block_tokens(self) -> int:
        """Tokens per page."""
        return self.settings.page

    def _bounded(self, layer: LayerCache) -> bool:
        return layer.law.limit is not None and self.settings.window_pools

    @cached_property
    def _sums(self) -> tuple[float, float]:
        """Bytes of a token in the layers of the pool, and in those that have a window pool."""
        attention = [la for la in self.cache.layers if la.law.kind != "state" and not la.law.fixed_tokens]
        sizes = [(self._bounded(la), la.count * self.cache.token_bytes(la.law)) for la in attention]
        return sum(size for bounded, size in sizes if not bounded), sum(size for bounded, size in sizes if bounded)

    def _sum(self, *, bounded: bool) -> float:
        return self._sums[bounded]

    @cached_property
    def cell_bytes(self) -> float:
        """Bytes of one token of the pool: full layers, and windows by their ratio (windows alone count whole)."""
        full, windows = self._sum(bounded=False), self._sum(bounded=True)
        return full + (self.settings.window_ratio if full else 1.0) * windows

    @cached_property
    def slot_bytes(self) -> float:
        """Bytes of one slot of recurrent state over all layers."""
        return self.cache.state_bytes

    @property
    def has_tokens(self) -> bool:
        """Whether any layer caches tokens."""
        return self.cell_bytes > 0

    def slots(self, rest: int) -> int:
        """Slots of recurrent state; the buffers hold one spare row more."""
        if not self.slot_bytes or self.tokens_only:
            return 0
        ratio = self.settings.state_ratio
        budget = rest * ratio / (1 + ratio) if self.has_tokens else rest
        rows = int(budget // self.slot_bytes)
        return max(0, rows - (1 if self.settings.version >= SPARE_SLOT else 0))

    def state_pool_bytes(self, rest: int) -> float:
        """Memory of the state pool."""
        spare = 1 if self.settings.version >= SPARE_SLOT else 0
        slots = self.slots(rest)
        return (slots + spare) * self.slot_bytes if slots else 0.0

    def token_bytes(self, rest: int) -> float:
        """Memory left for tokens."""
        return max(0.0, rest - self.state_pool_bytes(rest))

    def tokens(self, rest: int) -> int:
        """``max_total_num_tokens``."""
        if not self.has_tokens:
            return 0
        page = self.settings.page
        found = int(self.token_bytes(rest) // self.cell_bytes) // page * page
        return min(found, self.max_total_tokens) if self.max_total_tokens else found

    def window_tokens(self, rest: int) -> int:
        """Tokens of the window pool, 0 where there is none."""
        if not self._sum(bounded=True):
            return 0
        page, share = self.settings.page, (self.settings.window_ratio if self._sum(bounded=False) else 1.0)
        return int(share * self.tokens(rest)) // page * page

    def blocks(self, kv_bytes: int) -> int:
        """Pages."""
        return self.tokens(kv_bytes) // self.settings.page

    def concurrency(self, kv_bytes: int, context: Number, prefix: int = 0) -> Number:
        """Requests that find tokens, window tokens and slots at once."""
        page, bound = self.settings.page, self.max_requests(kv_bytes)
        fitting: Number = bound
        windows = [la.law.limit or 0 for la in self.cache.layers if self._bounded(la)]
        if self.has_tokens and (self._sum(bounded=False) or not windows):
            own = -(-context // page) * page
            if prefix:
                own = own - shared_tokens(prefix, context) // page * page
            fitting = minimum(fitting, max(0, self.tokens(kv_bytes) - prefix // page * page) / own)
        if windows:
            held = minimum(context, max(windows) + page)
            fitting = minimum(fitting, self.window_tokens(kv_bytes) / held)
        return fitting

    def max_requests(self, kv_bytes: int) -> float:
        """Requests that find a slot of recurrent state."""
        if not self.slot_bytes or self.tokens_only:
            return math.inf
        return self.slots(kv_bytes) / SLOTS_PER_REQUEST[self.settings.radix_cache]

    def printed_concurrency(self, kv_bytes: int, length: int) -> float:
        """As above; SGLang prints tokens only."""
        found = float(self.concurrency(kv_bytes, length))
        return found if math.isfinite(found) else 0.0

    def printed_tokens(self, kv_bytes: int, length: int) -> int:
        """``#tokens`` of the pool."""
        return self.tokens(kv_bytes)

    def reserved_bytes(self, context: int) -> float:
        """Bytes of a request: pages of tokens, its window, its slots."""
        page = self.settings.page
        total = -(-context // page) * page * self._sum(bounded=False)
        for layer in self.cache.layers:
            if self._bounded(layer):
                total += (
                    layer.count * self.cache.token_bytes(layer.law) * min(-(-context // page) * page, (layer.law.limit or 0) + page)
                )
            elif layer.law.fixed_tokens:
                total += layer.count * self.cache.token_bytes(layer.law) * layer.law.fixed_tokens
        return total + self.slot_bytes * (SLOTS_PER_REQUEST[self.settings.radix_cache] if self.slot_bytes else 0)


def capped(pool: TokenPool, kv_bytes: int) -> float:
    """Bytes that the token pools really take: a bound on the tokens leaves the rest unused."""
    return pool.tokens(kv_bytes) * pool.cell_bytes
