"""TensorRT-LLM: a share of what stays free after engine, activations and runtime buffers; blocks rounded up.

Windows are stored like full attention (gpt-oss at 73,728 bytes a token: all 36 layers) unless max_attention_window gives them pools.

Sources: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp (calculateMaxNumBlocks), tensorrt_llm/_torch/pyexecutor/_util.py
(estimation pool first, real pool from the measured peak); start-up logs of 0.8 to 1.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from calc.arrays import Number, minimum
from calc.errors import UsageError
from calc.memory import activations
from calc.memory import capacity as figures
from calc.memory.budget import MemoryQuestion, Term, device_memory, given_or
from calc.memory.capacity import Capacity, Summary
from calc.memory.engines.compressed_pool import CompressedPool, is_compressed, widened
from calc.memory.engines.version import parse_version, shown
from calc.memory.kv_cache import RankCache, shared_tokens
from calc.memory.rank import Rank
from calc.memory.share import OfFreeAfter
from calc.memory.term import gib_term
from calc.memory.weights import named, stage_bytes

NAME = "tensorrt-llm"
NEWEST_VERSION = "1.2"
OLDEST_VERSION = "0.8"
DEFAULT_FRACTION = 0.9
#: Tokens per block: 64 in engines built before 2025.
BLOCK, OLD_BLOCK, BLOCK_32 = 32, 64, (0, 17, 0)
DEFAULT_BATCH, DEFAULT_TOKENS = 2048, 8192
#: Context, communicators, decoder and runtime buffers, GiB.
_RUNTIME_ONE, _RUNTIME_MANY = (0.5, 1.2, 4.0), (1.0, 2.2, 5.5)
_ACTIVATION_SPREAD = (0.7, 1.5)


@dataclass(frozen=True)
class WindowPools:
    """Blocks of one rank: a pool per window, memory shared out by what a long request takes of each."""

    cache: RankCache
    block: int
    length: int
    own_windows: bool = False
    max_total_tokens: int | None = None

    @property
    def block_tokens(self) -> int:
        """Tokens per block."""
        return self.block

    @cached_property
    def _token_bytes(self) -> dict[int, float]:
        """Bytes per token by window (the longest sequence where there is none)."""
        found: dict[int, float] = {}
        for layer in self.cache.layers:
            if layer.law.kind != "state":
                limit = layer.law.limit or self.length if self.own_windows else self.length
                window = min(limit, self.length)
                found[window] = found.get(window, 0.0) + layer.count * self.cache.token_bytes(layer.law)
        return found

    @cached_property
    def _shares(self) -> dict[int, float]:
        sizes = self._token_bytes
        total = sum(window * size for window, size in sizes.items())
        return {window: window * size / total for window, size in sizes.items()} if total else {}

    def pool_tokens(self, kv_bytes: int) -> dict[int, int]:
        """Tokens of every pool, by window: whole blocks, rounded up, bounded by ``max_tokens``."""
        sizes, found = self._token_bytes, {}
        for window, share in self._shares.items():
            blocks = math.ceil(kv_bytes * share / (self.block * sizes[window]))
            if self.max_total_tokens:
                blocks = min(blocks, math.ceil(self.max_total_tokens / self.block))
            found[window] = blocks * self.block
        return found

    def blocks(self, kv_bytes: int) -> int:
        """Blocks of the pool of the longest window."""
        tokens = self.pool_tokens(kv_bytes)
        return tokens[max(tokens)] // self.block if tokens else 0

    def concurrency(self, kv_bytes: int, context: Number, prefix: int = 0) -> Number:
        """Requests that find blocks in every pool."""
        fitting: Number = math.inf
        for window, tokens in self.pool_tokens(kv_bytes).items():
            bounded = window < self.length
            own = self._whole(minimum(context, window) if bounded else context)
            once = 0
            if prefix and not bounded:
                own = own - shared_tokens(prefix, context) // self.block * self.block
                once = prefix // self.block * self.block
            fitting = minimum(fitting, max(0, tokens - once) / own)
        return self._with_states(fitting, kv_bytes)

    def _with_states(self, fitting: Number, kv_bytes: int) -> Number:
        """Recurrent states come out of the same memory: of ``fitting`` requests by their blocks, as many as leave room for a state
        each."""
        if not self.cache.state_bytes:
            return fitting
        each = self.cache.state_bytes / max(1, kv_bytes)
        return 1 / each if fitting is math.inf else fitting / (1 + fitting * each)

    def _whole(self, tokens: Number) -> Number:
        return -(-tokens // self.block) * self.block

    def printed_concurrency(self, kv_bytes: int, length: int) -> float:
        """As above; the log prints blocks and tokens."""
        found = float(self.concurrency(kv_bytes, length))
        return found if math.isfinite(found) else 0.0

    def printed_tokens(self, kv_bytes: int, length: int) -> int:
        """``max tokens in paged KV cache``."""
        return self.blocks(kv_bytes) * self.block

    def reserved_bytes(self, context: int) -> float:
        """Blocks of every pool and the state of one request."""
        total = float(self.cache.state_bytes)
        for window, size in self._token_bytes.items():
            total += float(self._whole(min(context, window) if window < self.length else context)) * size
        return total


def capacity(question: MemoryQuestion) -> Capacity:
    """Blocks of every stage's ranks; the rank that holds least rules."""
    options = question.options
    version, warnings = parse_version(options.engine_version, "TensorRT-LLM", NEWEST_VERSION, OLDEST_VERSION)
    share = OfFreeAfter(options.gpu_memory_utilization or DEFAULT_FRACTION)
    block = options.block_size or (BLOCK if version >= BLOCK_32 else OLD_BLOCK)
    if block & (block - 1):
        raise UsageError(f"TensorRT-LLM refuses blocks of {block} tokens", "--block-size takes powers of two")
    ranks = []
    for stage, cache in enumerate(question.caches()):
        memory, said = device_memory(question, framework=True, stage=stage)
        warnings += said
        pool = (
            CompressedPool(cache)
            if is_compressed(cache)
            else WindowPools(cache, block, question.max_model_len, options.max_attention_window, options.max_total_tokens)
        )
        taken = _taken(question, stage)
        kv = given_or(options.kv_cache_bytes, "kv_cache", share.left(memory, taken))
        ranks.append(Rank(stage, memory, taken, kv, pool))
    summary = Summary(
        NAME,
        shown(version),
        share,
        options.max_num_seqs or DEFAULT_BATCH,
        options.max_num_batched_tokens or DEFAULT_TOKENS,
        tuple(dict.fromkeys(warnings)),
    )
    return widened(figures.assemble(question, summary, ranks))


def _taken(question: MemoryQuestion, stage: int) -> tuple[Term, ...]:
    options = question.options
    parts = stage_bytes(
        question.model, question.sharding, question.numbers, stage, drafting=question.drafting, layers=options.pipeline_layers
    )
    weights = Term("weights", sum(parts.values()), "shapes and formats", parts=named(parts, question.numbers))
    tokens = options.max_num_batched_tokens or DEFAULT_TOKENS
    peak = activations.layer_peak_bytes(question.model, question.sharding, question.numbers, tokens)
    low, high = (int(peak * share) for share in _ACTIVATION_SPREAD)
    runtime = gib_term("runtime", _RUNTIME_ONE if question.sharding.ranks == 1 else _RUNTIME_MANY, "start-up logs")
    return (
        given_or(options.weights_bytes, "weights", weights),
        given_or(options.activation_bytes, "activation", Term("activation", peak, f"layers: {tokens} tokens", low, high)),
        given_or(options.runtime_bytes, "runtime", runtime),
        given_or(options.graph_bytes, "cuda_graphs", Term("cuda_graphs", 0, "after the cache")),
    )


def sequences(question: MemoryQuestion, capacity: Capacity, context: int) -> int:
    """How many sequences of ``context`` tokens fit at once."""
    return figures.sequences(capacity, context, question.options.cached_tokens)
