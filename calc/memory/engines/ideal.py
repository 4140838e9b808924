"""The ideal engine: driver-reported memory x utilisation - weights, blocks of one token, no activations, runtime or graphs."""

from __future__ import annotations

from calc.memory.budget import Capacity, MemoryQuestion, Term, bytes_per_sequence, device_memory
from calc.memory.kv_cache import largest_context
from calc.memory.weights import largest_stage_bytes

NAME = "ideal"
NEWEST_VERSION = "1"
DEFAULT_UTILIZATION = 1.0


def capacity(question: MemoryQuestion) -> Capacity:
    """What would fit if memory held nothing but weights and cache."""
    options, sharding = question.options, question.sharding
    memory, warnings = device_memory(question, framework=False)
    utilization = options.gpu_memory_utilization or DEFAULT_UTILIZATION
    weights_bytes, _ = largest_stage_bytes(question.model, sharding, question.numbers, drafting=options.speculative_tokens > 0)
    weights = Term("weights", weights_bytes, "exact shapes")
    if options.weights_bytes is not None:
        weights = Term("weights", options.weights_bytes, "given")
    activation = Term("activation", options.activation_bytes or 0, "given" if options.activation_bytes else "ideal")
    rest = int(memory.bytes * utilization) - weights.bytes - activation.bytes
    spread = [int(m * utilization) - weights.bytes - activation.bytes for m in (memory.least, memory.most)]
    kv = Term("kv_cache", max(0, rest), "what is left", max(0, spread[0]), max(0, spread[1]))
    if options.kv_cache_bytes is not None:
        kv = Term("kv_cache", options.kv_cache_bytes, "given")
    caches = question.caches()
    length = question.max_model_len
    per_sequence = max((float(c.ideal_bytes(length)) for c in caches), default=0.0)
    concurrency = [bytes_ / per_sequence if per_sequence else 0.0 for bytes_ in (kv.bytes, kv.least, kv.most)]
    tokens = int(kv.bytes * length // per_sequence) if per_sequence else 0
    return Capacity(
        fits=weights.bytes <= memory.bytes * utilization and kv.bytes >= per_sequence,
        engine=NAME,
        engine_version=NEWEST_VERSION,
        max_model_len=length,
        gpu_memory_utilization=utilization,
        capacity_bytes_per_gpu=memory.bytes,
        weights_bytes_per_gpu=weights.bytes,
        activation_bytes_per_gpu=activation.bytes,
        runtime_bytes_per_gpu=0,
        graph_bytes_per_gpu=0,
        kv_cache_bytes_per_gpu=kv.bytes,
        kv_bytes_per_token_per_gpu=max((c.bytes_per_token for c in caches), default=0),
        state_bytes_per_sequence_per_gpu=max((c.state_bytes for c in caches), default=0),
        block_tokens=1,
        blocks=tokens,
        kv_tokens=tokens,
        max_concurrency=concurrency[0],
        max_concurrency_low=concurrency[1],
        max_concurrency_high=concurrency[2],
        max_context_tokens=largest_context(lambda c: all(float(k.ideal_bytes(c)) <= kv.bytes for k in caches)),
        kv_bytes_per_sequence=bytes_per_sequence(question, length),
        terms=(memory, weights, activation, kv),
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        warnings=warnings,
    )


def sequences(question: MemoryQuestion, capacity: Capacity, context: int) -> int:
    """How many sequences of ``context`` tokens fit at once."""
    per_sequence = max((float(c.ideal_bytes(context)) for c in question.caches()), default=0.0)
    if per_sequence == 0:
        return question.options.max_num_seqs or 1 << 20
    return int(capacity.kv_cache_bytes_per_gpu // per_sequence)
