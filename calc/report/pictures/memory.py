"""Where the memory of a GPU goes, and how many requests what is left holds at each length, by cache format."""

from __future__ import annotations

from collections.abc import Sequence

from calc.memory.budget import Capacity
from calc.report import memory_terms
from calc.report.estimate import title
from calc.report.pictures.picture import Axis, Chart, Mark, Rule, Series, Share, Stack
from calc.serving.curves import Curve
from calc.serving.deployment import Deployment
from calc.units import GIB, format_bytes, format_number

#: Terms from left to right.
_PARTS = ("weights", "activation", "runtime", "cuda_graphs", "kv_cache")


def memory_bar(deployment: Deployment, held: Capacity) -> Stack:
    """The budget of the rank that holds least."""
    sizes = {t.name: t.bytes for t in held.terms}
    shares = [Share(memory_terms.SHORT[n], sizes[n] / GIB, format_bytes(sizes[n], 3)) for n in _PARTS if sizes.get(n)]
    total = sizes["gpu_memory"] / GIB
    free = total - sum(s.value for s in shares)
    if free > 0:
        shares.append(Share("free", free, format_bytes(free * GIB, 3)))
    most = held.limit_bytes_per_gpu
    limits = (
        (Rule("x", most / GIB, f"usable: {format_bytes(most)}"),) if most < sizes["gpu_memory"] and not held.ruling.is_given else ()
    )
    caption = f"{title(deployment)}. The rank that holds least."
    return Stack("Memory of a GPU", caption, Axis("memory (GiB)"), tuple(shares), limits)


def concurrency(deployment: Deployment, curves: Sequence[Curve]) -> Chart | None:
    """Requests at once over their length, a line per cache format; None where nothing fits."""
    series = []
    for curve in curves:
        points = [(length, room) for length, room in zip(curve.lengths, curve.concurrency, strict=True) if room >= 1]
        if points:
            marks = [
                Mark(float(length), room, "", f"{format_number(room)} requests of {length:,} tokens") for length, room in points
            ]
            last = marks[-1]
            marks[-1] = Mark(last.x, last.y, f"KV {curve.kv_cache_dtype}", last.note)
            series.append(Series(f"KV cache in {curve.kv_cache_dtype}", tuple(marks), line=True, shape="circle", filled=True))
    if not series:
        return None
    shortest, longest = (f(m.x for s in series for m in s.marks) for f in (min, max))
    asked = deployment.memory.max_model_len
    rules = (Rule("x", float(asked), f"max_model_len {asked:,}"),) if asked else ()
    return Chart(
        "Requests at once by length and cache format",
        f"{title(deployment)}. By the engine's own memory law; its limit on sequences apart.",
        Axis("length of each request (tokens)", log=True, low=shortest / 1.25, high=2 * longest),  # room for the names of the lines
        Axis("requests that fit at once", log=True),
        tuple(series),
        rules,
    )
