"""vLLM's blocks: pages of equal size, layers grouped by kind, blocks a request needs, and the lines it prints.

Sources: vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py; vllm/model_executor/models/config.py for the block size of
models with recurrent layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.arrays import Number, ceil_div, minimum
from calc.memory.engines.compressed_pool import CompressedPool, is_compressed
from calc.memory.engines.vllm_settings import Settings
from calc.memory.kv_cache import LayerCache, RankCache, shared_tokens
from calc.memory.memo import remembered
from calc.operators.cache_law import CacheLaw

#: A kind with less than this many times the layers of the smallest kind sets the size of the groups (1.25 before 2026).
_NEARLY_EQUAL = 1.5


@dataclass(frozen=True, slots=True)
class Group:
    """Layers of one kind: ``layers`` of them in ``groups`` groups of the pool's size, ``block_tokens`` tokens per block."""

    law: CacheLaw
    layers: int
    groups: int
    block_tokens: int


@dataclass(frozen=True)
class BlockPool:
    """The block pool of one rank. A block costs ``group_size`` pages of ``page_bytes`` and belongs to one group of one request."""

    cache: RankCache
    page_bytes: float
    group_size: int
    layers: tuple[Group, ...]
    block_tokens: int
    settings: Settings
    largest_state_bytes: int = 0  # of one recurrent layer

    @property
    def padding_percent(self) -> float:
        """How much the page of a recurrent layer is padded to that of attention, in percent of the state (a line of the log)."""
        state = self.largest_state_bytes
        return 100 * (self.page_bytes - state) / state if state else 0.0

    @property
    def block_bytes(self) -> float:
        """Bytes of one block over all layers of its group."""
        return self.page_bytes * self.group_size

    def blocks(self, kv_bytes: int) -> int:
        """Blocks in the pool."""
        return int(kv_bytes // self.page_bytes // self.group_size) if self.layers else 0

    def blocks_per_request(self, length: Number) -> Number:
        """Blocks that one request of ``length`` tokens needs, over all groups."""
        total: Number = 0
        for group in self.layers:
            total = total + group.groups * self._group_blocks(group, length)
        return total

    def _group_blocks(self, group: Group, length: Number) -> Number:
        law, block = group.law, group.block_tokens
        tokens = ceil_div(length, self.cache.decode_context)
        if law.kind == "state":
            return self.settings.state_blocks or ceil_div(tokens, block)
        if law.fixed_tokens:
            return ceil_div(law.fixed_tokens, block)
        if law.limit is not None and self.settings.groups:
            if law.kind == "chunked":
                return ceil_div(minimum(law.limit + self.settings.lookahead, tokens), block)
            return ceil_div(minimum(law.limit - 1 + self.settings.lookahead, tokens), block) + 1
        return ceil_div(tokens, block)

    def shared_blocks(self, prefix: Number) -> Number:
        """Whole blocks that a common prefix of all requests takes once: those of the groups whose cache grows with the context."""
        tokens = prefix // self.cache.decode_context
        growing = (g for g in self.layers if g.law.kind != "state" and not g.law.fixed_tokens)
        return sum(g.groups * (tokens // g.block_tokens) for g in growing if g.law.limit is None or not self.settings.groups)

    def concurrency(self, kv_bytes: int, context: Number, prefix: int = 0) -> Number:
        """Requests of ``context`` tokens that find room at once."""
        own = self.blocks_per_request(context)
        if not prefix:
            return self.blocks(kv_bytes) / own
        own = own - self.shared_blocks(shared_tokens(prefix, context))
        return max(0, self.blocks(kv_bytes) - int(self.shared_blocks(prefix))) / own

    def printed_concurrency(self, kv_bytes: int, length: int) -> float:
        """Blocks over the blocks of a request; tokens over length before groups (mid 2025)."""
        if self.settings.token_line == "A":
            return self.blocks(kv_bytes) * self.block_tokens * self.cache.decode_context / length
        return float(self.blocks(kv_bytes) / self.blocks_per_request(length)) if self.layers else 0.0

    def printed_tokens(self, kv_bytes: int, length: int) -> int:
        """The line "GPU KV cache size: N tokens" by era: blocks x block; blocks shared out among the groups; concurrency x length."""
        blocks = self.blocks(kv_bytes)
        groups = sum(g.groups for g in self.layers)
        if not groups:
            return 0
        if self.settings.token_line == "C":
            return int(self.printed_concurrency(kv_bytes, length) * length)
        smallest = min((g.block_tokens for g in self.layers if g.law.kind != "state"), default=length)
        return blocks // groups * smallest * self.cache.decode_context

    def reserved_bytes(self, context: int) -> float:
        """Bytes of the blocks that a request of ``context`` tokens occupies on this rank."""
        return float(self.blocks_per_request(context)) * self.block_bytes if self.layers else 0.0


def block_pool(cache: RankCache, chosen: Settings, max_model_len: int, speculative_tokens: int, alignment: int) -> BlockPool:
    """Group the layers of a rank as vLLM does. ``alignment`` is the block that the attention kernels work in."""
    layers = cache.layers if chosen.groups else tuple(_whole(la) for la in cache.layers)
    attention = [la for la in layers if la.law.kind != "state"]
    states = [la for la in layers if la.law.kind == "state"]
    block = chosen.block_size
    if not layers:  # encoder-only: nothing is cached
        return BlockPool(cache, 1.0, 1, (), block, chosen)
    if not states and len({(la.law.kind, la.law.limit) for la in attention}) == 1:
        return _single_group(cache, attention, chosen)
    if states and attention:
        block = _aligned_block(cache, attention, states, max(alignment, block), speculative_tokens)
    largest = max((cache.token_bytes(la.law) for la in attention), default=0.0)
    page = block * largest
    if any(page % cache.token_bytes(la.law) for la in attention):  # pages cannot be made equal: the engine gives up its groups
        whole = [_whole(la) for la in attention]
        if not states:
            return _single_group(cache, whole, replace(chosen, groups=False))
    groups = [Group(la.law, la.count, 0, int(page // cache.token_bytes(la.law))) for la in attention]
    sizes = [state_bytes(cache, layer, speculative_tokens) for layer in states]
    page = max(page, *map(float, sizes)) if sizes else page
    state_block = block if chosen.state_blocks == 0 else max_model_len
    groups.extend(Group(layer.law, layer.count, 0, state_block) for layer in states)
    merged = _by_kind(groups)
    size = _group_size([g.layers for g in merged])
    final = tuple(replace(g, groups=-(-g.layers // size)) for g in merged)
    return BlockPool(cache, page or 1.0, size, final, block, chosen, max(sizes, default=0))


def _whole(layer: LayerCache) -> LayerCache:
    """A window or chunk stored like full attention: what engines do that cannot mix kinds in one pool."""
    law = layer.law
    return replace(layer, law=replace(law, kind="full", limit=None)) if law.limit is not None else layer


def _single_group(cache: RankCache, layers: list[LayerCache], chosen: Settings) -> BlockPool:
    """One kind, perhaps of several sizes: a block holds one page of every layer."""
    per_token = sum(la.count * cache.token_bytes(la.law) for la in layers)
    whole = Group(layers[0].law, sum(la.count for la in layers), 1, chosen.block_size)
    return BlockPool(cache, chosen.block_size * per_token, 1, (whole,), chosen.block_size, chosen)


def state_bytes(cache: RankCache, layer: LayerCache, speculative_tokens: int) -> int:
    """Bytes of one layer's state; every draft token needs a further convolution column."""
    law = layer.law
    if speculative_tokens and layer.columns:
        grown = law.convolution_elements * (layer.columns + speculative_tokens) // layer.columns
        law = replace(law, convolution_elements=grown)
    return cache.layer_state_bytes(law)


def _by_kind(groups: list[Group]) -> list[Group]:
    """Layers of one kind and block size form one row, whatever else differs."""
    merged: dict[tuple[str, int | None, int], Group] = {}
    for g in groups:
        key = (g.law.kind, g.law.limit, g.block_tokens)
        before = merged.get(key)
        merged[key] = replace(g, layers=g.layers + (before.layers if before else 0))
    return list(merged.values())


def _group_size(counts: list[int]) -> int:
    """Layers per group: the smallest kind's count, or the largest's where the kinds are nearly equal."""
    smallest, largest = min(counts), max(counts)
    return largest if largest < _NEARLY_EQUAL * smallest else smallest


def _aligned_block(cache: RankCache, attention: list[LayerCache], states: list[LayerCache], alignment: int, drafts: int) -> int:
    """Tokens per attention block such that its page holds one state: a multiple of the kernel's block."""
    state = max(state_bytes(cache, la, drafts) for la in states)
    per_token = max(cache.token_bytes(la.law) for la in attention)
    return int(alignment * -(-state // (alignment * per_token)))


@remembered
def block_pools(
    caches: list[RankCache], chosen: Settings, max_model_len: int, speculative_tokens: int, alignment: int
) -> list[BlockPool | CompressedPool]:
    """The pool of every stage."""
    return [
        CompressedPool(cache) if is_compressed(cache) else block_pool(cache, chosen, max_model_len, speculative_tokens, alignment)
        for cache in caches
    ]
