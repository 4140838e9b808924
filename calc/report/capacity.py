"""Memory and capacity of a deployment as a page, and what would make more fit."""

from __future__ import annotations

from typing import Any

from calc.memory.budget import Capacity
from calc.memory.term import Figure
from calc.report import memory_terms
from calc.report.estimate import capacity_line, title
from calc.report.records import capacity_record
from calc.report.table import Column, Page, Table
from calc.serving.deployment import Deployment
from calc.serving.remedies import Remedies
from calc.units import format_bytes, format_count, format_number

_FIGURES = {
    "kv_keys": "keys", "kv_values": "values", "kv_buffer": "keys and values", "context_cells": "cells", "window_cells": "cells of windows",
    "window_buffer": "windows", "base_buffer": "full attention", "state_convolution": "state: convolution", "state_matrix": "state: matrix",
    "state_buffer": "state", "token_pool": "token pool", "full_tokens": "tokens of full attention", "window_tokens": "tokens of windows",
    "state_slots": "slots of state", "page_padding": "padding of state pages, %",
}  # fmt: skip


def page(deployment: Deployment, held: Capacity, remedies: Remedies | None = None, lengths: dict[str, Any] | None = None) -> Page:
    """Budget term by term, what fits in it, and what would."""
    verdict = "" if held.fits else "Does not fit: not one request of this length. "
    headline = [title(deployment), verdict + capacity_line(held, deployment.model.profile.max_position_embeddings)]
    tables = [_budget(held), _cache(held, lengths, deployment.sharding.ranks)]
    if remedies is not None:
        tables.append(_remedies(remedies))
    return Page(headline, tables, warnings=deployment.warnings + held.warnings)


def _budget(held: Capacity) -> Table:
    rows = []
    for term in held.terms:
        spread = f"{format_bytes(term.least)} - {format_bytes(term.most)}" if term.least != term.most else ""
        rows.append([memory_terms.FULL.get(term.name, term.name), format_bytes(term.bytes), spread, term.evidence])
        if term.name == "gpu_memory" and not held.ruling.is_given:
            label, size = held.share.base(term, held.ruling.taken)
            rows.append([label, format_bytes(size), "", "utilisation"])
    columns = (
        Column("per GPU"),
        Column("size", right=True),
        Column("range", right=True, priority=1),
        Column("evidence", priority=2),
    )
    return Table(columns, rows)


def _cache(held: Capacity, lengths: dict[str, Any] | None, ranks: int) -> Table:
    cache = held.kv_bytes_per_sequence
    rows = [
        ["KV bytes per token per GPU (slope)", f"{format_number(held.kv_bytes_per_token_per_gpu)} B"],
        ["state per sequence per GPU", format_bytes(held.state_bytes_per_sequence_per_gpu)],
        [
            f"one request of {held.max_model_len:,} tokens, ideal",
            format_bytes(cache["ideal"]) + (" on all GPUs" if ranks > 1 else ""),
        ],
        ["  reserved in blocks", format_bytes(cache["reserved"])],
        ["  read per decode step", format_bytes(cache["read_per_step"])],
        ["block", f"{held.block_tokens:,} tokens, {held.blocks:,} blocks"],
        ["KV cache size (as the engine prints it)", f"{held.kv_tokens:,} tokens{_of_each(held)}"],
    ]
    if held.printed:
        rows.append(["printed at start-up", ", ".join(figure_text(f) for f in held.printed)])
    if held.max_num_seqs:
        limits = f"max_num_seqs {held.max_num_seqs:,}, max_num_batched_tokens {held.max_num_batched_tokens or 0:,}"
        rows.append(["limits", limits + _of_each(held)])
    if lengths:
        means = f"{lengths['mean_input_tokens']:,.0f} + {lengths['mean_output_tokens']:,.0f} tokens"
        at_mean, at_full = (
            "unbounded" if n is None else f"{n:,.1f}" for n in (lengths["concurrency_mean"], lengths["concurrency_peak"])
        )
        rows.append([f"requests of these lengths (mean {means})", f"{at_mean} at their mean context"])
        rows.append(["", f"{at_full} all at their full length"])
    return Table((Column("cache"), Column("")), rows)


def _of_each(held: Capacity) -> str:
    """What an engine says of one data-parallel rank where a replica has several."""
    return f", on each of {held.data_ranks} data-parallel ranks" if held.data_ranks > 1 else ""


def figure_text(figure: Figure) -> str:
    """``cells 4,096``, ``keys 256.0 MiB``."""
    value = format_bytes(figure.value) if figure.unit == "bytes" else f"{figure.value:,.0f}"
    return f"{_FIGURES.get(figure.name, figure.name)} {value}"


def _remedies(found: Remedies) -> Table:
    """Each remedy alone, the rest as it is."""
    gpus = None
    if split := found.gpus:
        sizes = (("-tp", split.tensor), ("-pp", split.pipeline), ("-dp", split.data))
        cut = [f"{name} {size}" for name, size in sizes if size > 1] or ["-tp 1"]
        gpus = f"{split.gpus} ({' '.join(cut)})"
    requests = "unbounded requests" if found.requests is None else format_count(found.requests, "request")
    context = "any length" if found.context is None else f"{found.context:,}"
    is_held = f"{requests} of {found.length:,} tokens, or {found.wanted:,} of {context}"
    rows = [["as it is", is_held]]
    if found.sequence_limit is not None and found.sequence_limit < found.wanted:
        most = "more than the engine can run" if found.max_num_seqs is None else f"{found.max_num_seqs:,}"
        rows = [
            ["as it is", f"the engine runs at most {found.sequence_limit:,} at once"],
            ["memory holds", is_held],
            ["--max-num-seqs, with any of these", most],
        ]
    rows += [
        ["--gpu-memory-utilization", f"{found.gpu_memory_utilization:g}" if found.gpu_memory_utilization else "not enough"],
        ["GPUs", gpus or "not within reach"],
        ["--kv-cache-dtype", found.kv_cache_dtype or "none is enough"],
        ["--quantization", found.quantization or "none is enough"],
    ]
    answer = "fits" if found.fits else "does not fit"
    return Table((Column(f"{format_count(found.wanted, 'request')} of {found.length:,} tokens"), Column(answer, right=True)), rows)


def record(held: Capacity, remedies: Remedies | None = None, lengths: dict[str, Any] | None = None) -> dict[str, Any]:
    """``results`` of ``capacity``."""
    found = capacity_record(held)
    if held.printed:
        found["printed"] = [{"name": f.name, "value": f.value, "unit": f.unit} for f in held.printed]
    if remedies is not None:
        found |= {"concurrency_fits": remedies.fits, "to_fit": _remedies_record(remedies)}
    return found | ({"lengths": lengths} if lengths else {})


def _remedies_record(found: Remedies) -> dict[str, Any]:
    """What would hold the requests that were asked for."""
    split = found.gpus
    return {
        "concurrency": found.wanted,
        "max_model_len": found.length,
        "fits": found.fits,
        "too_large": found.too_large,
        "requests": found.requests,
        "context_tokens": found.context,
        "sequence_limit": found.sequence_limit,
        "max_num_seqs": found.max_num_seqs,
        "gpu_memory_utilization": found.gpu_memory_utilization,
        "gpus": split and split.gpus,
        "tensor_parallel_size": split and split.tensor,
        "pipeline_parallel_size": split and split.pipeline,
        "data_parallel_size": split and split.data,
        "kv_cache_dtype": found.kv_cache_dtype,
        "quantization": found.quantization,
    }
