"""The life of a request as a page and a record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from calc.report.estimate import speculation_rows, spread, title
from calc.report.records import range_record
from calc.report.table import Column, Page, Table
from calc.serving.chunking import ChunkedPrefill
from calc.serving.deployment import Deployment
from calc.serving.estimate import Estimate
from calc.serving.handover import Handover
from calc.serving.life import Life
from calc.serving.request import Workload
from calc.units import format_bytes, format_flops, format_number, format_percent, format_rate, format_seconds

SHOWN = 8
#: Fewer prefill replicas than this for a decode replica are told the other way round.
_FEW = 0.1


def record(life: Life, request: dict[str, Any]) -> dict[str, Any]:
    """``results`` of ``request``: the request's ranges, and expected seconds token by token."""
    return request | {
        "flops": life.flops,
        "kv_cache_bytes": life.kv_cache_bytes,
        "tokens": {
            "token": life.token, "context_len": life.context, "latency_s": life.latency_s, "latency_floor_s": life.floor_s,
            "latency_low_s": life.low_s, "latency_high_s": life.high_s,
        },
        "without_cache": {
            "e2e_s": life.uncached_s,
            "flops": life.uncached_flops,
            "speedup": life.speedup,
            "pays_from_token": life.pays_from,
            "latency_s": life.uncached_latency_s,
        },
    }  # fmt: skip


UNANSWERED: dict[str, Any] = dict.fromkeys(("tokens", "without_cache", "disaggregation", "kv_offload"))


def further(chunked: ChunkedPrefill | None, moved: Handover) -> dict[str, Any]:
    """Further ``results`` of ``request``: the prompt in chunks where asked for, prefill and decode apart, the cache kept by the host."""
    found: dict[str, Any] = {}
    if chunked:
        chunks = [{"new_tokens": c.new, "cached_tokens": c.cached, "time_s": range_record(c.time_s)} for c in chunked.chunks]
        found["chunked_prefill"] = {
            "running_decodes": chunked.decodes,
            "max_num_batched_tokens": chunked.budget,
            "ttft_s": range_record(chunked.ttft_s),
            "whole_prompt_s": range_record(chunked.whole_s),
            "decode_itl_s": range_record(chunked.decode_s),
            "mixed_itl_s": range_record(chunked.mixed_s),
            "chunks": chunks,
        }
    sent, kept = moved.transfer, moved.restore
    found["disaggregation"] = {
        "prefill_per_decode": moved.prefill_per_decode,
        "requests_per_s": moved.requests_per_s,
        "kv_transfer": sent and asdict(sent),
    }
    found["kv_offload"] = kept and asdict(kept) | {
        "restore_s": range_record(kept.restore_s),
        "recompute_s": range_record(kept.recompute_s),
    }
    return found


def page(
    deployment: Deployment, workload: Workload, life: Life, result: Estimate, chunked: ChunkedPrefill | None, moved: Handover
) -> Page:
    """Timeline of tokens, shares, and the cost of life without a cache; what drafts make of it where they are asked for."""
    headline = [
        title(deployment),
        f"batch {workload.batch_size:,}, prompt {workload.input_len:,}, output {workload.output_len:,}: "
        f"{format_seconds(life.total_s)} end to end (expected), decode {format_percent(life.decode_share)}",
    ]
    picks = sorted({round(i * (len(life.token) - 1) / (SHOWN - 1)) for i in range(SHOWN)} | {0, min(1, len(life.token) - 1)})
    longest = max(life.latency_s[i] for i in picks[1:]) if len(picks) > 1 else 1.0
    rows = []
    for i in picks:
        action = "prefill: KV of the whole prompt written" if i == 0 else "decode: KV read, one row appended"
        bar = "" if i == 0 else "#" * max(1, round(20 * life.latency_s[i] / longest))
        rows.append(
            [
                f"{life.token[i]:,}",
                f"{life.context[i]:,}",
                action,
                format_seconds(life.latency_s[i]),
                bar,
                format_seconds(life.uncached_latency_s[i]),
            ]
        )
    columns = (
        Column("token", right=True),
        Column("sees", right=True),
        Column("what happens", priority=2),
        Column("latency", right=True),
        Column("", priority=1),
        Column("without cache", right=True),
    )
    summary = [
        ["prefill (TTFT)", format_seconds(life.prefill_s), format_percent(1 - life.decode_share)],
        ["decode", format_seconds(life.decode_s), format_percent(life.decode_share)],
        ["work", format_flops(life.flops), ""],
        ["KV cache at the end", format_bytes(life.kv_cache_bytes), ""],
        ["without a cache", format_seconds(life.uncached_s), f"{format_number(life.speedup, 3)} x the time"],
        ["  its work", format_flops(life.uncached_flops), f"{format_number(life.uncached_flops / life.flops, 3)} x the work"],
    ]
    pays = f"token {life.pays_from:,}" if life.pays_from else ""
    notes = [
        f"The cache pays from {pays} on." if life.pays_from else "The cache does not pay within this output.",
    ]
    tables = [Table(columns, rows), Table((Column(""), Column("", right=True), Column("", right=True)), summary)]
    if result.speculation:
        tables.append(Table((Column(""), Column("")), speculation_rows(result.speculation), "speculative decoding"))
    if chunked:
        tables.append(_chunks(chunked))
    return Page(headline, tables, [*_moved(moved), *notes], result.warnings)


def _chunks(found: ChunkedPrefill) -> Table:
    """The steps that carry the prompt; long prompts show the first and the last ones."""
    shown = list(enumerate(found.chunks, 1))
    shown = shown if len(shown) <= SHOWN else [*shown[: SHOWN // 2], *shown[-SHOWN // 2 :]]
    rows = [[f"{i:,}", f"{c.new:,}", f"{c.cached:,}", f"{found.decodes:,}", spread(c.time_s)] for i, c in shown]
    rows.append(["TTFT", f"{sum(c.new for c in found.chunks):,}", "", "", spread(found.ttft_s)])
    rows.append(["whole prompt alone", "", "", "", spread(found.whole_s)])
    if found.decodes:
        rows.append(["decodes alone", "", "", f"{found.decodes:,}", spread(found.decode_s)])
    columns = (Column("step"), *(Column(c, right=True) for c in ("new", "cached", "decodes", "time")))
    return Table(columns, rows, f"one prompt in steps of {found.budget:,} tokens")


def balance(prefill_per_decode: float) -> str:
    """How many replicas of one kind keep one of the other busy, told so that the number can be read."""
    if prefill_per_decode < _FEW:
        return f"one prefill replica keeps {format_number(1 / prefill_per_decode, 3)} decode replicas busy"
    return f"{format_number(prefill_per_decode, 3)} prefill replicas keep a decode replica busy"


def _moved(moved: Handover) -> list[str]:
    """Sentences about the cache on its way to and from other places."""
    apart = "prefill makes the only token, nothing is decoded"
    if moved.prefill_per_decode is not None and moved.requests_per_s is not None:
        apart = f"{balance(moved.prefill_per_decode)}, at {format_rate(moved.requests_per_s)} a decode replica"
    lines = [f"Prefill and decode apart: {apart}."]
    sent, kept = moved.transfer, moved.restore
    if sent:
        lines[0] += (
            f" The cache takes {format_seconds(sent.time_s)} over the network, {format_seconds(sent.exposed_s)} of it unhidden."
        )
    if kept:
        lines.append(
            f"A cache kept by the host is back in {format_seconds(kept.restore_s.expected)} "
            f"({format_seconds(kept.restore_s.low)} - {format_seconds(kept.restore_s.high)}); computing it again takes "
            f"{format_seconds(kept.recompute_s.expected)}."
        )
    return lines
