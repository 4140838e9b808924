"""The main answer as a page: both phases side by side, the request, the memory, and how sure it all is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calc.memory.budget import Capacity
from calc.memory.kv_cache import MAX_CONTEXT
from calc.report import memory_terms
from calc.report.table import Column, Page, Table
from calc.serving.deployment import Deployment
from calc.serving.estimate import Estimate, Fit
from calc.serving.phase import Phase, main_dtype
from calc.serving.speculation import Speculation
from calc.serving.speculative_round import Round
from calc.timing.paths import SIXTEEN_BIT
from calc.timing.step_time import Range
from calc.units import (
    format_bytes,
    format_count,
    format_flops,
    format_number,
    format_percent,
    format_rate,
    format_seconds,
    format_traffic,
)

if TYPE_CHECKING:
    from calc.serving.load.steady_state import ServedLoad


def title(deployment: Deployment) -> str:
    """What is deployed on what, in one line."""
    sharding, inputs = deployment.sharding, deployment.inputs
    split = [
        f"{name} {size}"
        for name, size in (
            ("TP", sharding.tensor),
            ("PP", sharding.pipeline),
            ("DP", sharding.data),
            ("EP", sharding.expert_ranks),
            ("DCP", sharding.decode_context),
        )
        if size > 1
    ]
    scheme = deployment.model.profile.storage.scheme if inputs["quantization"] == "as stored" else None
    weights = f"weights {inputs['quantization']}" + (f" ({scheme})" if scheme else "")
    compute = main_dtype(deployment).removesuffix("_acc16")  # how sums are kept is no format
    formats = f"{compute} compute, {weights}, KV {inputs['kv_cache_dtype']}"
    return (
        f"{deployment.model.profile.name} on {sharding.gpus} x {deployment.hardware.profile.name}"
        + (f" ({', '.join(split)})" if split else "")
        + f": {formats}, {inputs['engine']} {inputs['engine_version']}"
    )


def spread(value: Range, form: object = format_seconds) -> str:
    """``expected (low - high)``."""
    if value.expected is None:
        return "-"
    return f"{form(value.expected)} ({form(value.low)} - {form(value.high)})"  # type: ignore[operator]


def rate_text(value: Range) -> str:
    """``expected (low - high)`` of a rate in tokens per second."""
    return spread(value, lambda v: format_number(float(v), 3))


def page(deployment: Deployment, result: Estimate) -> Page:
    """One screen."""
    work = result.workload
    batch, shown = f"batch {work.batch_size:,}{_each(deployment)}", f"decode shown at context {work.decode_context:,}"
    lengths = f"prompt {format_count(work.input_len, 'token')}" + (f" ({work.cached_len:,} cached)" if work.cached_len else "")
    lengths += f", output {work.output_len:,}"
    headline = [title(deployment), lengths if result.load else f"{batch}, {lengths}, {shown}"]
    if not result.fit.fits:
        headline += ["", *refusal(result.fit, work.batch_size, work.final_context)]
    tables = []
    if result.load:  # what was asked about comes before the batch that runs alone
        tables.append(Table((Column(""), Column("")), load_rows(result.load)))
    tables.append(_phases(deployment, result, f"without that load: {batch}, {shown}" if result.load else None))
    tables.append(Table((Column(""), Column("")), _request_rows(result, deployment.model.profile.max_position_embeddings)))
    evidence = result.request.e2e_s.evidence
    notes = []
    if result.fit.fits and deployment.has_rates:
        notes.append(
            f"Times: expected (low - high), evidence: {evidence}. Nothing beats the floor. Fusion policy: {deployment.fusion.name}."
        )
    return Page(headline, tables, notes, result.warnings)


def _each(deployment: Deployment) -> str:
    """Said where several replicas work apart: every figure is that of one."""
    replicas = deployment.sharding.replicas
    return f" on each of {replicas} replicas (rates and capacity are those of one)" if replicas > 1 else ""


def refusal(fit: Fit, batch_size: int, context: int) -> list[str]:
    """Why there is no speed, and what would fit."""
    sizes = {t.name: t.bytes for t in fit.terms}
    lines = [
        f"Does not fit: {format_bytes(fit.used_bytes_per_gpu)} needed of {format_bytes(fit.capacity_bytes_per_gpu)} per GPU, "
        f"so no speed is given."
    ]
    if fit.too_large == "max_num_seqs":
        return [
            "Does not fit, so no speed is given.",
            f"The engine runs at most {fit.largest_batch or 0:,} of {batch_size:,} requests at once"
            + (f": --max-num-seqs {fit.max_num_seqs} raises that." if fit.max_num_seqs else ", and cannot be told to run more."),
        ]
    if fit.too_large == "weights":
        lines.append(
            f"The weights alone take {format_bytes(sizes['weights'])}: use more GPUs (-tp), a smaller format (-q) or a larger device."
        )
    else:
        lines.append(
            f"The engine fills no more than its share of that. The KV cache of {batch_size:,} x {context:,} tokens needs "
            f"{format_bytes(sizes['kv_cache_needed'])}, {format_bytes(sizes['kv_cache'])} are left for it. "
            f"Largest batch at this length: {fit.largest_batch or 0:,}; "
            f"longest context at this batch: {fit.largest_context or 0:,}."
        )
    if fit.host_stream_s and fit.missing_bytes_per_gpu:
        hidden = f"; steps of {format_number(fit.host_hidden_tokens, 3)} tokens hide it" if fit.host_hidden_tokens else ""
        lines.append(
            f"Weights left in host memory for the missing {format_bytes(fit.missing_bytes_per_gpu)} would cost every step at least "
            f"{format_seconds(fit.host_stream_s)} on the host link{hidden}: --cpu-offload-gb (vLLM, SGLang) answers it."
        )
    return lines


def flow_rows(deployment: Deployment, phases: list[Phase]) -> list[list[str]]:
    """How the step is cut, where a replica has data-parallel ranks or pipeline stages, and what of its messages is hidden."""
    sharding, rows = deployment.sharding, []
    if sharding.is_wide:
        rows.append(["on the fullest rank", *(f"{format_number(p.flow.rank.tokens)} tokens" for p in phases)])
    if sharding.pipeline > 1:
        rows.append(["stages wait", *(format_percent(p.flow.idle_share) for p in phases)])
    hidden = [p.timed.hidden_s if p.timed else None for p in phases]
    if any(h and h["expected"] for h in hidden):
        rows.append(["messages hidden", *(format_seconds(h["expected"] if h else None) for h in hidden)])
    return rows


def _phases(deployment: Deployment, result: Estimate, heading: str | None) -> Table:
    """Both phases side by side; an encoder has only the first."""
    shown = [p for p in (result.prefill, result.decode) if p is not None]
    columns = tuple(Column(c) for c in ("", "prefill", "decode (one step)")[: len(shown) + 1])
    rows = [
        ["time", *(spread(p.time_s) for p in shown)],
        ["  floor", *(format_seconds(p.time_s.floor) for p in shown)],
        ["tokens/s", *(rate_text(p.tokens_per_s) for p in shown)],
        ["bottleneck", *(p.bound or "-" for p in shown)],
        ["intensity (FLOP/B)", *(f"{format_number(p.arithmetic_intensity)}, ridge {format_number(p.ridge_point)}" for p in shown)],
        ["  weights only", *(format_number(p.arithmetic_intensity_weights_only) for p in shown)],
        ["work", *(format_flops(p.totals.flops) for p in shown)],
        ["traffic", *(f"{format_traffic(p.totals.bytes)}: weights {format_traffic(p.totals.weight_bytes)}" for p in shown)],
        *flow_rows(deployment, shown),
        ["compute in use", *(format_percent(p.compute_utilization) for p in shown)],
        ["bandwidth in use", *(format_percent(p.bandwidth_utilization) for p in shown)],
        ["new tokens", f"{format_number(result.prefill.work.tokens)} at once"],
        ["KV cache", f"writes {format_traffic(result.prefill.totals.kv_write_bytes)}"],
        ["what helps", *(_remedy(p) for p in shown)],
    ]
    if result.decode is not None:
        rows[-3].append(f"{format_number(result.decode.work.tokens)} (one per request)")
        rows[-2].append(_kv_action(result.decode))
    return Table(columns, rows, heading)


def _kv_action(decode: Phase) -> str:
    text = f"reads {format_traffic(decode.totals.kv_read_bytes)}, appends {format_traffic(decode.totals.kv_write_bytes)}"
    return text + (f", state {format_traffic(decode.totals.state_bytes)}" if decode.totals.state_bytes else "")


def _remedy(phase: Phase) -> str:
    """What to optimise for a bound, in the field's words."""
    if phase.bound == "compute":
        is_wide = phase.main_dtype in (*SIXTEEN_BIT, "fp32")  # fp8 is of use where the device has it and nothing else is set
        has_fp8 = phase.ceilings.peak("fp8") and not phase.ceilings.paths
        return "faster matmuls, fp8, TP" if is_wide and has_fp8 else "faster matmuls, TP"
    if phase.bound == "network":
        return "faster links, less TP"
    if phase.bound == "memory":
        weights = float(phase.totals.weight_bytes) >= float(phase.totals.kv_read_bytes + phase.totals.state_bytes)
        return "smaller weights, more batch" if weights else "smaller KV, bandwidth"
    return "fewer launches (graphs), more batch" if phase.bound == "overhead" else "-"


#: Terms that a workload takes, in the order of the line that names them.
_USED = ("weights", "kv_cache_needed", "activation", "runtime", "cuda_graphs")


def _request_rows(result: Estimate, longest: int | None) -> list[list[str]]:
    request, fit, held = result.request, result.fit, result.capacity
    rows = []
    if result.fit.fits and request.decode_share is not None:
        rows += [
            ["TTFT", spread(request.ttft_s)],
            ["TPOT", spread(request.tpot_s)],
            ["end to end", f"{spread(request.e2e_s)}, decode {format_percent(request.decode_share)}"],
            ["output tokens/s", rate_text(request.output_tokens_per_s)],
        ]
    if result.speculation:
        rows += speculation_rows(result.speculation)
    elif result.round is not None and result.fit.fits:
        rows += _round_rows(result.round)
    sizes = {t.name: t.bytes for t in fit.terms}
    parts = ", ".join(f"{memory_terms.SHORT[name]} {format_bytes(sizes[name], 3)}" for name in _USED if sizes.get(name))
    rows.append(
        [
            "memory per GPU",
            f"{format_bytes(fit.used_bytes_per_gpu)} of {format_bytes(fit.capacity_bytes_per_gpu)}{held.share.words}",
        ]
    )
    rows.append(["", parts])
    rows.append(["capacity", capacity_line(held, longest)])
    return rows


def _round_rows(found: Round) -> list[list[str]]:
    """What a round of drafts takes where no acceptance says how many tokens it is worth."""
    drafts = f"{format_count(found.drafts, 'draft')} of {format_seconds(found.draft.time_s.expected)}, " if found.draft else ""
    parts = f"{drafts}check {format_seconds(found.verify.time_s.expected)}; --acceptance gives its tokens"
    return [[f"round, {format_count(found.drafts, 'draft')}", spread(found.time_s)], ["", parts]]


def load_rows(load: ServedLoad) -> list[list[str]]:
    """The steady state under a demand in four lines, or why it is not carried."""
    from calc.report.plan.page import reason

    demand, found = load.demand, load.answer
    what = format_count(demand.concurrency, "user") if demand.concurrency else format_rate(demand.request_rate or 0.0)
    each = f" on {load.replicas} replicas" if load.replicas > 1 else ""
    if load.carried is None:
        return [[f"{what}{each}", "not answered: no times are known for this device"]]
    if found is None:
        return [[f"{what}{each}", "not carried: " + "; ".join(map(reason, load.shortfalls))]]
    uneven = demand.concurrency and demand.concurrency % load.replicas
    flight = f"{format_number(found.in_flight, 3)} in flight"
    flight += (" on the busiest replica" if uneven else " a replica") if load.replicas > 1 else ""
    return [
        [f"under {what}{each}", f"{flight}, {format_rate(found.request_rate)}"],
        ["  TTFT", spread(found.ttft_s) + ("; slow end: all ask at once" if (demand.concurrency or 0) > 1 else "")],
        ["  TPOT", f"{spread(found.tpot_s)}; a step with a chunk of prompt {format_seconds(found.longest_step_s)}"],
        [
            "  output tokens/s",
            f"{format_number(found.output_tokens_per_s, 4)}; at most {format_rate(found.sustainable_rate)} "
            f"({reason(found.limited_by, beyond=True)})",
        ],
    ]


def speculation_rows(found: Speculation) -> list[list[str]]:
    """Speculative decoding in three lines; the last names the best number of drafts."""
    if found.speedup is None:
        return [["speculation", "not answered"]]
    draft = found.draft
    gain = f"{format_number(found.speedup, 3)} x as fast as plain decode"
    best = (
        f"best: {format_count(found.best_drafts, 'draft')}, {format_number(found.best_speedup, 3)} x"
        if found.best_drafts
        else "best: no drafts"
    )
    return [
        [f"TPOT, {format_count(draft.tokens, 'draft')}", f"{spread(found.tpot_s)}, {gain}"],
        [
            "",
            f"{draft.name}: {format_number(found.tokens_per_round, 3)} tokens a round; a draft takes "
            f"{format_number(found.draft_cost, 3)}, the check {format_number(found.verify_cost, 3)} decode steps",
        ],
        ["", best],
    ]


def capacity_line(held: Capacity, model_maximum: int | None = None) -> str:
    """How many requests fit, in one line."""
    low, high = held.max_concurrency_low, held.max_concurrency_high
    spread_text = f" ({format_number(low, 3)} - {format_number(high, 3)})" if round(low, 2) != round(high, 2) else ""
    longest = "unbounded" if held.max_context_tokens >= MAX_CONTEXT else f"{held.max_context_tokens:,}"
    beyond = model_maximum is not None and held.max_context_tokens > model_maximum
    longest += f" in memory (the model goes to {model_maximum:,})" if beyond else ""
    requests = f"{format_number(held.max_concurrency, 4)}{spread_text} requests of {held.max_model_len:,} tokens"
    if held.sequence_limit is not None and held.sequence_limit < held.max_concurrency:
        requests = f"memory holds {requests}, the engine runs at most {held.sequence_limit:,}"
    return f"{requests}; longest context {longest}"
