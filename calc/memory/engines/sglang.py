"""SGLang: what stays free after loading, less the share it must leave free, is the cache. No activations are profiled.

Sources: sglang/srt/model_executor/model_runner.py, sglang/srt/server_args.py; start-up logs of 0.4 to 0.5. The "GB" of its logs are GiB.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from calc.memory import capacity as figures
from calc.memory import host
from calc.memory.budget import MemoryQuestion, Term, device_memory, given_or, is_unified
from calc.memory.capacity import Capacity, Summary
from calc.memory.engines import sglang_settings
from calc.memory.engines.compressed_pool import CompressedPool, is_compressed, widened
from calc.memory.engines.sglang_pools import TokenPool, capped
from calc.memory.engines.sglang_settings import NAME as NAME
from calc.memory.engines.sglang_settings import NEWEST_VERSION as NEWEST_VERSION
from calc.memory.engines.sglang_settings import Settings
from calc.memory.engines.version import shown
from calc.memory.kv_cache import RankCache
from calc.memory.memo import remembered
from calc.memory.rank import Rank
from calc.memory.share import OfFreeBefore, remainder
from calc.memory.term import Figure, gib_term
from calc.memory.weights import named, stage_bytes
from calc.profiles.model import Mixer, ModelProfile
from calc.units import GIB

VOCABULARY_MULTIPLE = 64
#: Taken before weights are loaded, GiB: the context alone, and with the communicators of several ranks.
_BEFORE_ONE, _BEFORE_MANY = (0.3, 0.65, 1.1), (0.8, 1.4, 2.2)
#: Weights as the driver sees them exceed the tensors by allocator rounding, GiB.
_WEIGHTS_EXTRA = (0.0, 0.03, 0.3)


def capacity(question: MemoryQuestion) -> Capacity:
    """Static memory and pools of every stage's ranks."""
    chosen, warnings = sglang_settings.settings(question)
    ranks: list[Rank] = []
    printed: tuple[Figure, ...] = ()
    for stage, cache in enumerate(_caches(question)):
        memory, said = device_memory(question, framework=True, stage=stage)
        warnings += said
        rank = _rank(
            question, chosen, stage, memory, CompressedPool(cache) if is_compressed(cache) else _pool(question, chosen, cache)
        )
        ranks.append(rank)
        printed = printed or _printed(rank)
    summary = Summary(
        NAME,
        shown(chosen.version),
        OfFreeBefore(chosen.fraction),
        chosen.max_running,
        chosen.chunk,
        tuple(dict.fromkeys(warnings)),
        printed,
    )
    return widened(figures.assemble(question, summary, ranks))


def _caches(question: MemoryQuestion) -> list[RankCache]:
    """Caches of a rank of every stage. SGLang allocates one for every attention layer, those that read an earlier layer's too (Gemma 4
    E4B: all 42 layers, where vLLM and llama.cpp allocate 24)."""
    return replace(question, model=_storing(question.model)).caches()


@remembered
def _storing(model: ModelProfile) -> ModelProfile:
    """The model with keys and values of its own in every layer."""
    kinds = {name: structs.replace(kind, mixers=[_own(m) for m in kind.mixers]) for name, kind in model.layer_kinds.items()}
    return model if kinds == model.layer_kinds else structs.replace(model, layer_kinds=kinds)


def _own(mixer: Mixer) -> Mixer:
    return structs.replace(mixer, kv_source="own") if getattr(mixer, "kv_source", "own") == "shared" else mixer


def _pool(question: MemoryQuestion, chosen: Settings, cache: RankCache) -> TokenPool:
    options = question.options
    return TokenPool(cache, chosen, options.max_total_tokens, tokens_only=options.kv_cache_bytes is not None)


def _rank(question: MemoryQuestion, chosen: Settings, stage: int, memory: Term, pool: TokenPool | CompressedPool) -> Rank:
    """``rest = free after loading - free before loading x (1 - fraction)``: weights count inside the static share, activations and
    graphs live in what is left free."""
    options = question.options
    before = given_or(options.runtime_bytes, "runtime", _before(question, stage))
    parts = stage_bytes(
        question.model,
        question.sharding,
        question.numbers,
        stage,
        vocabulary_multiple=VOCABULARY_MULTIPLE,
        drafting=question.drafting,
        layers=options.pipeline_layers,
        gpu_experts=options.gpu_experts,
    )
    exact = sum(parts.values())
    low, extra, high = (int(x * GIB) for x in _WEIGHTS_EXTRA)
    tensors = (*named(parts, question.numbers), ("rounding of the allocator", extra))
    loaded = Term("weights", exact + extra, "shapes and formats", exact + low, exact + high, tensors)
    weights = given_or(options.weights_bytes, "weights", host.less(question, loaded, parts))
    share = OfFreeBefore(chosen.fraction)
    free = remainder(memory, [before], "free_before_loading")
    kept = Term("activation", free.bytes - share.static(memory, before).bytes, "left free: activations and graphs")
    taken = (weights, kept, before, Term("cuda_graphs", 0, "inside what is left free"))
    rest = given_or(options.kv_cache_bytes, "kv_cache", share.left(memory, taken))
    return Rank(stage, memory, taken, rest, pool)


def _before(question: MemoryQuestion, stage: int) -> Term:
    if is_unified(question.device(stage)):
        return gib_term("runtime", (1.0, 4.0, 12.0), "start-up logs: the system shares the memory")
    spread = _BEFORE_ONE if question.sharding.ranks == 1 else _BEFORE_MANY
    return gib_term("runtime", spread, "start-up logs")


def _printed(rank: Rank) -> tuple[Figure, ...]:
    pool = rank.pool
    if not isinstance(pool, TokenPool):
        return ()
    keys = sum(
        la.count * sum(n * pool.cache.numbers.keys.vector_bytes(w) for n, w in la.law.key_vectors)
        for la in pool.cache.layers
        if la.law.limit is None or not pool.settings.window_pools
    )
    tokens = pool.tokens(rank.kv.bytes)
    found = [Figure("token_pool", capped(pool, rank.kv.bytes)), Figure("kv_keys", tokens * keys)]
    if pool.window_tokens(rank.kv.bytes):
        found += [Figure("full_tokens", tokens, "tokens"), Figure("window_tokens", pool.window_tokens(rank.kv.bytes), "tokens")]
    if pool.slot_bytes and not pool.tokens_only:
        slots = pool.slots(rank.kv.bytes)
        rows = slots + 1
        laws = [(la.law, la.count) for la in pool.cache.layers if la.law.kind == "state"]
        numbers = pool.cache.numbers
        conv = sum(n * law.convolution_elements for law, n in laws) * numbers.convolution_bytes
        found += [
            Figure("state_slots", slots, "slots"),
            Figure("state_convolution", rows * conv),
            Figure("state_matrix", rows * (pool.slot_bytes - conv)),
        ]
    return tuple(found)


def sequences(question: MemoryQuestion, capacity: Capacity, context: int) -> int:
    """How many sequences of ``context`` tokens fit at once."""
    return figures.sequences(capacity, context, question.options.cached_tokens)
