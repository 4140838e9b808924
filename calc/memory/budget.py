"""The memory budget of one GPU: named terms with their evidence, each replaceable by the user."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.memory.capacity import Capacity as Capacity
from calc.memory.kv_cache import RankCache, rank_caches
from calc.memory.options import MemoryOptions as MemoryOptions
from calc.memory.term import Term as Term
from calc.memory.term import given
from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.profiles.hardware import REPORTED_SHARE, HardwareProfile
from calc.profiles.model import ModelProfile
from calc.units import GIB, MIB

Warnings = tuple[tuple[str, str], ...]

#: CUDA reports less than the driver: the driver's own reserve, GiB (least, usual) and the share it never exceeds (61 profiles).
_DRIVER_RESERVE_GIB, _DRIVER_RESERVE_SHARE = 0.45, 0.025
#: Evidence of a total memory, and the keys of a profile that it may come from; the marketing GiB else.
_FRAMEWORK, _LESS_RESERVE, _DRIVER = "reported to the framework", "driver total less its reserve", "reported by the driver"
_REPORTED = ("memory_reported_bytes", "memory_reported_mib")
MEMORY_KEYS = {_FRAMEWORK: ("memory_framework_total_mib",), _LESS_RESERVE: _REPORTED, _DRIVER: _REPORTED}
#: Share of a unified memory that the operating system leaves to the GPU by default: low, expected, high (Apple's default working set
#: is two thirds of small and three quarters of large memories). CUDA reports nearly all of it as total memory (Jetson Orin 0.934).
UNIFIED_SHARE = (0.65, 0.75, 0.90)
_CUDA_UNIFIED_SHARE = (0.92, 0.94, 0.97)


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

    @property
    def drafting(self) -> bool:
        """Whether layers that draft tokens are loaded."""
        return self.options.speculative_tokens > 0 or bool(self.options.draft_layers)

    def caches(self) -> list[RankCache]:
        """Caches of a rank of every stage."""
        return rank_caches(
            self.model,
            self.sharding,
            self.numbers,
            layers=self.options.pipeline_layers,
            drafting=self.drafting,
            draft_layers=self.options.draft_layers,
        )

    def rank_cache_bytes(self, context: int) -> float:
        """Ideal bytes of one sequence on the rank that holds most of it."""
        return max((float(c.ideal_bytes(context)) for c in self.caches()), default=0.0)

    def cache_bytes(self, context: int) -> float:
        """Ideal bytes of one sequence over the ranks of a replica."""
        return sum(float(c.ideal_bytes(context)) for c in self.caches()) * self.sharding.tensor

    def device(self, stage: int) -> HardwareProfile:
        """The device of a stage."""
        return self.options.devices[stage] if self.options.devices else self.hardware

    def with_numbers(self, numbers: NumberPlan) -> MemoryQuestion:
        """The same question in other formats."""
        return self if numbers is self.numbers else replace(self, numbers=numbers)


def given_or(value: int | None, name: str, otherwise: Term) -> Term:
    """The user's figure in place of the law's."""
    return otherwise if value is None else given(name, value)


def device_memory(question: MemoryQuestion, *, framework: bool, stage: int = 0) -> tuple[Term, Warnings]:
    """Total memory of one GPU as the driver reports it (``framework``: as CUDA reports it to the process, which engines multiply by
    their utilisation). Where no driver figure is known the marketing GiB give a range."""
    hardware, options = question.device(stage), question.options
    if options.gpu_memory_bytes is not None:
        return given("gpu_memory", options.gpu_memory_bytes), ()
    if framework and hardware.memory_framework_total_mib:
        return Term("gpu_memory", int(hardware.memory_framework_total_mib * MIB), _FRAMEWORK), ()
    reported = hardware.driver_bytes
    if reported and framework and hardware.compute_capability:
        reserve = min(_DRIVER_RESERVE_GIB * GIB, _DRIVER_RESERVE_SHARE * reported)
        low = int(reported * (1 - _DRIVER_RESERVE_SHARE))
        return Term("gpu_memory", int(reported - reserve), _LESS_RESERVE, low, reported), ()
    if reported:
        return Term("gpu_memory", reported, _DRIVER), ()
    return _marketing_memory(hardware, framework)


def is_unified(hardware: HardwareProfile) -> bool:
    """Whether the device shares its memory with the host's processor and system."""
    return hardware.device_class in ("apu", "edge_soc", "cpu") or "unified" in (hardware.memory_type or "").lower()


def _marketing_memory(hardware: HardwareProfile, framework: bool) -> tuple[Term, Warnings]:
    """A range from the figure on the box. Unified memory is shared with the operating system."""
    shares, what = REPORTED_SHARE, "default"
    if is_unified(hardware):
        cuda = framework and hardware.compute_capability
        shares, what = (_CUDA_UNIFIED_SHARE if cuda else UNIFIED_SHARE), "unified memory, shared with the system"
    low, expected, high = (int(hardware.memory_capacity_gb * GIB * share) for share in shares)
    options = hardware.memory_options_gb
    sold = f" (also sold with {', '.join(f'{o:g}' for o in options if o != hardware.memory_capacity_gb)} GB)" if options else ""
    warning = (
        "memory_not_reported",
        f"no driver figure is known for {hardware.id}: its {hardware.memory_capacity_gb:g} GB{sold} are taken as a range; "
        "give --gpu-memory to settle it",
    )
    return Term("gpu_memory", expected, what, low, high), (warning,)
