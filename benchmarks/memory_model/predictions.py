"""The figures of a record as the laws predict them, in two modes.

``config``: nothing from the log but its configuration. ``budget``: the printed bytes of the KV cache given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.memory_model.configuration import Configuration
from benchmarks.memory_model.questions import Asked
from calc.memory.budget import MemoryQuestion
from calc.memory.capacity import Capacity
from calc.memory.engines import EngineLaw, llama_cpp
from calc.units import GIB, MIB

#: Printed GiB and concurrencies are rounded to two decimals.
ROUNDING = 0.005


@dataclass(frozen=True)
class Prediction:
    """One figure: its quantity, mode, expected value and range."""

    quantity: str
    mode: str
    predicted: float
    low: float
    high: float


def _figures(found: Capacity) -> dict[str, tuple[float, float, float]]:
    """(expected, low, high) of what a log may print."""
    kv = next(t for t in found.terms if t.name == "kv_cache")
    per_block = found.block_tokens or 1
    figures = {
        "kv_tokens": (found.kv_tokens, found.kv_tokens_low, found.kv_tokens_high),
        "max_concurrency": (found.max_concurrency, found.max_concurrency_low, found.max_concurrency_high),
        "kv_bytes": (kv.bytes, kv.least, kv.most),
    }
    if found.blocks and found.kv_tokens:
        figures["blocks"] = (found.blocks, found.kv_tokens_low // per_block, found.kv_tokens_high // per_block)
    printed = {f.name: f.value for f in found.printed}
    if "token_pool" in printed:  # SGLang prints what the tokens take, not what states take beside them
        share = printed["token_pool"] / found.kv_cache_bytes_per_gpu if found.kv_cache_bytes_per_gpu else 0.0
        figures["kv_bytes"] = (printed["token_pool"], kv.least * share, kv.most * share)
    expected, low, high = figures["max_concurrency"]
    figures["max_concurrency"] = (expected, max(0.0, low - ROUNDING), high + ROUNDING)  # printed with two decimals
    return {name: (float(a), float(b), float(c)) for name, (a, b, c) in figures.items()}


def _merged(law: EngineLaw, questions: tuple[MemoryQuestion, ...]) -> tuple[Capacity, dict[str, tuple[float, float, float]]]:
    """The capacity of the expected version, and figures whose range spans all versions."""
    found = [law.capacity(q) for q in questions]
    each = [_figures(f) for f in found]
    last = each[-1]
    spans = {
        name: (value[0], min(e[name][1] for e in each if name in e), max(e[name][2] for e in each if name in e))
        for name, value in last.items()
    }
    for term in ("weights", "activation"):
        terms = [next((t for t in f.terms if t.name == term), None) for f in found]
        known = [t for t in terms if t is not None]
        if known and terms[-1] is not None:
            expected = float(terms[-1].bytes)
            spans[term] = (expected, float(min(t.least for t in known)), float(max(t.most for t in known)))
    return found[-1], spans


def config_predictions(config: Configuration, asked: Asked) -> Iterator[Prediction]:
    """What the configuration alone says."""
    if config.engine == "llama.cpp":
        yield from llama_cpp_predictions(asked, "config")
        return
    _, spans = _merged(asked.law, asked.questions)
    if _parameters_known(asked):
        yield Prediction("weights", "config", *spans["weights"])
    if config.engine == "vllm" and asked.questions[-1].model.vocab_size:
        yield Prediction("activation", "config", *spans["activation"])
    capped = all(q.options.max_total_tokens for q in asked.questions)
    budget_known = asked.memory_known and config.fraction is not None and _parameters_known(asked)
    if budget_known or capped:
        for quantity in ("kv_bytes", "kv_tokens", "blocks", "max_concurrency"):
            if quantity in spans:
                yield Prediction(quantity, "config", *spans[quantity])


def _parameters_known(asked: Asked) -> bool:
    return asked.listed or bool(asked.questions[-1].model.extras)


def budget_predictions(config: Configuration, asked: Asked, reported: Mapping[str, Any]) -> Iterator[Prediction]:
    """What follows from the printed KV bytes."""
    if config.engine == "llama.cpp":
        yield from llama_cpp_predictions(asked, "budget")
        return
    gib = reported.get("kv_cache_gib_per_gpu")
    if gib is None:
        return
    exact = reported.get("kv_bytes")

    def given(size: float) -> dict[str, tuple[float, float, float]]:
        questions = tuple(replace(q, options=replace(q.options, kv_cache_bytes=max(1, int(size)))) for q in asked.questions)
        return _merged(asked.law, questions)[1]

    middle = given(exact if exact is not None else gib * GIB)
    slack = 0 if exact is not None else ROUNDING * (2 if config.engine == "sglang" else 1)  # SGLang prints K and V apart
    lower, upper = given((gib - slack) * GIB), given((gib + slack) * GIB)
    for quantity in ("kv_tokens", "blocks", "max_concurrency"):
        if quantity in middle:
            yield Prediction(quantity, "budget", middle[quantity][0], lower[quantity][1], upper[quantity][2])
    tokens = middle["kv_tokens"][0]
    if tokens:
        size = gib * GIB
        fewest, most = (max(1.0, span["kv_tokens"][i]) for span, i in ((lower, 1), (upper, 2)))
        yield Prediction("kv_bytes_per_token", "budget", size / tokens, size / most, size / fewest)


def llama_cpp_predictions(asked: Asked, mode: str) -> Iterator[Prediction]:
    """Buffers in MiB: they follow from the configuration, no budget enters."""
    question = asked.questions[-1]
    buffers = llama_cpp.buffers(question)
    total = sum(buffers[1:], buffers[0])
    found = {
        "kv_mib_total": total.attention / MIB,
        "kv_k_mib": total.keys / MIB,
        "kv_v_mib": total.values / MIB,
    }
    if total.window:
        found |= {
            "swa_mib": total.window / MIB,
            "non_swa_mib": (total.attention - total.window) / MIB,
            "swa_cells": total.window_cells,
        }
    if total.state or total.convolution:
        found |= {
            "recurrent_mib": (total.state + total.convolution) / MIB,
            "recurrent_r_mib": total.convolution / MIB,
            "recurrent_s_mib": total.state / MIB,
        }
    for name, value in found.items():
        yield Prediction(name, mode, value, value * 0.999, value * 1.001)
    if mode == "config" and asked.listed:
        compute = next(t for t in asked.law.capacity(question).terms if t.name == "activation")
        yield Prediction("compute_buffer_mib", mode, compute.bytes / MIB, compute.least / MIB, compute.most / MIB)
