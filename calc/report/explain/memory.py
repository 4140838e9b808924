"""Steps of the memory: budget of a GPU, cache per token, and how many requests fit."""

from __future__ import annotations

from calc.memory.budget import Capacity
from calc.memory.capacity import Rank
from calc.memory.weights import stage_bytes
from calc.report.explain import places
from calc.report.explain.step import Section, Step, Value, gives, total
from calc.serving.deployment import Deployment

#: How engines take the cache from the budget; the one that gives the number is shown.
_BUDGETS = (
    "gpu_memory * utilization - weights - activation - runtime - cuda_graphs",
    "(gpu_memory - weights - activation - runtime - cuda_graphs) * utilization",
    "(gpu_memory - runtime) * utilization - weights",
)


def memory_section(deployment: Deployment, held: Capacity) -> Section:
    """Everything about the rank that rules."""
    ruling = min(held.ranks, key=lambda r: (r.pool.blocks(r.kv.bytes), r.kv.bytes)) if held.ranks else None
    if ruling is None:
        return Section("Memory", ())
    steps = [
        _weights(deployment, held, ruling),
        *_cache(deployment, held),
        *_per_token(deployment, ruling),
        *_concurrency(deployment, held, ruling),
    ]
    return Section("Memory of a GPU", tuple(steps), places.sources(deployment))


def _weights(deployment: Deployment, held: Capacity, rank: Rank) -> Step:
    term = next(t for t in rank.taken if t.name == "weights")
    parts = stage_bytes(
        deployment.model.profile, deployment.sharding, deployment.numbers, min(rank.stage, deployment.sharding.pipeline - 1)
    )
    terms: list[tuple[str, float]] = [
        (f"{part.replace('_', ' ')}, {deployment.numbers.weight(part).name}", float(size)) for part, size in parts.items()
    ]
    rest = float(term.bytes) - sum(size for _, size in terms)
    if rest:
        terms.append(("padding, tables and buffers of the engine", rest))
    return total(
        "weights", terms, float(term.bytes), "GiB", most=8,
        formula=f"sum of the tensors that a rank holds, by part   {places.place(deployment.model, 'layer_kinds')}",
        computed_by=places.name(stage_bytes), evidence=term.evidence,
    )  # fmt: skip


def _memory_source(deployment: Deployment) -> str:
    profile = deployment.hardware.profile
    for key in ("memory_framework_total_mib", "memory_reported_bytes", "memory_reported_mib", "memory_capacity_gb"):
        if getattr(profile, key) is not None:
            return places.hardware(deployment, key)
    return ""


def _cache(deployment: Deployment, held: Capacity) -> list[Step]:
    sizes = {t.name: t for t in held.terms}
    if "kv_cache" not in sizes or sizes["kv_cache"].evidence == "given":
        return []
    law = places.law(held)
    values = [
        Value(
            name,
            float(sizes[name].bytes) if name in sizes else 0.0,
            "GiB",
            f"{sizes[name].evidence}; {_memory_source(deployment)}"
            if name == "gpu_memory"
            else sizes[name].evidence
            if name in sizes
            else "none",
        )
        for name in ("gpu_memory", "weights", "activation", "runtime", "cuda_graphs")
    ]
    values.insert(1, Value("utilization", held.gpu_memory_utilization, "", "--gpu-memory-utilization, else the engine's default"))
    result = float(sizes["kv_cache"].bytes)
    text = next((t for t in _BUDGETS if gives(t, tuple(values), result)), None)
    return [Step("left for the KV cache", text, tuple(values), result, "GiB", law)] if text else []


def _per_token(deployment: Deployment, rank: Rank) -> list[Step]:
    cache = rank.pool.cache
    terms = []
    for entry in cache.layers:
        law = entry.law
        if not law.grows:
            continue
        vectors = [f"{n} x {w} {cache.numbers.keys.name}" for n, w in law.key_vectors]
        vectors += [f"{n} x {w} {cache.numbers.values.name}" for n, w in law.value_vectors]
        size = entry.count * float(cache.token_bytes(law)) / law.tokens_per_entry / cache.decode_context
        terms.append((f"{entry.count} {law.kind} layers of {' + '.join(vectors) or 'index keys'}", size))
    if not terms:
        return []
    source = places.place(deployment.model, "layer_kinds")
    text = f"sum over the layers whose cache grows   {source}"
    return [
        total("KV cache per token", terms, float(cache.bytes_per_token), "B", formula=text, evidence="exact shapes and formats")
    ]


def _concurrency(deployment: Deployment, held: Capacity, rank: Rank) -> list[Step]:
    law = places.law(held)
    length = held.max_model_len
    each = getattr(rank.pool, "blocks_per_request", None)
    if each is not None and held.blocks:
        values: tuple[Value, ...] = (
            Value(
                "blocks",
                float(held.blocks),
                "",
                f"{held.block_tokens:,} tokens each in {len(rank.pool.cache.layers)} kinds of layers",
            ),
            Value("blocks_per_request", float(each(length)), "", f"a request of {length:,} tokens"),
        )
        text = "blocks / blocks_per_request"
    else:
        reserved = float(rank.pool.reserved_bytes(length))
        if not reserved:
            return []
        values = (
            Value("kv_cache", float(rank.kv.bytes), "GiB"),
            Value("reserved", reserved, "GiB", f"a request of {length:,} tokens"),
        )
        text = "kv_cache / reserved"
    if held.data_ranks > 1:
        values = (*values, Value("data_ranks", held.data_ranks, "", "groups of ranks with requests of their own"))
        text += " * data_ranks"
    if not gives(text, values, held.max_concurrency):
        return []
    return [Step("requests at once", text, values, held.max_concurrency, "requests", law)]
