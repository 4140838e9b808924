"""A start-up log held against the prediction: term by term, what explains the gap, and what in the log contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from calc.memory.budget import Capacity
from calc.memory.engines.log_rules import Printed
from calc.memory.engines.logs import StartUpLog
from calc.memory.term import Term
from calc.serving.deployment import Deployment
from calc.units import GIB

#: Terms of the budget, which logs print under the same names.
_TERMS = ("gpu_memory", "weights", "activation", "runtime", "cuda_graphs", "kv_cache")
#: Figures of the capacity itself → unit.
_RESULTS = {"blocks": "blocks", "kv_tokens": "tokens", "max_concurrency": "x", "block_tokens": "tokens"}
_ORDER = (*_TERMS, *_RESULTS)
#: Engines that print the cache that they set aside for their slots, not the memory that is left for one.
_PRINTS_ALLOCATED = ("llama.cpp",)
#: A gap below this share of the printed cache needs no explanation, and figures agree within it.
SMALL_SHARE = 0.01
#: Printed sizes are rounded to a hundredth of a GiB.
ROUNDING = 0.011 * GIB
#: Share of the gap that one term must make up to be named.
_EXPLAINING_SHARE = 0.4


@dataclass(frozen=True)
class Line:
    """One figure: predicted with its range, and printed. ``unit`` is bytes, tokens, blocks, cells, slots or x."""

    name: str
    unit: str
    predicted: float | None
    low: float | None
    high: float | None
    printed: float
    line: int

    @property
    def difference(self) -> float | None:
        """Printed less predicted."""
        return None if self.predicted is None else self.printed - self.predicted


@dataclass(frozen=True)
class Reconciliation:
    """The comparison. ``gap_bytes`` is the printed cache less the predicted one; ``explained_by`` the term that makes up most of it;
    ``follows`` what tokens and concurrency follow from the printed cache."""

    lines: tuple[Line, ...]
    gap_bytes: float | None
    explained_by: str | None
    verdict: str
    follows: tuple[Line, ...]
    contradictions: tuple[str, ...]


def reconcile(deployment: Deployment, log: StartUpLog) -> Reconciliation:
    """Hold a log against the prediction of its deployment."""
    held = deployment.engine.capacity(deployment.question())
    lines = tuple(_lines(held, log))
    kv = log.value("kv_cache")
    follows: tuple[Line, ...] = ()
    if kv is not None and log.engine not in _PRINTS_ALLOCATED:
        given = deployment.engine.capacity(deployment.question(kv_cache_bytes=max(1, int(kv.value))))
        follows = tuple(line for line in _lines(given, log) if line.name in ("blocks", "kv_tokens", "max_concurrency"))
    gap = next((line.difference for line in lines if line.name == "kv_cache"), None)
    term = _explaining(lines, gap, held)
    return Reconciliation(lines, gap, term, _verdict(lines, gap, term), follows, tuple(_contradictions(log, follows)))


def _lines(held: Capacity, log: StartUpLog) -> list[Line]:
    """Every printed figure that the law also knows, and those that help to read it."""
    terms = {t.name: t for t in held.terms}
    figures = {f.name: f for f in held.printed}
    found = []
    names = list(dict.fromkeys(f.name for f in log.figures))
    for name in sorted(names, key=lambda n: _ORDER.index(n) if n in _ORDER else len(_ORDER)):
        printed = log.value(name)
        if printed is None:
            continue
        term = terms.get(name) if name in _TERMS else None
        if name == "kv_cache" and log.engine in _PRINTS_ALLOCATED:
            term = None
        elif term is not None and name == "kv_cache" and "token_pool" in figures:
            term = _token_pool(term, figures["token_pool"].value)
        if term is not None and name == "cuda_graphs" and term.most == 0:  # outside the budget of this engine and version
            found.append(Line(name, "bytes", None, None, None, printed.value, printed.line))
            continue
        if term is not None:
            found.append(Line(name, "bytes", term.bytes, term.least, term.most, printed.value, printed.line))
        elif name in _RESULTS:
            low, high = _span(held, name)
            found.append(Line(name, _RESULTS[name], float(getattr(held, name)), low, high, printed.value, printed.line))
        else:
            own = figures.get({"kv_cache": "kv_buffer"}.get(name, name))
            value = _free(name, held) if own is None else float(own.value)
            if own is not None or printed.name in ("consumed", "free", "free_before", "free_after", "peak_torch"):
                found.append(Line(name, printed.unit, value, value, value, printed.value, printed.line))
    return found


def _free(name: str, held: Capacity) -> float | None:
    """What SGLang finds free before and after loading; other engines print no figure of that meaning."""
    if held.engine != "sglang" or name not in ("free_before", "free_after"):
        return None
    free = float(held.capacity_bytes_per_gpu - held.runtime_bytes_per_gpu)
    return free if name == "free_before" else free - held.weights_bytes_per_gpu


def _token_pool(left: Term, pool: float) -> Term:
    """What tokens take of the memory that is left: SGLang prints recurrent state apart."""
    return replace(left.scaled("kv_cache", pool / left.bytes), bytes=int(pool)) if left.bytes else left


def _span(held: Capacity, name: str) -> tuple[float | None, float | None]:
    if name == "kv_tokens":
        return held.kv_tokens_low, held.kv_tokens_high
    if name == "max_concurrency":
        return held.max_concurrency_low, held.max_concurrency_high
    return None, None


def _explaining(lines: tuple[Line, ...], gap: float | None, held: Capacity) -> str | None:
    """The term that makes up most of the gap: whose printed size, in place of the predicted one, moves the engine's law most towards
    the printed cache."""
    if gap is None:
        return None
    rank, share = held.ruling, held.share
    predicted = share.left(rank.memory, rank.taken).bytes
    moved = {}
    for line in lines:
        memory, taken = rank.memory, rank.taken
        if line.difference is None:
            continue
        if line.name in ("gpu_memory", "free_before"):
            memory = _changed(memory, line.difference)
        elif line.name in (t.name for t in taken):
            taken = tuple(_changed(t, line.difference) if t.name == line.name else t for t in taken)
        else:
            continue
        moved[line.name] = share.left(memory, taken).bytes - predicted
    same = {name: value for name, value in moved.items() if value * gap > 0}
    if not same:
        return None
    name = max(same, key=lambda n: abs(same[n]))
    return name if abs(same[name]) >= _EXPLAINING_SHARE * abs(gap) else None


def _changed(term: Term, difference: float) -> Term:
    return replace(term, bytes=round(term.bytes + difference), low=None, high=None)


def _verdict(lines: tuple[Line, ...], gap: float | None, term: str | None) -> str:
    kv = next((line for line in lines if line.name == "kv_cache"), None)
    if kv is None or gap is None:
        return "the log prints no size of the cache"
    amount = f"{abs(gap) / GIB:.2f} GiB {'more' if gap > 0 else 'less'} cache than predicted"
    if abs(gap) <= max(SMALL_SHARE * kv.printed, ROUNDING):
        return "the prediction holds"
    inside = kv.low is not None and kv.high is not None and kv.low <= kv.printed <= kv.high
    where = "within the predicted range" if inside else "outside the predicted range"
    if term is not None:
        return f"{amount}, {where}: {term} explains most of it"
    return f"{amount}, {where}: no printed term explains it"


def _contradictions(log: StartUpLog, follows: tuple[Line, ...]) -> list[str]:
    found = []
    if log.engine == "vllm":
        found += _identity(log)
    if log.engine == "sglang":
        found += _static(log)
    keys, values, both = (log.value(n) for n in ("kv_keys", "kv_values", "kv_cache"))
    if keys and values and both and abs(keys.value + values.value - both.value) > 2 * ROUNDING:
        found.append("keys and values do not add up to the cache")
    for line in follows:
        if line.predicted and abs(line.printed / line.predicted - 1) > SMALL_SHARE:
            found.append(_layout(line))
    found += _lengths(log)
    sizes = {f.rank: f.value for f in log.all("kv_cache") if f.rank is not None}
    if len(sizes) > 1 and max(sizes.values()) - min(sizes.values()) > ROUNDING:
        found.append(
            f"ranks have between {min(sizes.values()) / GIB:.2f} and {max(sizes.values()) / GIB:.2f} GiB: the smallest rules"
        )
    return found


def _identity(log: StartUpLog) -> list[str]:
    """vLLM: total x utilisation - weights - activation - the rest = cache."""
    printed = {n: log.value(n) for n in ("gpu_memory", "utilization", "weights", "activation", "runtime", "kv_cache")}
    if any(p is None for p in printed.values()):
        return []
    v = {n: p.value for n, p in printed.items() if p is not None}
    left = v["gpu_memory"] * v["utilization"] - v["weights"] - v["activation"] - v["runtime"]
    off = v["kv_cache"] - left
    # The utilisation may be printed with two decimals only.
    slack = 3 * ROUNDING + 0.005 * v["gpu_memory"] * (len(f"{v['utilization']:g}") <= 4)
    graphs = log.value("cuda_graphs")
    if abs(off) <= slack or (graphs is not None and abs(off + graphs.value) <= slack):
        return []
    return [
        f"the printed terms leave {left / GIB:.2f} GiB, the log prints {v['kv_cache'] / GIB:.2f}: one of them is another rank's"
    ]


def _static(log: StartUpLog) -> list[str]:
    """SGLang: free after loading - free before x (1 - fraction) = token pool and state."""
    before, after, kv = (log.value(n) for n in ("free_before", "free_after", "kv_cache"))
    text = log.settings.get("gpu_memory_utilization")
    if not (before and after and kv and text) or "max_total_tokens" in log.settings:
        return []
    states = sum(p.value for p in (log.value("state_convolution"), log.value("state_matrix")) if p)
    left = after.value - before.value * (1 - float(text))
    if abs(left - kv.value - states) <= max(6 * ROUNDING, 0.03 * left):
        return []
    return [f"free memory and fraction leave {left / GIB:.2f} GiB, the pools take {(kv.value + states) / GIB:.2f}"]


def _layout(line: Line) -> str:
    assert line.predicted is not None
    ratio = line.printed / line.predicted
    reason = "draft layers, another rank with less memory, or another layout"
    if abs(ratio - 2) < 0.04:
        reason = "the cache is half as wide: 8 bit instead of 16?"
    elif abs(ratio - 0.5) < 0.01:
        reason = "the cache is twice as wide: 16 bit instead of 8?"
    digits = 2 if line.unit == "x" else 0
    printed, predicted = f"{line.printed:,.{digits}f}", f"{line.predicted:,.{digits}f}"
    return f"{line.name} {printed} does not follow from the printed cache, which gives {predicted}: {reason}"


def _lengths(log: StartUpLog) -> list[str]:
    tokens, fits, length = (log.value(n) for n in ("kv_tokens", "max_concurrency", "request_tokens"))
    if not (tokens and fits and length):
        return []
    product = fits.value * length.value
    if abs(tokens.value / product - 1) <= max(SMALL_SHARE, 0.006 / fits.value):
        return []
    return [
        f"{tokens.value:,.0f} tokens are not {fits.value:g} requests of {length.value:,.0f}: layers of several kinds, "
        f"of which this version's token line shares out the blocks; {product:,.0f} tokens is what the pool serves"
    ]


def overrides(log: StartUpLog) -> dict[str, Any]:
    """Options that bring the prediction to what the log printed: sizes per GPU as text with a unit."""
    found: dict[str, Any] = {}
    for name, option in (("gpu_memory", "gpu_memory"), ("weights", "weights_memory"), ("activation", "activation_memory")):
        printed = log.value(name)
        if printed is not None:
            found[option] = size_text(printed)
    kv = log.value("kv_cache")
    if kv is not None and log.engine not in _PRINTS_ALLOCATED:
        found["kv_cache_memory"] = size_text(kv)
    return found


def size_text(printed: Printed) -> str:
    """A printed size as an option takes it."""
    return f"{printed.value / GIB:.6g}GiB"
