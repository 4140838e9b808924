"""Reads an engine's start-up text: configuration and printed figures, whatever stands around them.

Tolerant of timestamps, ranks, colours, carriage returns, binary noise and unrelated lines; never reads more than a bound. What each
engine prints is in a module of its own (log_vllm, log_sglang, log_llama_cpp, log_tensorrt_llm).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import BinaryIO

from calc.errors import ProfileError
from calc.memory.engines.log_rules import Printed, Rules
from calc.units import MIB

#: Start-up text stands at the beginning of a log; nothing beyond this is read, and lines are cut.
MAX_BYTES = 16 * MIB
MAX_LINE = 32768
MAX_FIGURES = 10_000

ENGINES = ("vllm", "sglang", "llama_cpp", "tensorrt_llm")
_NOISE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
_RANK = re.compile(r"\b(?:TP|DP|PP|rank[ =]?|Worker_TP|RANK )(\d+)\b")


@dataclass(frozen=True)
class StartUpLog:
    """What a start-up log says. ``settings`` are options as a command line would give them; ``figures`` come in the order printed."""

    engine: str
    settings: dict[str, str]
    figures: tuple[Printed, ...]
    lines: int
    truncated: bool

    def all(self, name: str) -> list[Printed]:
        """Every printing of a figure."""
        return [f for f in self.figures if f.name == name]

    def value(self, name: str) -> Printed | None:
        """The printing that rules: the smallest cache, the largest of what is taken, the last of the rest (engines that size their
        cache twice print it twice). Devices of one llama.cpp are summed up by its own module."""
        found = self.all(name)
        if not found:
            return None
        ranks = {f.rank for f in found if f.rank is not None}
        if len(ranks) > 1:
            last = {f.rank: f for f in found if f.rank is not None}.values()
            pick = min if name in _SMALLEST else max
            return pick(last, key=lambda f: f.value)
        return found[-1]


_SMALLEST = ("kv_cache", "kv_tokens", "blocks", "free", "free_after", "free_before", "gpu_memory")


@dataclass
class _Reading:
    """What has been found so far, by engine."""

    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    figures: dict[str, list[Printed]] = field(default_factory=dict)


def read_log(stream: BinaryIO, name: str) -> StartUpLog:
    """Read a start-up log. Raises ProfileError, saying what was looked for, when it holds no memory figure of a known engine."""
    rules = {engine: _rules(engine) for engine in ENGINES}
    reading = _Reading()
    count = 0
    text = _Bounded(stream)
    for number, raw in text.lines():
        count = number
        hits = [engine for engine, own in rules.items() if any(word in raw for word in own.words)]
        for line in _clean(raw) if hits else ():
            for engine in hits:
                _take(rules[engine], engine, line, number, reading)
    engine = _decide(reading, name, count, text.truncated, text.binary)
    own = rules[engine]
    figures = own.finish(reading.figures[engine]) if own.finish else reading.figures[engine]
    return StartUpLog(
        engine.replace("_cpp", ".cpp").replace("_llm", "-llm"),
        reading.settings.get(engine, {}),
        tuple(figures),
        count,
        text.truncated,
    )


def _rules(engine: str) -> Rules:
    found: Rules = import_module(f"calc.memory.engines.log_{engine}").RULES
    return found


def _take(own: Rules, engine: str, line: str, number: int, reading: _Reading) -> None:
    figures = reading.figures.setdefault(engine, [])
    rank = _RANK.search(line)
    for rule in own.figures:
        figures += islice(rule.read(line, number, int(rank[1]) if rank else None), MAX_FIGURES - len(figures))
    settings = reading.settings.setdefault(engine, {})
    for key, value in own.settings(line):
        settings.setdefault(key, value)


def _decide(reading: _Reading, name: str, lines: int, truncated: bool, binary: bool) -> str:
    """The engine with most memory figures."""
    found = {engine: len(figures) for engine, figures in reading.figures.items() if figures}
    if found:
        return max(found, key=lambda e: found[e])
    looked = "; ".join(f"{engine.replace('_', '.' if 'cpp' in engine else '-')}: {_rules(engine).example!r}" for engine in ENGINES)
    what = f"{lines:,} lines" + (f", the first {MAX_BYTES // MIB} MiB" if truncated else "") + (", mostly binary" if binary else "")
    seen = sorted(e for e, s in reading.settings.items() if s)
    part = f"; it looks like {' or '.join(seen)} but stops before memory is printed" if seen else ""
    raise ProfileError(f"{name}: no memory line of a start-up log in {what}{part}", f"looked for lines such as {looked}")


def _clean(raw: bytes) -> Iterator[str]:
    """Text without colours and noise; a carriage return begins a new line (progress bars)."""
    text = _NOISE.sub("", raw.decode("utf-8", errors="replace"))
    return (part.strip() for part in text.split("\r") if part.strip())


class _Bounded:
    """Raw lines of a stream up to the bound, without the zeros of two-byte encodings (logs of Windows shells)."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.truncated = False
        self.binary = False

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(line number, bytes)."""
        taken, number, noise = 0, 1, 0
        while raw := self._stream.readline(MAX_LINE):
            taken += len(raw)
            if b"\x00" in raw:
                noise += raw.count(b"\x00")
                raw = raw.replace(b"\x00", b"")
            yield number, raw
            number += raw.endswith(b"\n")
            if taken >= MAX_BYTES:
                self.truncated = bool(self._stream.read(1))
                break
        self.binary = noise * 4 > taken > 0
