"""How a replica is cut over ranks: tensor, pipeline, data, expert and decode-context parallel sizes, and what they replicate."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import UsageError
from calc.units import format_count


@dataclass(frozen=True, slots=True)
class Sharding:
    """Parallel sizes of a deployment. ``data`` replicas work apart, unless they share the experts of a mixture (``expert_parallel``):
    then each of them attends to requests of its own, whole experts are dealt out to all tensor x data ranks, and together they are one
    replica (vLLM ``--enable-expert-parallel``, SGLang ``--enable-dp-attention``)."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert_parallel: bool = False
    decode_context: int = 1

    @property
    def data_ranks(self) -> int:
        """Groups of ranks of one replica that attend to requests of their own."""
        return self.data if self.expert_parallel else 1

    @property
    def replicas(self) -> int:
        """Replicas that work apart."""
        return self.data // self.data_ranks

    @property
    def expert_ranks(self) -> int:
        """Ranks that whole experts are dealt out to; 1: each tensor-parallel rank has its slice of every expert."""
        return self.tensor * self.data if self.expert_parallel else 1

    @property
    def is_wide(self) -> bool:
        """Whether tokens travel to experts: attention is data-parallel, experts lie on all ranks."""
        return self.data_ranks > 1

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage of a replica."""
        return self.tensor * self.data_ranks

    @property
    def ranks(self) -> int:
        """Ranks of one replica."""
        return self.stage_ranks * self.pipeline

    @property
    def reach(self) -> dict[str, int]:
        """Ranks that collectives span, by kind, where these are not those of one tensor-parallel group."""
        found = {"send": self.ranks} if self.pipeline > 1 else {}
        return found | ({"all-to-all": self.expert_ranks} if self.is_wide else {})

    @property
    def gpus(self) -> int:
        """Devices of the whole deployment."""
        return self.tensor * self.pipeline * self.data


def divisors(n: int, limit: int = 1024) -> list[int]:
    """Divisors of ``n`` up to ``limit``."""
    return [d for d in range(1, min(n, limit) + 1) if n % d == 0]


def split_evenly(total: int, ranks: int, what: str) -> int:
    """``total / ranks`` of things that cannot be replicated. Raises UsageError that says what would divide."""
    if total % ranks:
        fitting = ", ".join(map(str, divisors(total, 256)))
        raise UsageError(f"tensor parallel size {ranks} does not divide {total} {what}", f"sizes that do: {fitting}")
    return total // ranks


def deal_out(num_experts: int, ranks: int) -> int:
    """Whole experts on each of ``ranks`` ranks. Raises UsageError that says what would divide."""
    if num_experts % ranks:
        fitting = ", ".join(map(str, divisors(num_experts, 512)))
        raise UsageError(
            f"{format_count(num_experts, 'expert')} cannot be dealt out evenly to {ranks} ranks (tensor x data parallel size)",
            f"products that divide them: {fitting}",
        )
    return num_experts // ranks


def split_or_replicate(total: int, ranks: int, what: str) -> int:
    """Share of one rank of things that are replicated when there are fewer than ranks (key-value heads): at least 1."""
    if total % ranks == 0:
        return total // ranks
    if ranks % total == 0:
        return 1
    fitting = [r for r in range(1, 257) if total % r == 0 or r % total == 0]
    raise UsageError(
        f"tensor parallel size {ranks} neither divides {total} {what} nor is a multiple of them",
        "sizes that would: " + ", ".join(map(str, fitting[:16])),
    )


def split_columns(total: int, ranks: int) -> int:
    """Columns or rows of a matrix on the largest shard; engines pad what does not divide."""
    return -(-total // ranks)


def stage_layers(num_layers: int, stages: int) -> list[int]:
    """Layers of each pipeline stage: the remainder goes one by one to stages counted from the second-last backwards
    (vLLM; 61 layers on 4 stages: 15, 15, 16, 15)."""
    if stages > num_layers:
        raise UsageError(
            f"{stages} pipeline stages exceed the {num_layers} layers of the model",
            f"at most {num_layers}: a stage holds a layer or more",
        )
    base, rest = divmod(num_layers, stages)
    layers = [base] * stages
    order = [*range(stages - 2, -1, -1), stages - 1]
    for stage in order[:rest]:
        layers[stage] += 1
    return layers
