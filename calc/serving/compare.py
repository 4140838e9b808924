"""Two deployments side by side: each result, its ratio, and the operator or term that moved most."""

from __future__ import annotations

from dataclasses import dataclass

from calc.memory.kv_cache import MAX_CONTEXT
from calc.serving.estimate import Estimate
from calc.serving.phase import Phase
from calc.timing.step_time import Range


@dataclass(frozen=True)
class Pair:
    """One result of both sides; ``kind`` says what is counted: seconds, bytes, traffic (bytes that are moved), flops, intensity
    (FLOP/byte), tokens, requests, or tokens_per_s. None: not answered."""

    name: str
    kind: str
    one: float | None
    two: float | None

    @property
    def ratio(self) -> float | None:
        """Second over first."""
        return self.two / self.one if self.one and self.two is not None else None


@dataclass(frozen=True)
class Moved:
    """What changed most: an operator of a phase (seconds of a step) or a memory term (bytes per GPU)."""

    where: str
    name: str
    kind: str
    one: float
    two: float


@dataclass(frozen=True)
class Comparison:
    """All pairs, and what moved most in each phase and in memory, where anything did."""

    pairs: list[Pair]
    moved: list[Moved]


def compare(one: Estimate, two: Estimate, gpus: tuple[int, int]) -> Comparison:
    """Put two estimates side by side; ``gpus`` of one replica of each."""
    requests = (one.request, two.request)
    rates = [_expected(r.output_tokens_per_s) for r in requests]
    pairs = [
        Pair("TTFT", "seconds", *(_expected(r.ttft_s) for r in requests)),
        Pair("TPOT", "seconds", *(_expected(r.tpot_s) for r in requests)),
        Pair("end to end", "seconds", *(_expected(r.e2e_s) for r in requests)),
        Pair("output tokens/s", "tokens_per_s", *rates),
        Pair("output tokens/s per GPU", "tokens_per_s", *(r and r / n for r, n in zip(rates, gpus, strict=True))),
        *_drafted(one, two),
        *_loaded(one, two),
    ]
    for label, a, b in (("prefill", one.prefill, two.prefill), ("decode", one.decode, two.decode)):
        if a is None or b is None:
            continue
        pairs += [
            Pair(f"{label} floor", "seconds", _floor(a), _floor(b)),
            Pair(f"{label} work", "flops", float(a.totals.flops), float(b.totals.flops)),
            Pair(f"{label} traffic", "traffic", float(a.totals.bytes), float(b.totals.bytes)),
            Pair(f"{label} intensity", "intensity", float(a.arithmetic_intensity), float(b.arithmetic_intensity)),
        ]
    capacity = (one.capacity, two.capacity)
    for label, name, kind in (
        ("weights bytes per gpu", "weights_bytes_per_gpu", "bytes"),
        ("room for kv cache per gpu", "kv_cache_bytes_per_gpu", "bytes"),  # what is left for it, whatever its format
        ("kv bytes per token per gpu", "kv_bytes_per_token_per_gpu", "traffic"),
        ("max concurrency", "max_concurrency", "requests"),
    ):
        first, second = (float(getattr(c, name)) for c in capacity)
        pairs.append(Pair(label, kind, first, second))
    longest = (None if c.max_context_tokens >= MAX_CONTEXT else float(c.max_context_tokens) for c in capacity)
    pairs.append(Pair("max context tokens", "tokens", *longest))
    moved = [
        m for m in (_moved("prefill", one.prefill, two.prefill), _moved("decode", one.decode, two.decode), _term(one, two)) if m
    ]
    return Comparison(pairs, moved)


def _expected(time: Range) -> float | None:
    return None if time.expected is None else float(time.expected)


def _drafted(one: Estimate, two: Estimate) -> list[Pair]:
    """With drafts, where a side has them: plain TPOT where it has none."""
    if one.speculation is None and two.speculation is None:
        return []
    return [Pair("TPOT with drafts", "seconds", *(_expected((e.speculation or e.request).tpot_s) for e in (one, two)))]


def _loaded(one: Estimate, two: Estimate) -> list[Pair]:
    """Under the load that was stated, where one was."""
    if one.load is None and two.load is None:
        return []
    sides = [e.load.answer if e.load else None for e in (one, two)]
    found = []
    for label, name in (("TTFT under load", "ttft_s"), ("TPOT under load", "tpot_s")):
        found.append(Pair(label, "seconds", *(_expected(getattr(s, name)) if s else None for s in sides)))
    return [*found, Pair("output tokens/s under load", "tokens_per_s", *(s.output_tokens_per_s if s else None for s in sides))]


def _floor(phase: Phase) -> float | None:
    return None if phase.time_s.floor is None else float(phase.time_s.floor)


def _seconds_by_operator(phase: Phase) -> dict[str, float]:
    sums: dict[str, float] = {}
    for item in phase.timed.operators if phase.timed else ():
        seconds = float(item.time_s.expected or 0.0) * item.operator.count
        sums[item.operator.name] = sums.get(item.operator.name, 0.0) + seconds
    return sums


def _moved(where: str, one: Phase | None, two: Phase | None) -> Moved | None:
    if one is None or two is None or one.timed is None or two.timed is None:
        return None
    return _most(where, "seconds", _seconds_by_operator(one), _seconds_by_operator(two))


def _term(one: Estimate, two: Estimate) -> Moved | None:
    first = {t.name: float(t.bytes) for t in one.fit.terms}
    second = {t.name: float(t.bytes) for t in two.fit.terms}
    both = [n for n in first if n in second and n not in ("gpu_memory", "kv_cache")]
    return _most("memory", "bytes", {n: first[n] for n in both}, {n: second[n] for n in both})


def _most(where: str, kind: str, first: dict[str, float], second: dict[str, float]) -> Moved | None:
    """What differs most; None where nothing does."""
    name = max(first | second, key=lambda n: abs(first.get(n, 0.0) - second.get(n, 0.0)), default=None)
    if name is None or first.get(name, 0.0) == second.get(name, 0.0):
        return None
    return Moved(where, name, kind, first.get(name, 0.0), second.get(name, 0.0))
