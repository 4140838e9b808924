"""vLLM: what it subtracts from the memory it may use, how it cuts the rest into blocks, and what it prints."""

from __future__ import annotations

from calc.memory import capacity as figures
from calc.memory.budget import MemoryQuestion, device_memory, given_or
from calc.memory.capacity import Capacity, Summary
from calc.memory.engines import vllm_settings, vllm_terms
from calc.memory.engines.compressed_pool import widened
from calc.memory.engines.version import Warnings, shown
from calc.memory.engines.vllm_blocks import BlockPool, block_pools
from calc.memory.engines.vllm_settings import NAME as NAME
from calc.memory.engines.vllm_settings import NEWEST_VERSION as NEWEST_VERSION
from calc.memory.engines.vllm_settings import Settings
from calc.memory.rank import Rank
from calc.memory.share import OfTotal
from calc.memory.term import Figure


def capacity(question: MemoryQuestion) -> Capacity:
    """Budget and blocks of every stage's ranks; the rank that holds least rules."""
    question = question.with_numbers(vllm_settings.engine_numbers(question.model, question.numbers))
    chosen, warnings = vllm_settings.settings(question)
    ranks, memory_warnings = _ranks(question, chosen)
    summary = Summary(
        NAME,
        shown(chosen.version),
        OfTotal(chosen.utilization),
        chosen.max_num_seqs,
        chosen.max_num_batched_tokens,
        warnings + memory_warnings,
        _printed(ranks),
    )
    return widened(figures.assemble(question, summary, ranks))


def _ranks(question: MemoryQuestion, chosen: Settings) -> tuple[list[Rank], Warnings]:
    options = question.options
    alignment = vllm_settings.smallest_block(question, chosen.version)
    pools = block_pools(question.caches(), chosen, question.max_model_len, options.speculative_tokens, alignment)
    ranks: list[Rank] = []
    warnings: Warnings = ()
    for stage, pool in enumerate(pools):
        memory, said = device_memory(question, framework=True, stage=stage)
        warnings += said
        taken = (
            vllm_terms.weights(question, chosen, stage),
            vllm_terms.activation(question, chosen, stage),
            vllm_terms.outside_torch(question, chosen, stage),
            vllm_terms.graphs(question, chosen),
        )
        # kv_cache_memory_bytes, when given, replaces the whole formula.
        kv = given_or(options.kv_cache_bytes, "kv_cache", OfTotal(chosen.utilization).left(memory, taken))
        ranks.append(Rank(stage, memory, taken, kv, pool))
    return ranks, tuple(dict.fromkeys(warnings))


def _printed(ranks: list[Rank]) -> tuple[Figure, ...]:
    """The lines on the pages of hybrid models."""
    pool = ranks[0].pool
    if not isinstance(pool, BlockPool) or not pool.largest_state_bytes:
        return ()
    return (Figure("page_padding", pool.padding_percent, "percent"),)


def sequences(question: MemoryQuestion, capacity: Capacity, context: int) -> int:
    """How many sequences of ``context`` tokens fit at once: whole blocks of every group, and at most max_num_seqs."""
    return figures.sequences(capacity, context, question.options.cached_tokens)
