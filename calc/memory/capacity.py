"""What a deployment holds: the figures of every rank put together. The rank that holds least rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from calc.arrays import Number, minimum
from calc.memory.kv_cache import largest_context
from calc.memory.rank import Rank
from calc.memory.share import Share
from calc.memory.term import Figure, Term
from calc.operators.step import is_encoder_only, step_operators
from calc.operators.work import decode

if TYPE_CHECKING:
    from calc.memory.budget import MemoryQuestion


@dataclass(frozen=True)
class Capacity:
    """What one deployment holds, by the rank that ``ruling`` names. Figures are per GPU where the name says so; see the interface's
    JSON keys of the same names.

    A replica of ``data_ranks`` groups of ranks with requests of their own holds so many times what one group does: sequences and
    concurrency are those of all, ``max_num_seqs`` and tokens those of one, as its engine prints and limits them.

    ``kv_tokens`` is what the engine prints; ``kv_bytes_per_sequence`` holds ideal, reserved and read-per-step bytes of a sequence of
    ``max_model_len`` tokens, summed over the ranks of a replica. ``printed`` are further figures of the engine's start-up log.

    ``most_slots`` where requests run in slots, each with the cache of its whole length set aside (llama.cpp): how many the engine could
    be told to start; ``max_num_seqs`` is how many it does. None: caches grow with their requests.
    """

    fits: bool
    engine: str
    engine_version: str
    max_model_len: int
    gpu_memory_utilization: float
    capacity_bytes_per_gpu: int
    weights_bytes_per_gpu: int
    activation_bytes_per_gpu: int
    runtime_bytes_per_gpu: int
    graph_bytes_per_gpu: int
    kv_cache_bytes_per_gpu: int
    kv_bytes_per_token_per_gpu: float
    state_bytes_per_sequence_per_gpu: int
    block_tokens: int
    blocks: int
    kv_tokens: int
    kv_tokens_low: int
    kv_tokens_high: int
    max_concurrency: float
    max_concurrency_low: float
    max_concurrency_high: float
    max_context_tokens: int
    kv_bytes_per_sequence: dict[str, float]
    terms: tuple[Term, ...]
    share: Share
    ruling: Rank = field(repr=False, compare=False)
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    printed: tuple[Figure, ...] = ()
    ranks: tuple[Rank, ...] = field(default=(), repr=False, compare=False)
    data_ranks: int = 1
    most_slots: int | None = None

    @property
    def loaded(self) -> bool:
        """Whether every rank has its weights and something left for the cache."""
        return all(r.loaded for r in self.ranks)

    @property
    def fixed_bytes_per_gpu(self) -> int:
        """What the rank that rules takes beside the cache."""
        return self.ruling.fixed_bytes

    @property
    def limit_bytes_per_gpu(self) -> int:
        """What its terms and the cache take together at most."""
        return self.share.limit_bytes(self.ruling.memory, self.ruling.taken)

    @property
    def sequence_limit(self) -> int | None:
        """Most sequences of all groups at once, where the engine limits them."""
        return self.most_slots or (self.max_num_seqs and self.max_num_seqs * self.data_ranks)


@dataclass(frozen=True)
class Summary:
    """What an engine says about itself beside its ranks."""

    engine: str
    version: str
    share: Share
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    warnings: tuple[tuple[str, str], ...] = ()
    printed: tuple[Figure, ...] = ()
    most_slots: int | None = None


def assemble(question: MemoryQuestion, summary: Summary, ranks: list[Rank]) -> Capacity:
    """The capacity of a replica. Every stage needs the same number of blocks, so the rank with the fewest rules."""
    length = question.max_model_len
    cached = [r for r in ranks if r.pool.cache.layers]
    ruling = min(cached or ranks, key=lambda r: (r.pool.blocks(r.kv.bytes), r.kv.bytes))

    def least(value: Callable[[Rank], float]) -> float:
        return min(map(value, cached), default=float(summary.max_num_seqs or 0))

    groups = question.sharding.data_ranks
    concurrency = [
        groups * least(lambda r, b=budget: r.pool.printed_concurrency(getattr(r.kv, b), length))  # type: ignore[misc]
        for budget in ("bytes", "least", "most")
    ]
    tokens = [
        int(least(lambda r, b=budget: r.pool.printed_tokens(getattr(r.kv, b), length)))  # type: ignore[misc]
        for budget in ("bytes", "least", "most")
    ]
    return Capacity(
        fits=all(r.loaded and _holds(r, length) for r in ranks),
        engine=summary.engine,
        engine_version=summary.version,
        max_model_len=length,
        gpu_memory_utilization=summary.share.value,
        capacity_bytes_per_gpu=ruling.memory.bytes,
        weights_bytes_per_gpu=ruling.term("weights"),
        activation_bytes_per_gpu=ruling.term("activation"),
        runtime_bytes_per_gpu=ruling.term("runtime"),
        graph_bytes_per_gpu=ruling.term("cuda_graphs"),
        kv_cache_bytes_per_gpu=ruling.kv.bytes,
        kv_bytes_per_token_per_gpu=max(r.pool.cache.bytes_per_token for r in ranks),
        state_bytes_per_sequence_per_gpu=max(r.pool.cache.state_bytes for r in ranks),
        block_tokens=ruling.pool.block_tokens,
        blocks=ruling.pool.blocks(ruling.kv.bytes),
        kv_tokens=tokens[0] if cached else 0,
        kv_tokens_low=tokens[1] if cached else 0,
        kv_tokens_high=tokens[2] if cached else 0,
        max_concurrency=concurrency[0],
        max_concurrency_low=concurrency[1],
        max_concurrency_high=concurrency[2],
        max_context_tokens=largest_context(lambda c: all(_holds(r, c) for r in ranks)),
        kv_bytes_per_sequence=bytes_per_sequence(question, length, [r.pool.reserved_bytes(length) for r in ranks]),
        terms=(ruling.memory, *ruling.taken, ruling.kv),
        share=summary.share,
        ruling=ruling,
        max_num_seqs=summary.max_num_seqs,
        max_num_batched_tokens=summary.max_num_batched_tokens,
        warnings=summary.warnings,
        printed=summary.printed,
        ranks=tuple(ranks),
        data_ranks=groups,
        most_slots=summary.most_slots,
    )


def _holds(rank: Rank, context: int) -> bool:
    return not rank.pool.cache.layers or bool(rank.pool.concurrency(rank.kv.bytes, context) >= 1)


def concurrency(capacity: Capacity, context: Number, prefix: int = 0) -> Number:
    """Requests of ``context`` tokens that find room on all ranks, ``prefix`` tokens of each shared; not rounded down, not capped."""
    return group_concurrency(capacity, context, prefix) * capacity.data_ranks


def group_concurrency(capacity: Capacity, context: Number, prefix: int = 0) -> Number:
    """Requests that find room on the ranks of one group, every one of which holds a part of each."""
    fitting: Number = math.inf
    for rank in capacity.ranks:
        if rank.pool.cache.layers:
            found = rank.pool.concurrency(rank.kv.bytes, context, prefix)
            fitting = found if fitting is math.inf else minimum(fitting, found)
    return fitting


def mixed_concurrency(capacity: Capacity, lengths: Sequence[tuple[float, int]], prefix: int = 0, *, least: bool = False) -> float:
    """Requests that find room when a share of them has each length: (share, tokens). ``least``: in the least cache memory that the
    evidence allows. A request takes the inverse of how many like it would fit; without a cache memory does not limit them."""
    rooms = []
    for rank in capacity.ranks:
        if rank.pool.cache.layers:
            kv_bytes = rank.kv.least if least else rank.kv.bytes
            each = [(share, float(rank.pool.concurrency(kv_bytes, tokens, prefix))) for share, tokens in lengths]
            rooms.append(0.0 if any(n <= 0 for _, n in each) else 1 / sum(share / n for share, n in each))
    return min(rooms, default=math.inf) * capacity.data_ranks


def sequences(capacity: Capacity, context: int, prefix: int = 0) -> int:
    """How many sequences of ``context`` tokens fit at once: whole ones, and at most ``max_num_seqs`` on each group of ranks."""
    limit = capacity.max_num_seqs or 1 << 20
    return int(min(group_concurrency(capacity, context, prefix), limit)) * capacity.data_ranks


def bytes_per_sequence(question: MemoryQuestion, context: int, reserved_per_rank: list[float]) -> dict[str, float]:
    """Ideal, reserved and read-per-step bytes of a sequence of ``context`` tokens, summed over the ranks of a replica.

    What a step reads comes from the operator list: shared caches are read by every consumer, sparse attention reads less than is
    stored, recurrent state is read and written back.
    """
    tensor = question.sharding.tensor
    ideal = question.cache_bytes(context)
    if is_encoder_only(question.model):
        return {"ideal": ideal, "reserved": sum(reserved_per_rank) * tensor, "read_per_step": 0.0}
    operators = step_operators(question.model, question.sharding, question.numbers, decode(1, context), evenly=True)
    read = sum(float(o.kv_read_bytes + o.state_bytes) * o.count * o.ranks for o in operators)
    return {"ideal": ideal, "reserved": sum(reserved_per_rank) * tensor, "read_per_step": read}
