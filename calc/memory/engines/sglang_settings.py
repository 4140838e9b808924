"""What SGLang makes of options that the user left open: its static fraction, chunk and graph sizes by device and era.

Sources: sglang/srt/server_args.py (defaults by GPU memory), sglang/srt/configs/model_config.py; start-up logs of 0.4 to 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calc.memory.budget import device_memory
from calc.memory.engines.version import Version, Warnings, parse_version
from calc.units import GIB

if TYPE_CHECKING:
    from calc.memory.budget import MemoryQuestion

NAME = "sglang"
NEWEST_VERSION = "0.5.21"
OLDEST_VERSION = "0.3"

FRACTION_BY_MEMORY = (0, 4, 8)  # mid 2025: the default fraction comes from what the device class needs
WINDOW_POOLS = (0, 4, 8)  # windows in a pool of their own; before, every layer counted as full
SPARE_SLOT = (0, 5, 4)  # the state pool holds one row more than its slots
_OLD_FRACTIONS = {1: 0.88, 2: 0.87, 4: 0.85, 8: 0.81, 16: 0.79}

#: (GPU memory in GiB below which the row holds, chunk of prefill, largest batch of CUDA graphs at tp < 4, at tp >= 4).
_CLASSES = (
    (20, 2048, 8, 8),
    (35, 2048, 24, 80),
    (60, 4096, 32, 160),
    (90, 8192, 256, 512),
    (160, 8192, 256, 512),
    (1 << 20, 16384, 512, 512),
)
_VISION_SHARE = 0.95
_LARGE_GPU_MIB, _LARGE_RESERVE_MIB = 60 * 1024, 10 * 1024
DEFAULT_WINDOW_RATIO, DEFAULT_STATE_RATIO = 0.8, 0.9
#: Slots of recurrent state per running request: without a radix cache, with one.
SLOTS_PER_REQUEST = {False: 1, True: 3}


@dataclass(frozen=True)
class Settings:
    """Options as the engine resolves them."""

    version: Version
    fraction: float
    fraction_is_default: bool
    chunk: int
    graph_batch: int
    page: int
    window_ratio: float
    state_ratio: float
    max_running: int | None
    radix_cache: bool

    @property
    def window_pools(self) -> bool:
        """Whether windows have a pool of their own."""
        return self.version >= WINDOW_POOLS


def settings(question: MemoryQuestion) -> tuple[Settings, Warnings]:
    """Defaults by device, era and parallel sizes, replaced by what the user gave."""
    options = question.options
    version, warnings = parse_version(options.engine_version, "SGLang", NEWEST_VERSION, OLDEST_VERSION)
    memory, _ = device_memory(question, framework=False)
    gib = memory.bytes / GIB
    row = next(r for r in _CLASSES if gib < r[0])
    chunk = options.max_num_batched_tokens or row[1]
    batch = options.max_num_seqs or (row[2] if question.sharding.tensor < 4 else row[3])
    default = _default_fraction(question, version, gib * 1024, chunk, batch)
    return Settings(
        version=version,
        fraction=options.gpu_memory_utilization or default,
        fraction_is_default=options.gpu_memory_utilization is None,
        chunk=chunk,
        graph_batch=batch,
        page=options.block_size or _page(question),
        window_ratio=options.window_ratio or DEFAULT_WINDOW_RATIO,
        state_ratio=options.state_ratio or DEFAULT_STATE_RATIO,
        max_running=options.max_num_seqs,
        radix_cache=options.prefix_caching is not False,
    ), warnings


def reserved_mib(total_mib: float, chunk: int, graph_batch: int, tensor: int, pipeline: int, *, attention_ranks: int = 1) -> float:
    """Memory kept outside the static fraction: metadata, activations of a chunk, parallel buffers, CUDA graphs. ``attention_ranks`` is
    the size of data-parallel attention."""
    graphs = 2.0 * graph_batch
    if attention_ranks > 1:
        graphs += 3 * graph_batch * attention_ranks * (1.5 if graph_batch > 300 else 1)
    reserve = 512 + 1.5 * max(chunk, 2048) + 1024 * tensor * pipeline / 8 + graphs
    return max(reserve, _LARGE_RESERVE_MIB) if total_mib > _LARGE_GPU_MIB else reserve


def _default_fraction(question: MemoryQuestion, version: Version, total_mib: float, chunk: int, batch: int) -> float:
    sharding = question.sharding
    if version < FRACTION_BY_MEMORY:
        size = max((t for t in _OLD_FRACTIONS if t <= sharding.tensor), default=1)
        return _OLD_FRACTIONS[size]
    batch = 0 if question.options.enforce_eager else batch
    attention = sharding.data if sharding.expert_parallel else 1
    reserve = reserved_mib(total_mib, chunk, batch, sharding.tensor, sharding.pipeline, attention_ranks=attention)
    share = round((total_mib - reserve) / total_mib, 3)
    return max(0.05, round(share * _VISION_SHARE, 3) if question.model.towers else share)


def _page(question: MemoryQuestion) -> int:
    """Tokens per page: 1; of latent attention 64 with an index, 128 without one on Blackwell."""
    laws = [layer.law for cache in question.caches() for layer in cache.layers]
    latent = [law for law in laws if law.kind == "latent"]
    if not latent:
        return 1
    if any(law.extra_bytes_per_token for law in latent):
        return 64
    major = int(float(question.hardware.compute_capability or 0))
    return 128 if major == 10 else 1
