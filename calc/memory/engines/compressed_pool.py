"""Compressed attention (DeepSeek-V4) in an engine whose packed layout is not known: a range instead of a count of blocks.

A request takes at least its ideal entries; at most three times as much and a fixed cost for windows and compressor states (the logs of
one server: weak evidence). The expected figure is the geometric mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from calc.arrays import Number
from calc.memory.capacity import Capacity
from calc.memory.kv_cache import RankCache, shared_tokens
from calc.units import GIB

_MOST_TIMES, _MOST_FIXED = 3, 1.4 * GIB
BLOCK = 256


@dataclass(frozen=True)
class CompressedPool:
    """The cache memory of one rank, shared by bytes."""

    cache: RankCache
    block_tokens: int = BLOCK

    def request_bytes(self, context: Number) -> tuple[Number, Number, Number]:
        """(low, expected, high) bytes of one request."""
        low = self.cache.ideal_bytes(context)
        high = _MOST_TIMES * low + _MOST_FIXED
        return low, (low * high) ** 0.5, high

    def blocks(self, kv_bytes: int) -> int:
        """Blocks of the printed size, by the slope at a long context."""
        return int(kv_bytes / (self.cache.bytes_per_token * self.block_tokens))

    def concurrency(self, kv_bytes: int, context: Number, prefix: int = 0) -> Number:
        """Requests of ``context`` tokens that find room at once."""
        per_token = self.cache.bytes_per_token
        each = self.request_bytes(context)[1] - (shared_tokens(prefix, context) * per_token if prefix else 0)
        return max(0.0, kv_bytes - prefix * per_token) / each

    def printed_concurrency(self, kv_bytes: int, length: int) -> float:
        """As above: the line of the log is not reproduced exactly."""
        return float(self.concurrency(kv_bytes, length))

    def printed_tokens(self, kv_bytes: int, length: int) -> int:
        """Concurrency x length."""
        return int(self.printed_concurrency(kv_bytes, length) * length)

    def reserved_bytes(self, context: int) -> float:
        """Expected bytes of one request."""
        return float(self.request_bytes(context)[1])


def widened(found: Capacity) -> Capacity:
    """The capacity with the range of what a request takes."""
    pools = [r.pool for r in found.ranks if isinstance(r.pool, CompressedPool)]
    if not pools:
        return found
    low, expected, high = pools[0].request_bytes(found.max_model_len)
    less, more = float(expected / high), float(expected / low)
    warning = (
        "compressed_layout",
        "the packed layout of compressed attention is not known: tokens and concurrency are a wide range (one server's logs)",
    )
    return replace(
        found,
        max_concurrency_low=found.max_concurrency_low * less,
        max_concurrency_high=found.max_concurrency_high * more,
        kv_tokens_low=math.floor(found.kv_tokens_low * less),
        kv_tokens_high=math.ceil(found.kv_tokens_high * more),
        warnings=(*found.warnings, warning),
    )


def is_compressed(cache: RankCache) -> bool:
    """Whether a rank holds caches of compressed entries."""
    return any(layer.law.kind == "compressed" for layer in cache.layers)
