"""vLLM's blocks: pages of equal size, layers grouped by kind, blocks a request needs, and the line it prints.

Sources: vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py; vllm/model_executor/models/config.py for the block size of
models with recurrent layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calc.errors import UsageError
from calc.memory.kv_cache import LayerCache, RankCache
from calc.operators.cache_law import CacheLaw

if TYPE_CHECKING:
    from calc.memory.budget import MemoryQuestion
    from calc.memory.engines.vllm import Settings

DEFAULT_BLOCK = 16
LATENT_BLOCK = 64  # FlashMLA and sparse latent kernels


def default_block_size(question: MemoryQuestion) -> int:
    """Tokens per block when the user gives none: 16, or 64 for latent attention with an indexer."""
    laws = [layer.law for cache in question.caches() for layer in cache.layers]
    return LATENT_BLOCK if any(law.kind == "latent" for law in laws) else DEFAULT_BLOCK


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of layer of a pool: ``layers`` layers, ``groups`` groups of the pool's size, ``block_tokens`` tokens per block."""

    law: CacheLaw
    layers: int
    groups: int
    block_tokens: int


@dataclass(frozen=True)
class Pool:
    """The block pool of one rank. A block costs ``group_size`` pages of ``page_bytes`` and belongs to one group of one request."""

    cache: RankCache
    page_bytes: float
    group_size: int
    layers: tuple[Group, ...]
    block_tokens: int
    max_batched_tokens: int
    state_blocks: int  # per state group and request

    def blocks(self, kv_bytes: int) -> int:
        """Blocks in the pool."""
        if not self.layers:
            return 0
        return int(kv_bytes // self.page_bytes // self.group_size)

    def blocks_per_request(self, length: int) -> int:
        """Blocks that one request of ``length`` tokens needs, over all groups."""
        return sum(g.groups * self._group_blocks(g, length) for g in self.layers)

    def _group_blocks(self, group: Group, length: int) -> int:
        tokens = -(-length // self.cache.decode_context)
        law = group.law
        if law.kind == "state":
            return self.state_blocks
        if law.fixed_tokens:
            return -(-law.fixed_tokens // group.block_tokens)
        if law.kind == "sliding":
            return -(-min((law.limit or 1) - 1 + self.max_batched_tokens, tokens) // group.block_tokens) + 1
        if law.kind == "chunked":
            return -(-min((law.limit or 0) + self.max_batched_tokens, tokens) // group.block_tokens)
        return -(-tokens // group.block_tokens)

    def concurrency(self, kv_bytes: int, length: int) -> float:
        """Requests of ``length`` tokens at once, as vLLM prints it."""
        need = self.blocks_per_request(length)
        return self.blocks(kv_bytes) / need if need else 0.0

    def holds(self, kv_bytes: int, length: int) -> bool:
        """Whether one request of ``length`` tokens fits."""
        return not self.layers or self.blocks_per_request(length) <= self.blocks(kv_bytes)

    def printed_tokens(self, kv_bytes: int, length: int, version: tuple[int, int]) -> int:
        """The line "GPU KV cache size: N tokens": blocks x block size for uniform models; for hybrids by era: blocks shared among the
        groups (up to about 0.20), later concurrency x max_model_len."""
        blocks = self.blocks(kv_bytes)
        groups = sum(g.groups for g in self.layers)
        if not groups:
            return 0
        if version >= (0, 21):
            return int(blocks / max(1, self.blocks_per_request(length)) * length)
        smallest = min((g.block_tokens for g in self.layers if g.law.kind != "state"), default=length)
        return blocks // groups * smallest * self.cache.decode_context

    def reserved_bytes(self, length: int) -> float:
        """Bytes of the blocks that a request of ``length`` tokens occupies on this rank."""
        return self.blocks_per_request(length) * self.page_bytes * self.group_size


def pool(cache: RankCache, question: MemoryQuestion, chosen: Settings) -> Pool:
    """Group the layers of a rank as vLLM does."""
    layers = cache.layers
    attention = [la for la in layers if la.law.kind != "state"]
    states = [la for la in layers if la.law.kind == "state"]
    state_blocks = (2 if chosen.prefix_caching else 1) + question.options.speculative_tokens
    block, page, groups = chosen.block_size, 0.0, []
    if not layers:  # encoder-only: nothing is cached
        return Pool(cache, 1.0, 1, (), block, chosen.max_num_batched_tokens, state_blocks)
    if attention and not states and len({la.law.kind for la in attention}) == 1:
        # One kind, perhaps of several sizes: a single group, a block holds one page of every layer.
        per_token = sum(la.count * cache.token_bytes(la.law) for la in attention)
        whole = Group(attention[0].law, sum(la.count for la in attention), 1, block)
        return Pool(cache, block * per_token, 1, (whole,), block, chosen.max_num_batched_tokens, state_blocks)
    if states and attention:
        block = _aligned_block(cache, attention, states, chosen.block_size)
    largest = max((cache.token_bytes(la.law) for la in attention), default=0.0)
    page = block * largest
    for layer in attention:
        per_token = cache.token_bytes(layer.law)
        tokens = int(page // per_token)
        if page % per_token:
            raise UsageError(
                f"vLLM cannot give layers of {per_token:g} and {largest:g} bytes a token pages of one size",
                "use another --block-size",
            )
        groups.append(Group(layer.law, layer.count, 0, tokens))
    for layer in states:
        page = max(page, float(cache.layer_state_bytes(layer.law)))
        groups.append(Group(layer.law, layer.count, 0, question.max_model_len))
    size = _group_size([g.layers for g in _by_kind(groups)])
    final = tuple(Group(g.law, g.layers, -(-g.layers // size), g.block_tokens) for g in _by_kind(groups))
    return Pool(cache, page or 1.0, size, final, block, chosen.max_num_batched_tokens, state_blocks)


def _by_kind(groups: list[Group]) -> list[Group]:
    """Layers of one kind and block size form one row, whatever else differs."""
    merged: dict[tuple[str, int | None, int], Group] = {}
    for g in groups:
        key = (g.law.kind, g.law.limit, g.block_tokens)
        before = merged.get(key)
        merged[key] = Group(g.law, g.layers + (before.layers if before else 0), 0, g.block_tokens)
    return list(merged.values())


def _group_size(counts: list[int]) -> int:
    """Layers per group: the smallest kind's count, or the largest's where it is less than 1.5 times the smallest."""
    smallest, largest = min(counts), max(counts)
    return largest if largest < 1.5 * smallest else smallest


def _aligned_block(cache: RankCache, attention: list[LayerCache], states: list[LayerCache], block_size: int) -> int:
    """Tokens per attention block such that its page holds one state: a multiple of the kernel's block."""
    state = max(cache.layer_state_bytes(la.law) for la in states)
    per_token = max(cache.token_bytes(la.law) for la in attention)
    return int(block_size * -(-state // (block_size * per_token)))
