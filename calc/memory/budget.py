"""The memory budget of one GPU: named terms with their evidence, each replaceable by the user."""

from __future__ import annotations

from dataclasses import dataclass, field

from calc.memory.kv_cache import RankCache, rank_caches
from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import decode
from calc.profiles.hardware import REPORTED_SHARE, HardwareProfile
from calc.profiles.model import ModelProfile


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the budget in bytes per GPU. ``low`` and ``high`` where the evidence spreads."""

    name: str
    bytes: int
    evidence: str
    low: int | None = None
    high: int | None = None

    @property
    def least(self) -> int:
        """Smallest value the evidence allows."""
        return self.bytes if self.low is None else self.low

    @property
    def most(self) -> int:
        """Largest value the evidence allows."""
        return self.bytes if self.high is None else self.high


@dataclass(frozen=True)
class MemoryOptions:
    """What the user may say about memory; None leaves it to the engine's law. Bytes are per GPU."""

    gpu_memory_utilization: float | None = None
    gpu_memory_bytes: int | None = None
    kv_cache_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    prefix_caching: bool | None = None
    speculative_tokens: int = 0
    engine_version: str | None = None


@dataclass(frozen=True)
class MemoryQuestion:
    """Everything an engine's law needs: what is loaded, how it is cut, on what device, with which options."""

    model: ModelProfile
    hardware: HardwareProfile
    sharding: Sharding
    numbers: NumberPlan
    options: MemoryOptions

    @property
    def max_model_len(self) -> int:
        """Longest sequence the engine must hold: as asked, else the model's own maximum, else 4,096."""
        return self.options.max_model_len or self.model.max_position_embeddings or 4096

    def caches(self) -> list[RankCache]:
        """Caches of a rank of every stage."""
        return rank_caches(self.model, self.sharding, self.numbers)


@dataclass(frozen=True)
class Capacity:
    """What one deployment holds. Figures are per GPU where the name says so; see the interface's JSON keys of the same names.

    ``kv_tokens`` is what the engine prints; ``kv_bytes_per_sequence`` holds ideal, reserved and read-per-step bytes of a sequence of
    ``max_model_len`` tokens, summed over the ranks of a replica.
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
    max_concurrency: float
    max_concurrency_low: float
    max_concurrency_high: float
    max_context_tokens: int
    kv_bytes_per_sequence: dict[str, float]
    terms: tuple[Term, ...]
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    sequences_that_fit: dict[int, int] = field(default_factory=dict)


def device_memory(question: MemoryQuestion, *, framework: bool) -> tuple[Term, tuple[tuple[str, str], ...]]:
    """Total memory of one GPU as the driver reports it (``framework``: as CUDA reports it to the process, which engines multiply by
    their utilisation). Where no driver figure is known the marketing GiB give a range."""
    hardware, options = question.hardware, question.options
    if options.gpu_memory_bytes is not None:
        return Term("gpu_memory", options.gpu_memory_bytes, "given"), ()
    if framework and hardware.memory_framework_total_mib:
        return Term("gpu_memory", int(hardware.memory_framework_total_mib * 2**20), "reported to the framework"), ()
    reported = hardware.memory_reported_bytes or (
        int(hardware.memory_reported_mib * 2**20) if hardware.memory_reported_mib else None
    )
    if reported:
        return Term("gpu_memory", reported, "reported by the driver"), ()
    low, expected, high = (int(hardware.memory_capacity_gb * 2**30 * share) for share in REPORTED_SHARE)
    warning = (
        "memory_not_reported",
        f"no driver figure is known for {hardware.id}: its {hardware.memory_capacity_gb:g} GB are taken as a range; "
        "give --gpu-memory to settle it",
    )
    return Term("gpu_memory", expected, "default", low, high), (warning,)


def bytes_per_sequence(question: MemoryQuestion, context: int, reserved_per_rank: list[float] | None = None) -> dict[str, float]:
    """Ideal, reserved and read-per-step bytes of a sequence of ``context`` tokens, summed over the ranks of a replica.

    What a step reads comes from the operator list: shared caches are read by every consumer, sparse attention reads less than is
    stored, recurrent state is read and written back.
    """
    tensor = question.sharding.tensor
    ideal = sum(float(c.ideal_bytes(context)) for c in question.caches()) * tensor
    reserved = ideal if reserved_per_rank is None else sum(reserved_per_rank) * tensor
    operators = step_operators(question.model, question.sharding, question.numbers, decode(1, context))
    read = sum(float(o.kv_read_bytes + o.state_bytes) * o.count * o.ranks for o in operators)
    return {"ideal": ideal, "reserved": reserved, "read_per_step": read}
