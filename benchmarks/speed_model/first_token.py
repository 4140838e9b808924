"""Times to first token of closed loops, against those that the commands state. Nothing is fitted to them: how a benchmark lets its
requests come decides them, and records do not say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import calc
from benchmarks.speed_model import spellings
from benchmarks.speed_model.case import SkipError
from benchmarks.speed_model.steps import setup
from calc.errors import RoofcastError
from calc.timing.step_time import Range

_ENGINES = ("vllm", "sglang", "tensorrt-llm")


@dataclass(frozen=True)
class Told:
    """Measured over expected time to first token, and whether the stated range holds it."""

    ratio: float
    held: bool


def told(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Told]]:
    """By engine, of equal requests of a stated number of users. Left out: a server whose requests waited longer than an answer takes
    (the stated users are not what ran), and what the commands do not answer."""
    found: dict[str, list[Told]] = defaultdict(list)
    for record in records:
        measured = record["measured"]
        first, each = measured.get("ttft_ms"), measured.get("ms_per_step")
        if record["kind"] != "serving" or not (first and each) or first > each * int(record["output_len"]):
            continue
        stated, seconds = _stated(record), float(first) / 1e3
        if stated is not None and stated.expected and stated.low is not None and stated.high is not None:
            held = bool(stated.low <= seconds <= stated.high)
            found[spellings.engine(record)[0]].append(Told(seconds / float(stated.expected), held))
    return dict(found)


def _stated(record: Mapping[str, Any]) -> Range | None:
    try:
        where = setup(record)
    except SkipError:
        return None
    if where.setting.engine not in _ENGINES:
        return None
    stored = {w.name for w in (where.numbers.weight("experts"), where.numbers.weight("feed_forward"))}
    options: dict[str, Any] = {
        "engine": where.setting.engine,
        "tensor_parallel_size": where.sharding.tensor,
        "enable_expert_parallel": where.sharding.expert_parallel,
        "input_len": int(record["input_len"]),
        "output_len": int(record["output_len"]),
        "concurrency": int(record["batch"]),
    }
    if where.model.storage.dtype not in stored and not stored & set(where.model.storage.roles.values()):
        options["quantization"] = min(stored)
    try:
        load = calc.estimate(where.model.id, where.hardware.id, **options).load
    except RoofcastError:
        return None
    return load.answer.ttft_s if load and load.answer else None


def section(records: Iterable[Mapping[str, Any]]) -> str:
    """The part of the page on accuracy."""
    rows = []
    for engine, found in sorted(told(records).items()):
        ratios = [one.ratio for one in found]
        figures = (min(ratios), median(ratios), max(ratios))
        held = sum(one.held for one in found)
        rows.append(f"| {engine} | {len(found)} | " + " | ".join(f"{f:.1f}" for f in figures) + f" | {held} |")
    return "\n".join(
        (
            "## Time to first token under load\n",
            "Measured over expected, closed loops of equal requests. Nothing is fitted to these: waits follow from the steps. The expected",
            "time holds for users who come by themselves, the high end for all at once, as a benchmark may start them.\n",
            "| engine | n | least | median | most | held |\n|---|---|---|---|---|---|",
            *rows,
        )
    )
