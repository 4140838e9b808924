"""Memory and capacity of a deployment as a page."""

from __future__ import annotations

from calc.memory.budget import Capacity
from calc.report.estimate import capacity_line, title
from calc.report.table import Column, Page, Table
from calc.serving.deployment import Deployment
from calc.units import format_bytes, format_number

_LABELS = {
    "gpu_memory": "total memory", "weights": "weights", "activation": "activation peak", "runtime": "runtime (context, NCCL)",
    "cuda_graphs": "CUDA graphs", "kv_cache": "left for the KV cache",
}  # fmt: skip


def page(deployment: Deployment, held: Capacity) -> Page:
    """Budget term by term, then what fits in it."""
    verdict = "" if held.fits else "Does not fit: not one request of this length. "
    headline = [title(deployment), verdict + capacity_line(held)]
    terms = []
    for term in held.terms:
        spread = f"{format_bytes(term.least)} - {format_bytes(term.most)}" if term.least != term.most else ""
        terms.append([_LABELS.get(term.name, term.name), format_bytes(term.bytes), spread, term.evidence])
        if term.name == "gpu_memory":
            usable = int(term.bytes * held.gpu_memory_utilization)
            terms.append([f"usable (x {held.gpu_memory_utilization:g})", format_bytes(usable), "", "utilisation"])
    budget = Table(
        (Column("per GPU"), Column("size", right=True), Column("range", right=True, priority=1), Column("evidence", priority=2)),
        terms,
    )
    cache = held.kv_bytes_per_sequence
    rows = [
        ["KV bytes per token per GPU (slope)", f"{format_number(held.kv_bytes_per_token_per_gpu)} B"],
        ["state per sequence per GPU", format_bytes(held.state_bytes_per_sequence_per_gpu)],
        [f"one request of {held.max_model_len:,} tokens, ideal", format_bytes(cache["ideal"])],
        ["  reserved in blocks", format_bytes(cache["reserved"])],
        ["  read per decode step", format_bytes(cache["read_per_step"])],
        ["block", f"{held.block_tokens:,} tokens, {held.blocks:,} blocks"],
        ["KV cache size (as the engine prints it)", f"{held.kv_tokens:,} tokens"],
    ]
    if held.max_num_seqs:
        rows.append(["limits", f"max_num_seqs {held.max_num_seqs:,}, max_num_batched_tokens {held.max_num_batched_tokens or 0:,}"])
    notes = [f"warning [{code}]: {message}" for code, message in dict.fromkeys(deployment.warnings + held.warnings)]
    return Page(headline, [budget, Table((Column("cache"), Column("", right=True)), rows)], notes)
