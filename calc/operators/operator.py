"""The operator record: what one call does on one rank, by operand. Everything downstream reads this list."""

from __future__ import annotations

from dataclasses import dataclass, field

from calc.arrays import Number
from calc.operators.token_copies import TokenCopies


def sent_share(kind: str, ranks: int) -> float:
    """Share of a collective's message that each rank sends (ring or direct algorithms; Thakur et al. 2005): the bus factor of nccl-tests
    (doc/PERFORMANCE.md)."""
    return {"all-reduce": 2 * (ranks - 1) / ranks, "send": 1.0}.get(kind, (ranks - 1) / ranks)


@dataclass(frozen=True, slots=True)
class Collective:
    """A message between ranks: ``message_bytes`` is the tensor that every rank holds or receives in full; in an all-to-all, all that a
    rank has for every rank, itself included. ``copies`` say how an all-to-all of tokens spreads over groups of ranks."""

    kind: str  # all-reduce, all-gather, reduce-scatter, all-to-all, send
    ranks: int
    message_bytes: Number
    copies: TokenCopies | None = None

    @property
    def bytes_per_rank(self) -> Number:
        """Bytes that each rank sends."""
        return self.message_bytes * sent_share(self.kind, self.ranks)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a step. Figures are those of **one call on one rank**; a step holds ``count`` calls on ``ranks`` ranks each.

    ``op_class`` groups operators that share kernels: gemm, experts, attention, recurrent, norm, elementwise, embedding, collective.
    ``layers`` names the layer kind. ``shape`` maps the field's letters to sizes. ``flops`` are tensor FLOP, ``vector_flops`` run on
    the vector units. ``compute_dtype`` selects the peak.
    """

    name: str
    op_class: str
    layers: str
    count: int
    ranks: int
    shape: dict[str, Number]
    compute_dtype: str
    flops: Number = 0
    vector_flops: Number = 0
    exponentials: Number = 0
    weight_bytes: Number = 0
    activation_bytes: Number = 0
    kv_read_bytes: Number = 0
    kv_write_bytes: Number = 0
    state_bytes: Number = 0
    new_kv_read_bytes: Number = 0  # part of kv_read_bytes that was made in this very step
    stored_kv_bytes: Number = 0  # new KV that must reach memory once, charged to the kernel that reads the cache
    weight_format: str = ""
    collective: Collective | None = None
    detail: dict[str, Number | str] = field(default_factory=dict)

    @property
    def is_product(self) -> bool:
        """Whether it multiplies rows with matrices of weights."""
        return self.op_class in ("gemm", "experts")

    @property
    def network_bytes(self) -> Number:
        """Bytes that one rank sends over links."""
        return self.collective.bytes_per_rank if self.collective else 0

    @property
    def compulsory_bytes(self) -> Number:
        """Bytes that must cross device memory whatever the kernels do: weights with scales, state, keys and values of earlier steps
        read, new ones written once (a kernel that only moves them, or a second read of them, could be fused away)."""
        return self.weight_bytes + self.kv_read_bytes - self.new_kv_read_bytes + self.stored_kv_bytes + self.state_bytes

    @property
    def bytes(self) -> Number:
        """All bytes through device memory under the fusion policy; network apart."""
        return self.weight_bytes + self.activation_bytes + self.kv_read_bytes + self.kv_write_bytes + self.state_bytes
