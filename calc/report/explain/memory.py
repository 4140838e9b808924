"""Steps of the memory: budget of a GPU, cache per token, and how many requests fit."""

from __future__ import annotations

from calc.memory.budget import MEMORY_KEYS, Capacity
from calc.memory.rank import Rank
from calc.memory.term import GIVEN
from calc.report.explain import places
from calc.report.explain.step import Section, Step, Value, gives, total
from calc.serving.deployment import Deployment


def memory_section(deployment: Deployment, held: Capacity) -> Section:
    """Everything about the rank that rules."""
    steps = [_weights(deployment, held), *_cache(deployment, held), *_per_token(deployment, held), *_concurrency(held)]
    return Section("Memory of a GPU", tuple(steps), places.sources(deployment))


def _weights(deployment: Deployment, held: Capacity) -> Step:
    term = next(t for t in held.ruling.taken if t.name == "weights")
    parts = [(name, float(size)) for name, size in term.parts]
    source = "" if term.evidence == GIVEN else f"   {places.place(deployment.model, 'layer_kinds')}"
    return total(
        "weights", parts, float(term.bytes), "GiB", most=8, formula=f"sum of what a rank holds, by part{source}",
        computed_by=places.law(held), evidence=term.evidence,
    )  # fmt: skip


def _memory_source(deployment: Deployment, rank: Rank) -> str:
    """The line that the total memory was read from, of the device of a stage."""
    devices = deployment.memory.devices
    profile = devices[rank.stage] if devices else deployment.hardware.profile
    keys = MEMORY_KEYS.get(rank.memory.evidence, ())
    key = next((k for k in keys if getattr(profile, k) is not None), "memory_capacity_gb")
    return f"{key} of {profile.id}" if devices else places.hardware(deployment, key)


def _cache(deployment: Deployment, held: Capacity) -> list[Step]:
    """What the engine's own formula leaves; nothing where the cache was stated."""
    rank = held.ruling
    if rank.is_given:
        return []
    sizes = {t.name: t for t in (rank.memory, *rank.taken)}
    values = []
    for name in ("gpu_memory", "weights", "activation", "runtime", "cuda_graphs"):
        term = sizes.get(name)
        source = term.evidence if term else "none"
        if name == "gpu_memory" and source != GIVEN:
            source += f"; {_memory_source(deployment, rank)}"
        values.append(Value(name, float(term.bytes if term else 0), "GiB", source))
    values.insert(1, Value("utilization", held.share.value, "", "--gpu-memory-utilization, else the engine's default"))
    return [Step("left for the KV cache", held.share.formula, tuple(values), float(rank.kv.bytes), "GiB", places.law(held))]


def _per_token(deployment: Deployment, held: Capacity) -> list[Step]:
    """Of the rank whose layers take most a token."""
    cache = max((r.pool.cache for r in held.ranks), key=lambda c: c.bytes_per_token)
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


def _concurrency(held: Capacity) -> list[Step]:
    rank, law, length = held.ruling, places.law(held), held.max_model_len
    each = getattr(rank.pool, "blocks_per_request", None)
    if each is not None and held.blocks and each(length):
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
