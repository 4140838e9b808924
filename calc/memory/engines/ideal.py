"""The ideal engine: driver-reported memory x utilisation - weights, blocks of one token, no activations, runtime or graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calc.arrays import Number
from calc.memory import capacity as figures
from calc.memory import host
from calc.memory.budget import MemoryQuestion, Term, device_memory, given_or
from calc.memory.capacity import Capacity, Summary
from calc.memory.kv_cache import RankCache, shared_tokens
from calc.memory.rank import Rank
from calc.memory.share import OfTotal
from calc.memory.weights import named, stage_bytes

NAME = "ideal"
NEWEST_VERSION = "1"
DEFAULT_UTILIZATION = 1.0


@dataclass(frozen=True)
class BytePool:
    """The cache memory of one rank, handed out byte by byte."""

    cache: RankCache
    block_tokens: int = 1

    def blocks(self, kv_bytes: int) -> int:
        """Tokens of one endless sequence."""
        per_token = self.cache.bytes_per_token
        return int(kv_bytes // per_token) if per_token else 0

    def concurrency(self, kv_bytes: int, context: Number, prefix: int = 0) -> Number:
        """Requests of ``context`` tokens that find room at once; a shared prefix is stored once where it grows with the context."""
        if not self.cache.layers:
            return math.inf
        per_token = self.cache.bytes_per_token
        each = self.cache.ideal_bytes(context) - (shared_tokens(prefix, context) * per_token if prefix else 0)
        return max(0.0, kv_bytes - prefix * per_token) / each

    def printed_concurrency(self, kv_bytes: int, length: int) -> float:
        """Requests of ``length`` tokens at once."""
        return float(self.concurrency(kv_bytes, length))

    def printed_tokens(self, kv_bytes: int, length: int) -> int:
        """Tokens in requests of ``length`` tokens."""
        each = self.cache.ideal_bytes(length)
        return int(kv_bytes * length // each) if self.cache.layers else 0

    def reserved_bytes(self, context: int) -> float:
        """Nothing is rounded up."""
        return float(self.cache.ideal_bytes(context))


def capacity(question: MemoryQuestion) -> Capacity:
    """What would fit if memory held nothing but weights and cache."""
    options = question.options
    share = OfTotal(options.gpu_memory_utilization or DEFAULT_UTILIZATION)
    ranks: list[Rank] = []
    warnings: list[tuple[str, str]] = []
    for stage, cache in enumerate(question.caches()):
        memory, said = device_memory(question, framework=False, stage=stage)
        warnings += said
        parts = stage_bytes(
            question.model,
            question.sharding,
            question.numbers,
            stage,
            drafting=question.drafting,
            layers=options.pipeline_layers,
            gpu_experts=options.gpu_experts,
        )
        weights = given_or(options.weights_bytes, "weights", _loaded(question, parts))
        taken = (weights, given_or(options.activation_bytes, "activation", Term("activation", 0, "ideal")))
        kv = given_or(options.kv_cache_bytes, "kv_cache", share.left(memory, taken))
        ranks.append(Rank(stage, memory, taken, kv, BytePool(cache)))
    said_once = tuple(dict.fromkeys(warnings))
    summary = Summary(NAME, NEWEST_VERSION, share, options.max_num_seqs, options.max_num_batched_tokens, said_once)
    return figures.assemble(question, summary, ranks)


def _loaded(question: MemoryQuestion, parts: dict[str, int]) -> Term:
    weights = Term("weights", sum(parts.values()), "exact shapes", parts=named(parts, question.numbers))
    return host.less(question, weights, parts)


def sequences(question: MemoryQuestion, capacity: Capacity, context: int) -> int:
    """How many sequences of ``context`` tokens fit at once."""
    return figures.sequences(capacity, context, question.options.cached_tokens)
