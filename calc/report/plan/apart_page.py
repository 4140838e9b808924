"""Prefill and decode on replicas of their own, as a part of a plan's page."""

from __future__ import annotations

from calc.report.life import balance
from calc.report.plan.page import label, money
from calc.report.table import Column, Table
from calc.serving.plan.apart import Apart
from calc.serving.plan.search import Plan
from calc.units import format_seconds


def table(found: list[Apart]) -> Table:
    """One row a kind of device, best first."""
    columns = (
        Column("prefill"),
        Column("decode"),
        Column("GPUs", right=True),
        Column("USD/h", right=True),
        Column("TTFT", right=True),
        Column("TPOT", right=True),
        Column("KV transfer", right=True, priority=1),
    )
    rows = [
        [
            label(a.prefill, a.prefill_replicas),
            label(a.decode, a.decode_replicas),
            f"{a.gpus:,}",
            money(a.usd_per_hour),
            format_seconds(a.ttft_s.expected),
            format_seconds(a.tpot_s.expected),
            f"{format_seconds(a.transfer.time_s)}, {format_seconds(a.transfer.exposed_s)} unhidden",
        ]
        for a in found
    ]
    return Table(columns, rows, "Prefill and decode apart")


def compared(found: Plan, separate: list[Apart]) -> str:
    """The best of both ways side by side."""
    if not separate:
        return "Prefill and decode apart: no device with a known network meets the objectives within the GPUs allowed."
    best = separate[0]
    kept = balance(best.prefill_per_decode)
    if not found.answers:
        return f"Apart they meet the objectives that no deployment meets together; {kept}."
    together = found.answers[0]
    if found.question.goal != "gpus" and best.usd_per_hour and together.usd_per_hour:
        times = best.usd_per_hour / together.usd_per_hour
        return f"Prefill and decode apart cost {times:.3g} x what the best deployment costs that does both; {kept}."
    times = best.gpus / together.gpus
    return f"Prefill and decode apart take {times:.3g} x the GPUs of the best deployment that does both; {kept}."
