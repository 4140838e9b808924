"""What vLLM makes of options that the user left open, by version, device and engine generation.

Sources: vllm/engine/arg_utils.py (get_batch_defaults; the tier of 160 GiB since 0.28), vllm/config/cache.py (utilisation),
vllm/config/scheduler.py; start-up logs of versions 0.1 to 0.28.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from calc.errors import UsageError
from calc.memory.budget import device_memory
from calc.memory.engines.version import Version, Warnings, parse_version
from calc.memory.memo import remembered
from calc.operators.numbers import NumberPlan
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.units import GIB

if TYPE_CHECKING:
    from calc.memory.budget import MemoryQuestion

NAME = "vllm"
NEWEST_VERSION = "0.28"
OLDEST_VERSION = "0.1"

EARLY, V1 = (0, 7, 0), (0, 8, 0)  # before 0.7 much memory lies outside torch; V1 by default
GROUPS, NO_V0 = (0, 10, 0), (0, 11, 0)  # windows and states in groups of layers; the V0 engine removed
NO_SORT = (0, 16, 0)  # top-k and top-p without sorting the vocabulary
STATES_CACHED = (0, 20, 0)  # prefix caching of recurrent state by default
GRAPHS_COUNTED = (0, 21, 0)
CONCURRENCY_LINE = (0, 22, 0)  # the token line becomes concurrency x max_model_len
UTILIZATION_92 = (0, 24, 0)
IN_FLIGHT = (0, 26, 0)  # windows look ahead by the tokens in flight
LARGE_TIER = (0, 28, 0)  # GPUs of 160 GiB and more batch 16,384 tokens in the server too

DEFAULT_BLOCK, ASCEND_BLOCK = 16, 128
UNCHUNKED_LENGTH = 32768  # V0 prefills longer models in chunks
V0_CHUNK = 2048


@dataclass(frozen=True)
class Settings:
    """Options as the engine resolves them."""

    version: Version
    v0: bool
    utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    state_blocks: int  # blocks that a request needs in each group of recurrent layers; 0: one per block of tokens (mode all)
    lookahead: int  # tokens that a window holds beyond itself
    groups: bool  # windows and states have groups of their own
    token_line: Literal["A", "B", "C"]

    @property
    def counts_graphs(self) -> bool:
        """Whether CUDA graphs are estimated and subtracted from the budget."""
        return self.version >= GRAPHS_COUNTED and not self.v0

    @property
    def sorts_vocabulary(self) -> bool:
        """Whether the sampler sorts the whole vocabulary."""
        return self.version < NO_SORT


def settings(question: MemoryQuestion) -> tuple[Settings, Warnings]:
    """Defaults by device and version (server mode), replaced by what the user gave. Raises UsageError for a block the kernels refuse."""
    options, device = question.options, question.hardware
    version, warnings = parse_version(options.engine_version, "vLLM", NEWEST_VERSION, OLDEST_VERSION)
    generation = options.engine_generation or ("v0" if (options.engine_version or "").endswith("-v0") else None)
    v0 = _is_v0(version, generation, device)
    seqs, tokens = _batch_defaults(question, version, v0)
    batched = options.max_num_batched_tokens or tokens
    block = _block_size(question, version)
    line: Literal["A", "B", "C"] = "A" if v0 or version < GROUPS else "B" if version < CONCURRENCY_LINE else "C"
    in_flight = 2 if version >= IN_FLIGHT and options.async_scheduling is not False else 1
    default_share = 0.92 if version >= UTILIZATION_92 else 0.90
    return Settings(
        version=version,
        v0=v0,
        utilization=options.gpu_memory_utilization or default_share,
        max_num_seqs=options.max_num_seqs or seqs,
        max_num_batched_tokens=batched,
        block_size=block,
        state_blocks=_state_blocks(question, version),
        lookahead=in_flight * batched,
        groups=not v0 and version >= GROUPS and options.hybrid_kv_cache,
        token_line=line,
    ), warnings


def _is_v0(version: Version, asked: str | None, device: HardwareProfile) -> bool:
    if asked is not None:
        return asked == "v0"
    old_gpu = device.compute_capability is not None and float(device.compute_capability) < 8.0
    return version < V1 or (version < NO_V0 and old_gpu)


def _batch_defaults(question: MemoryQuestion, version: Version, v0: bool) -> tuple[int, int]:
    """(sequences, tokens) of a step when the user gives none, as the server starts."""
    device, length = question.hardware, question.max_model_len
    if v0:
        return 256, V0_CHUNK if length > UNCHUNKED_LENGTH else max(length, V0_CHUNK)
    memory_gib = device_memory(question, framework=True)[0].bytes / GIB
    if memory_gib < 70 or "a100" in device.id:
        return 256, 2048
    return 1024, 16384 if version >= LARGE_TIER and memory_gib >= 160 else 8192


def _state_blocks(question: MemoryQuestion, version: Version) -> int:
    """Blocks of a request in a group of recurrent layers: one, or two with prefix caching (align), and one per draft token."""
    options = question.options
    mode = options.state_mode
    if mode is None:
        caching = options.prefix_caching if options.prefix_caching is not None else version >= STATES_CACHED
        mode = "align" if caching and version >= NO_SORT else "none"
    return 0 if mode == "all" else (2 if mode == "align" else 1) + options.speculative_tokens


def smallest_block(question: MemoryQuestion, version: Version) -> int:
    """Tokens per block that the attention kernels work in: 64 for latent attention on Hopper and with an index, 128 for it on
    Blackwell until 2026 and on Ascend, else 16."""
    device = question.hardware
    if device.id.startswith("ascend"):
        return ASCEND_BLOCK
    laws = [layer.law for cache in question.caches() for layer in cache.layers]
    latent = [law for law in laws if law.kind == "latent"]
    if not latent or version < V1:
        return DEFAULT_BLOCK
    if any(law.extra_bytes_per_token for law in latent):
        return 64
    major = int(float(device.compute_capability or 0))
    if major == 10:
        return 128 if version < NO_SORT else 64
    return 64 if major == 9 else DEFAULT_BLOCK


def _block_size(question: MemoryQuestion, version: Version) -> int:
    asked, smallest = question.options.block_size, smallest_block(question, version)
    if asked is None:
        return smallest
    if asked % 8:
        raise UsageError(
            f"vLLM's attention kernels refuse blocks of {asked} tokens", "--block-size takes multiples of 16 (8 on old GPUs)"
        )
    if smallest > DEFAULT_BLOCK and asked % smallest:
        raise UsageError(
            f"the latent attention kernels of {question.hardware.id} refuse blocks of {asked} tokens",
            f"--block-size takes multiples of {smallest}",
        )
    return asked


@remembered
def engine_numbers(model: ModelProfile, numbers: NumberPlan) -> NumberPlan:
    """Formats as vLLM stores them: recurrent state in the model's own 16-bit type unless the config asks for fp32."""
    from dataclasses import replace

    if model.state_dtype is None and numbers.state_bytes != numbers.activation_bytes:
        return replace(numbers, state_bytes=numbers.activation_bytes)
    return numbers
