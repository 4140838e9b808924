"""The life of a request as a page and a record."""

from __future__ import annotations

from typing import Any

from calc.report.estimate import speculation_rows, title
from calc.report.table import Column, Page, Table
from calc.serving.deployment import Deployment
from calc.serving.estimate import Estimate
from calc.serving.life import Life
from calc.serving.request import Workload
from calc.units import format_bytes, format_flops, format_number, format_percent, format_seconds

SHOWN = 8


def record(life: Life, request: dict[str, Any]) -> dict[str, Any]:
    """``results`` of ``request``: the request's ranges, and expected seconds token by token."""
    return request | {
        "flops": life.flops,
        "kv_cache_bytes": life.kv_cache_bytes,
        "tokens": {"token": life.token, "context_len": life.context, "latency_s": life.latency_s},
        "without_cache": {
            "e2e_s": life.uncached_s,
            "flops": life.uncached_flops,
            "speedup": life.speedup,
            "pays_from_token": life.pays_from,
            "latency_s": life.uncached_latency_s,
        },
    }


def page(deployment: Deployment, workload: Workload, life: Life, result: Estimate) -> Page:
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
        *(f"warning [{c}]: {m}" for c, m in dict.fromkeys(result.warnings)),
    ]
    tables = [Table(columns, rows), Table((Column(""), Column("", right=True), Column("", right=True)), summary)]
    if result.speculation:
        tables.append(Table((Column(""), Column("")), speculation_rows(result.speculation), "speculative decoding"))
    return Page(headline, tables, notes)
