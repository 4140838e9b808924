"""The cache law of a layer: bytes that one sequence occupies and a step reads, as a function of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, minimum
from calc.numerics import CacheFormat


@dataclass(frozen=True, slots=True)
class CacheLaw:
    """What a layer keeps for one sequence on one rank.

    ``key_vectors`` and ``value_vectors`` are (count, width) per stored token. ``limit`` bounds the stored tokens (window, chunk);
    ``fixed_tokens`` are stored whatever the context (encoder positions); ``extra_bytes_per_token`` has a format of its own (indexer
    keys). ``state_elements`` and ``convolution_elements`` are constant per sequence. ``kind`` groups layers for engines that pool
    caches by kind: full, sliding, chunked, latent, compressed, cross, state.
    """

    kind: str
    key_vectors: tuple[tuple[int, int], ...] = ()
    value_vectors: tuple[tuple[int, int], ...] = ()
    limit: int | None = None
    fixed_tokens: int = 0
    tokens_per_entry: int = 1  # compressed caches keep one entry for several tokens
    extra_bytes_per_token: float = 0
    state_elements: int = 0
    convolution_elements: int = 0
    full_state_precision: bool = False  # the state is fp32 whatever the cache dtype asks

    def token_bytes(self, keys: CacheFormat, values: CacheFormat) -> float:
        """Bytes of one stored token."""
        total = sum(n * keys.vector_bytes(w) for n, w in self.key_vectors)
        total += sum(n * values.vector_bytes(w) for n, w in self.value_vectors) + self.extra_bytes_per_token
        return int(total) if total == int(total) else total

    def stored_tokens(self, context: Number) -> Number:
        """Cache entries of a sequence of ``context`` tokens."""
        if self.fixed_tokens:
            return self.fixed_tokens
        if not self.key_vectors and not self.extra_bytes_per_token:
            return 0
        tokens = context if self.limit is None else minimum(context, self.limit)
        return tokens // self.tokens_per_entry if self.tokens_per_entry > 1 else tokens

    def state_bytes(self, matrix_bytes: int, convolution_bytes: int) -> int:
        """Constant bytes of a sequence: matrix state and convolution columns."""
        matrix = 4 if self.full_state_precision else matrix_bytes
        return self.state_elements * matrix + self.convolution_elements * convolution_bytes

    @property
    def grows(self) -> bool:
        """Whether the cache grows with the context without bound."""
        return bool(self.key_vectors or self.extra_bytes_per_token) and self.limit is None and not self.fixed_tokens
