"""vLLM V1: what it subtracts from the memory it may use, how it cuts the rest into blocks, and what it prints.

Sources: vllm/v1/worker/gpu_worker.py, vllm/v1/core/kv_cache_utils.py, vllm/v1/kv_cache_interface.py,
vllm/model_executor/models/config.py (page alignment of hybrid models); start-up logs of versions 0.6 to 0.27.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from calc.errors import UsageError
from calc.memory import activations
from calc.memory.budget import Capacity, MemoryQuestion, Term, bytes_per_sequence, device_memory
from calc.memory.engines import vllm_blocks
from calc.memory.engines.vllm_blocks import Pool
from calc.memory.kv_cache import largest_context
from calc.memory.weights import largest_stage_bytes
from calc.units import GIB

NAME = "vllm"
NEWEST_VERSION = "0.27"
#: vLLM pads the vocabulary to a multiple of 64 before splitting it.
VOCABULARY_MULTIPLE = 64

# Memory the process takes outside torch's allocator, GiB by tensor parallel size: (low, expected, high) of start-up logs.
_NON_TORCH_GIB = {1: (0.05, 0.13, 0.3), 2: (0.2, 0.54, 1.2), 4: (0.3, 1.0, 1.8), 8: (0.5, 1.4, 2.5)}
# CUDA graphs, GiB: median and usual range of the logs. Estimated and subtracted from the budget since 0.21.
_GRAPHS_GIB = (0.1, 0.4, 1.5)
# Sampler bytes per vocabulary entry and sequence: with the full-vocabulary sort (to about 0.15), without (from about 0.16 on).
_SAMPLER_WITH_SORT, _SAMPLER_WITHOUT_SORT = 38.9, 10.4
# Weights as loaded exceed parameters x bytes by allocator rounding and rotary tables, GiB.
_WEIGHTS_EXTRA_GIB = (0.0, 0.05, 0.25)


@dataclass(frozen=True)
class Settings:
    """Options as the engine resolves them when the user gives none."""

    version: tuple[int, int]
    utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    prefix_caching: bool


def parse_version(text: str | None) -> tuple[tuple[int, int], tuple[tuple[str, str], ...]]:
    """(major, minor) of a version, the newest known one when absent; newer ones are answered with a warning."""
    newest = (0, int(NEWEST_VERSION.split(".")[1]))
    if text is None or text.lower() in ("newest", "latest"):
        return newest, ()
    match = re.match(r"v?(\d+)\.(\d+)", text.strip())
    if not match:
        raise UsageError(f"not a vLLM version: {text!r}", f"write it like {NEWEST_VERSION}")
    version = (int(match[1]), int(match[2]))
    if version > newest:
        return version, (
            ("engine_version_unknown", f"vLLM {text} is newer than {NEWEST_VERSION}: its law of that version is used"),
        )
    if version < (0, 8):
        return version, (
            (
                "engine_version_unknown",
                f"vLLM {text} is older than the V1 engine: the V1 law of that age is used, which may differ",
            ),
        )
    return version, ()


def settings(question: MemoryQuestion) -> tuple[Settings, tuple[tuple[str, str], ...]]:
    """Defaults by device and version (server mode), replaced by what the user gave."""
    options, hardware = question.options, question.hardware
    version, warnings = parse_version(options.engine_version)
    large = hardware.memory_capacity_gb >= 70 and "a100" not in hardware.id
    tokens = (8192 if large else 2048) if version < (0, 27) or hardware.memory_capacity_gb < 160 else 16384
    return Settings(
        version=version,
        utilization=options.gpu_memory_utilization or (0.92 if version >= (0, 24) else 0.90),
        max_num_seqs=options.max_num_seqs or (1024 if large else 256),
        max_num_batched_tokens=options.max_num_batched_tokens or tokens,
        block_size=options.block_size or vllm_blocks.default_block_size(question),
        prefix_caching=options.prefix_caching if options.prefix_caching is not None else True,
    ), warnings


def _gib_term(name: str, spread: tuple[float, float, float], evidence: str) -> Term:
    low, expected, high = (int(x * GIB) for x in spread)
    return Term(name, expected, evidence, low, high)


def _weights(question: MemoryQuestion) -> Term:
    options = question.options
    if options.weights_bytes is not None:
        return Term("weights", options.weights_bytes, "given")
    exact, _ = largest_stage_bytes(
        question.model,
        question.sharding,
        question.numbers,
        vocabulary_multiple=VOCABULARY_MULTIPLE,
        drafting=options.speculative_tokens > 0,
    )
    low, expected, high = (exact + int(x * GIB) for x in _WEIGHTS_EXTRA_GIB)
    return Term("weights", expected, "shapes and formats + allocator rounding", low, high)


def _activation(question: MemoryQuestion, chosen: Settings) -> Term:
    """The larger of the layers' peak and the sampler's, never their sum."""
    if question.options.activation_bytes is not None:
        return Term("activation", question.options.activation_bytes, "given")
    layers = activations.layer_peak_bytes(question.model, question.sharding, question.numbers, chosen.max_num_batched_tokens)
    per_entry = _SAMPLER_WITH_SORT if chosen.version < (0, 16) else _SAMPLER_WITHOUT_SORT
    sampler = activations.sampler_peak_bytes(question.model, chosen.max_num_seqs, per_entry)
    rules = "sampler" if sampler >= layers else "layers"
    peak = max(layers, sampler)
    return Term("activation", peak, f"model: {rules} ({chosen.max_num_seqs} sequences)", int(0.8 * peak), int(1.25 * peak))


def capacity(question: MemoryQuestion) -> Capacity:
    """Budget and blocks of the rank that holds least."""
    chosen, warnings = settings(question)
    memory, memory_warnings = device_memory(question, framework=True)
    tensor = question.sharding.tensor
    weights, activation = _weights(question), _activation(question, chosen)
    nearest = max((t for t in _NON_TORCH_GIB if t <= tensor), default=1)
    runtime = _gib_term("runtime", _NON_TORCH_GIB[nearest], "logs")
    graphs = _gib_term("cuda_graphs", _GRAPHS_GIB if chosen.version >= (0, 21) else (0.0, 0.0, 0.0), "logs")
    kv = _kv_term(question, chosen, memory, [weights, activation, runtime, graphs])
    pools = [vllm_blocks.pool(cache, question, chosen) for cache in question.caches()]
    pool = min(pools, key=lambda p: p.blocks(kv.bytes))
    length = question.max_model_len
    return Capacity(
        fits=min(p.blocks(kv.bytes) / p.blocks_per_request(length) if p.layers else 1e9 for p in pools) >= 1,
        engine=NAME,
        engine_version=".".join(map(str, chosen.version)),
        max_model_len=length,
        gpu_memory_utilization=chosen.utilization,
        capacity_bytes_per_gpu=memory.bytes,
        weights_bytes_per_gpu=weights.bytes,
        activation_bytes_per_gpu=activation.bytes,
        runtime_bytes_per_gpu=runtime.bytes,
        graph_bytes_per_gpu=graphs.bytes,
        kv_cache_bytes_per_gpu=kv.bytes,
        kv_bytes_per_token_per_gpu=max(p.cache.bytes_per_token for p in pools),
        state_bytes_per_sequence_per_gpu=max(p.cache.state_bytes for p in pools),
        block_tokens=pool.block_tokens,
        blocks=pool.blocks(kv.bytes),
        kv_tokens=pool.printed_tokens(kv.bytes, length, chosen.version),
        max_concurrency=pool.concurrency(kv.bytes, length),
        max_concurrency_low=pool.concurrency(kv.least, length),
        max_concurrency_high=pool.concurrency(kv.most, length),
        max_context_tokens=largest_context(lambda c: all(p.holds(kv.bytes, c) for p in pools)),
        kv_bytes_per_sequence=bytes_per_sequence(question, length, [p.reserved_bytes(length) for p in pools]),
        terms=(memory, weights, activation, runtime, graphs, kv),
        max_num_seqs=chosen.max_num_seqs,
        max_num_batched_tokens=chosen.max_num_batched_tokens,
        warnings=warnings + memory_warnings,
    )


def _kv_term(question: MemoryQuestion, chosen: Settings, memory: Term, terms: list[Term]) -> Term:
    if question.options.kv_cache_bytes is not None:  # kv_cache_memory_bytes replaces the whole formula
        return Term("kv_cache", question.options.kv_cache_bytes, "given")
    rest = int(memory.bytes * chosen.utilization) - sum(t.bytes for t in terms)
    least = int(memory.least * chosen.utilization) - sum(t.most for t in terms)
    most = int(memory.most * chosen.utilization) - sum(t.least for t in terms)
    return Term("kv_cache", max(0, rest), "what is left", max(0, least), max(0, most))


def sequences(question: MemoryQuestion, capacity: Capacity, context: int) -> int:
    """How many sequences of ``context`` tokens fit at once: whole blocks of every group, and at most max_num_seqs."""
    chosen, _ = settings(question)
    pools: list[Pool] = [vllm_blocks.pool(cache, question, chosen) for cache in question.caches()]
    fitting = min(p.blocks(capacity.kv_cache_bytes_per_gpu) // max(1, p.blocks_per_request(context)) for p in pools)
    return min(fitting, chosen.max_num_seqs)
