"""One step operator by operator as a page."""

from __future__ import annotations

from calc.operators.attention import score_bytes
from calc.operators.operator import Operator
from calc.report.estimate import refusal, spread, title
from calc.report.table import Column, Page, Table
from calc.serving.critical import CriticalPoints
from calc.serving.deployment import Deployment
from calc.serving.estimate import Roofline
from calc.serving.phase import Phase
from calc.serving.sensitivity import Change
from calc.serving.speculative_round import Round
from calc.units import format_flops, format_number, format_percent, format_seconds, format_traffic

_COLUMNS = (
    Column("operator"),
    Column("layers", priority=5),
    Column("calls", right=True),
    Column("shape", priority=4),
    Column("FLOP", right=True, priority=1),
    Column("bytes", right=True),
    Column("weights", right=True, priority=6),
    Column("activations", right=True, priority=7),
    Column("KV+state", right=True, priority=6),
    Column("network", right=True, priority=8),
    Column("FLOP/B", right=True),
    Column("bound"),
    Column("floor", right=True, priority=3),
    Column("expected", right=True),
    Column("share", right=True),
)


def page(deployment: Deployment, result: Roofline) -> Page:
    """Tables of the asked phases."""
    headline = [title(deployment)]
    if not result.fit.fits:
        headline += ["", *refusal(result.fit, result.workload.batch_size, result.workload.final_context)]
    tables: list[Table] = []
    notes: list[str] = []
    for name, phase in steps(result):
        if phase is not None:
            tables.append(Table(_COLUMNS, [*_rows(phase), _total(phase)], _heading(name, phase, result)))
            notes.append(summary(name, phase))
    if result.sensitivity:
        tables.append(what_would_help(result.sensitivity))
    if result.prefill is not None and (text := score_text(result.prefill)):
        notes.append(text)
    if result.round is not None:
        notes.append(round_text(result.round))
    if result.critical:
        notes.append(critical_text(result.critical))
    notes.append(f"FLOP, bytes and times of one call on all ranks; fusion policy: {deployment.fusion.name}.")
    return Page(headline, tables, notes, result.warnings)


def steps(result: Roofline) -> list[tuple[str, Phase | None]]:
    """The shown steps by name; with drafts those of a speculative round too."""
    found = [("prefill", result.prefill), ("decode", result.decode)]
    return found if result.round is None else [*found, ("draft", result.round.draft), ("verify", result.round.verify)]


def _heading(name: str, phase: Phase, result: Roofline) -> str:
    work = result.workload
    what = f"prompt {work.input_len:,}" if name == "prefill" else f"context {work.decode_context:,}"
    if name == "draft" and result.round is not None:
        what += f", {result.round.drafts} times a round"
    return f"{name}: batch {work.batch_size:,}, {what}, {format_number(phase.work.tokens)} new tokens"


def summary(name: str, phase: Phase) -> str:
    """Time, bound and the three intensities of a step."""
    time = f"{spread(phase.time_s)}, floor {format_seconds(phase.time_s.floor)}" if phase.timed else "no time"
    overlapped = f" (overlapped {format_seconds(float(phase.timed.floor_overlapped_s))})" if phase.timed else ""
    bound = f"{phase.bound}-bound" if phase.bound else "not timed"
    return (
        f"{name}: {time}{overlapped}; {bound}; FLOP/B {format_number(phase.arithmetic_intensity)}, "
        f"weights only {format_number(phase.arithmetic_intensity_weights_only)}, "
        f"weights and KV {format_number(phase.arithmetic_intensity_weights_and_kv)}, ridge {format_number(phase.ridge_point)}; "
        f"compute in use {format_percent(phase.compute_utilization)}, bandwidth {format_percent(phase.bandwidth_utilization)}"
        f"{flow_text(phase)}"
    )


def flow_text(phase: Phase) -> str:
    """How the step is cut over ranks and stages, and what of its messages is hidden; nothing where it is not."""
    found, hidden = phase.flow, phase.timed.hidden_s if phase.timed else None
    text = ""
    if phase.is_cut:
        text += f"; the fullest rank has {format_number(found.rank.tokens)} tokens"
        text += f", stages wait {format_percent(found.idle_share)}" if found.idle_share else ""
    if hidden is not None:
        text += f"; messages behind compute {format_seconds(hidden['expected'])}, at best {format_seconds(hidden['low'])}"
    return text


_CHANGES = {
    "bandwidth": "memory bandwidth x 2",
    "compute": "compute x 2",
    "link": "link x 2",
    "launch": "launch time / 2",
    "kv_cache_format": "KV cache bytes / 2",
}


def what_would_help(sensitivity: dict[str, tuple[Change, ...]]) -> Table:
    """The steps' times if one thing were twice as good."""
    columns = [Column("what would help")]
    for phase in sensitivity:
        columns += [Column(phase, right=True), Column("saves", right=True)]
    found = {phase: {change.what: change for change in changes} for phase, changes in sensitivity.items()}
    first = next(iter(found.values()))
    order = sorted(first, key=lambda what: -max(changes[what].saved for changes in found.values()))
    rows = []
    for what in order:
        row = [_CHANGES[what]]
        for changes in found.values():
            row += [format_seconds(changes[what].time_s.expected), format_percent(max(0.0, changes[what].saved), 3)]
        rows.append(row)
    return Table(tuple(columns), rows, "if one thing were twice as good (expected time)")


def score_text(phase: Phase) -> str | None:
    """What attention would move if it stored its scores."""
    scores = fused = 0.0
    for operator in phase.operators:
        if operator.op_class == "attention" and "sequences" in operator.shape:
            calls = operator.count * operator.ranks
            scores += float(score_bytes(operator)) * calls
            fused += float(operator.bytes) * calls
    if not fused:
        return None
    return (
        f"attention is fused: it moves {format_traffic(fused)}; with fp32 scores stored in memory it would move "
        f"{format_traffic(scores)} more ({format_number((scores + fused) / fused, 3)} x)"
    )


def round_text(found: Round) -> str:
    """What a speculative round takes, and of what."""
    drafted = (
        f"{found.drafts} x {format_seconds(found.draft.time_s.expected)}" if found.draft else "drafts not counted: no layers draft"
    )
    check = format_seconds(found.verify.time_s.expected)
    return f"speculative round: {spread(found.time_s)} = {drafted} + check {check}; --acceptance of estimate gives its tokens"


def critical_text(points: CriticalPoints) -> str:
    """Where decode bends, in words."""
    parts = []
    if points.batch is not None:
        parts.append(f"weights stop ruling decode from {format_number(points.batch, 4)} tokens a step")
    if points.context_kv_equals_weights is not None:
        parts.append(
            f"KV read equals weights read at {format_number(round(points.context_kv_equals_weights))} tokens of context over the batch"
        )
    if points.context_never_compute_bound is not None:
        parts.append(
            f"beyond {format_number(round(points.context_never_compute_bound))} tokens each, decode is memory-bound at any batch"
        )
    return "critical points: " + "; ".join(parts)


def _rows(phase: Phase) -> list[list[str]]:
    rows = []
    for i, operator in enumerate(phase.operators):
        timed = phase.timed.operators[i] if phase.timed else None
        ranks = operator.ranks
        rows.append(
            [
                operator.name,
                operator.layers,
                f"{operator.count:,}",
                shape_text(operator),
                format_flops(float(operator.flops * ranks), 3) if operator.flops else "-",
                _size(operator.bytes * ranks),
                _size(operator.weight_bytes * ranks),
                _size(operator.activation_bytes * ranks),
                _size((operator.kv_read_bytes + operator.kv_write_bytes + operator.state_bytes) * ranks),
                _size(operator.network_bytes * ranks),
                format_number(float(operator.flops / operator.bytes), 3) if operator.flops and operator.bytes else "-",
                timed.bound if timed else "-",
                format_seconds(timed.time_s.floor) if timed and timed.time_s.floor else "-",
                format_seconds(timed.time_s.expected) if timed else "-",
                format_percent(float(phase.share(timed)), 3) if timed else "-",
            ]
        )
    return rows


def _total(phase: Phase) -> list[str]:
    totals = phase.totals
    return [
        "step",
        "",
        "",
        "",
        format_flops(float(totals.flops), 3),
        _size(totals.bytes),
        _size(totals.weight_bytes),
        _size(totals.activation_bytes),
        _size(totals.kv_read_bytes + totals.kv_write_bytes + totals.state_bytes),
        _size(totals.network_bytes),
        format_number(float(phase.arithmetic_intensity), 3),
        phase.bound or "-",
        format_seconds(phase.time_s.floor),
        format_seconds(phase.time_s.expected),
        "100 %" if phase.timed else "-",
    ]


def _size(value: object) -> str:
    return format_traffic(float(value), 3) if value else "-"  # type: ignore[arg-type]


def shape_text(operator: Operator) -> str:
    """The shape of one rank: m x n x k of a product, heads and keys of attention."""
    shape = operator.shape
    if {"m", "n", "k"} <= shape.keys():
        copies = f"{format_number(float(shape['copies']), 4)}x " if "copies" in shape else ""
        return copies + "x".join(format_number(float(shape[k]), 4).replace(",", "") for k in ("m", "n", "k"))
    if "bytes_per_copy" in shape:
        parts = (format_number(float(shape[k]), 4).replace(",", "") for k in ("tokens", "bytes_per_copy"))
        return f"{'x'.join(parts)} to {shape['ranks']} ranks"
    if "pairs" in shape:
        return f"{shape.get('heads')}h {format_number(float(shape['pairs']), 4)} pairs"
    return "x".join(format_number(float(v), 4).replace(",", "") for v in shape.values() if isinstance(v, (int, float)))
