"""Results as the JSON records of the interface: SI base units in key names, no rounding, null for what is not answered."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from calc.memory.budget import Capacity, Term
from calc.serving.deployment import Deployment
from calc.serving.estimate import Estimate, Fit, Roofline
from calc.serving.phase import Phase
from calc.serving.request import Latency, Workload
from calc.serving.speculation import Draft, Speculation
from calc.serving.speculative_round import Round
from calc.timing.efficiency import Efficiency
from calc.timing.step_time import NO_TIME, OperatorTime, Range

if TYPE_CHECKING:
    from calc.serving.load.objectives import Demand, Shortfall
    from calc.serving.load.steady_state import ServedLoad


def range_record(value: Range) -> dict[str, Any]:
    """A time."""
    answered = value.expected is not None
    return {
        "floor": _number(value.floor),
        "low": _number(value.low),
        "expected": _number(value.expected),
        "high": _number(value.high),
        "evidence": value.evidence if answered else None,
    }


def rate_record(value: Range) -> dict[str, Any]:
    """A rate: ``ceiling`` stands in place of the floor."""
    record = range_record(value)
    return {"ceiling": record.pop("floor"), **record}


def _number(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, int):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) and abs(number) < 2**63 else number


def operator_record(phase: Phase, index: int) -> dict[str, Any]:
    """One operator: figures of one call summed over the ranks that run it."""
    operator = phase.operators[index]
    timed: OperatorTime | None = phase.timed.operators[index] if phase.timed else None
    ranks = operator.ranks
    return {
        "name": operator.name,
        "class": operator.op_class,
        "layers": operator.layers,
        "count": operator.count,
        "shape": {k: _number(v) for k, v in operator.shape.items()},
        "compute_dtype": phase.ceilings.dtype_for(operator),
        "weight_format": operator.weight_format or None,
        "flops": _number(operator.flops * ranks),
        "vector_flops": _number(operator.vector_flops * ranks),
        "weight_bytes": _number(operator.weight_bytes * ranks),
        "activation_bytes": _number(operator.activation_bytes * ranks),
        "kv_read_bytes": _number(operator.kv_read_bytes * ranks),
        "kv_write_bytes": _number(operator.kv_write_bytes * ranks),
        "state_bytes": _number(operator.state_bytes * ranks),
        "network_bytes": _number(operator.network_bytes * ranks),
        "arithmetic_intensity": _number(operator.flops / operator.bytes) if operator.bytes else 0.0,
        "bound": timed.bound if timed else None,
        "time_s": range_record(timed.time_s if timed else NO_TIME),
        "share": _number(phase.share(timed)) if timed else None,
        **({"detail": dict(operator.detail)} if operator.detail else {}),
    }


_TOTALS = (
    "flops", "vector_flops", "weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes", "network_bytes",
    "bytes",
)  # fmt: skip


def phase_record(phase: Phase, *, operators: bool) -> dict[str, Any]:
    """A step, summed over the ranks of one replica; ``per_rank`` beside it."""
    totals = {name: _number(getattr(phase.totals, name)) for name in _TOTALS}
    record = {
        "tokens": _number(phase.tokens),
        **totals,
        "fusion_policy": phase.fusion_policy,
        "arithmetic_intensity": _number(phase.arithmetic_intensity),
        "arithmetic_intensity_weights_only": _number(phase.arithmetic_intensity_weights_only),
        "arithmetic_intensity_weights_and_kv": _number(phase.arithmetic_intensity_weights_and_kv),
        "ridge_point": phase.ridge_point,
        "bound": phase.bound,
        "time_s": range_record(phase.time_s),
        "floor_overlapped_s": _number(phase.timed.floor_overlapped_s) if phase.timed else None,
        "tokens_per_s": rate_record(phase.tokens_per_s),
        "compute_utilization": _number(phase.compute_utilization),
        "bandwidth_utilization": _number(phase.bandwidth_utilization),
        "per_rank": {name: _number(getattr(phase.totals, name) / phase.ranks) for name in _TOTALS},
        **_flow_record(phase),
    }
    if operators:
        record["operators"] = [operator_record(phase, i) for i in range(len(phase.operators))]
    return record


def _flow_record(phase: Phase) -> dict[str, Any]:
    """How the step is cut over stages and data-parallel ranks, and what of its messages is hidden; nothing where it is not."""
    found, hidden = phase.flow, phase.timed.hidden_s if phase.timed else None
    if not phase.is_cut and hidden is None:
        return {}
    record = {
        "micro_batches": _number(found.micro_batches),
        "stages_at_once": _number(found.stages_at_once),
        "idle_share": _number(found.idle_share),
        "tokens_of_fullest_rank": _number(found.rank.tokens),
        "requests_of_fullest_rank": _number(found.rank.sequences),
    }
    return {"flow": record | ({"hidden_s": {k: _number(v) for k, v in hidden.items()}} if hidden else {})}


def term_record(term: Term) -> dict[str, Any]:
    """A term of the memory budget."""
    record: dict[str, Any] = {"name": term.name, "bytes": term.bytes, "evidence": term.evidence}
    if term.low is not None or term.high is not None:
        record |= {"low": term.least, "high": term.most}
    return record


def capacity_record(capacity: Capacity) -> dict[str, Any]:
    """What a deployment holds."""
    from calc.memory.kv_cache import MAX_CONTEXT

    return {
        "fits": capacity.fits,
        "engine": capacity.engine,
        "engine_version": capacity.engine_version,
        "max_model_len": capacity.max_model_len,
        "gpu_memory_utilization": capacity.gpu_memory_utilization,
        "max_num_seqs": capacity.max_num_seqs,
        "max_num_batched_tokens": capacity.max_num_batched_tokens,
        "capacity_bytes_per_gpu": capacity.capacity_bytes_per_gpu,
        "weights_bytes_per_gpu": capacity.weights_bytes_per_gpu,
        "activation_bytes_per_gpu": capacity.activation_bytes_per_gpu,
        "runtime_bytes_per_gpu": capacity.runtime_bytes_per_gpu,
        "graph_bytes_per_gpu": capacity.graph_bytes_per_gpu,
        "kv_cache_bytes_per_gpu": capacity.kv_cache_bytes_per_gpu,
        "kv_bytes_per_token_per_gpu": _number(capacity.kv_bytes_per_token_per_gpu),
        "state_bytes_per_sequence_per_gpu": capacity.state_bytes_per_sequence_per_gpu,
        "block_tokens": capacity.block_tokens,
        "blocks": capacity.blocks,
        "kv_tokens": capacity.kv_tokens,
        "max_concurrency": _number(capacity.max_concurrency),
        "max_concurrency_low": _number(capacity.max_concurrency_low),
        "max_concurrency_high": _number(capacity.max_concurrency_high),
        "max_context_tokens": capacity.max_context_tokens if capacity.max_context_tokens < MAX_CONTEXT else None,
        "kv_bytes_per_sequence": {k: _number(v) for k, v in capacity.kv_bytes_per_sequence.items()},
        "terms": [term_record(t) for t in capacity.terms],
    }


def fit_record(fit: Fit) -> dict[str, Any]:
    """Whether a workload fits, and what would."""
    record: dict[str, Any] = {
        "fits": fit.fits,
        "capacity_bytes_per_gpu": fit.capacity_bytes_per_gpu,
        "used_bytes_per_gpu": fit.used_bytes_per_gpu,
        "terms": [term_record(t) for t in fit.terms],
    }
    if not fit.fits:
        record |= {"too_large": fit.too_large, "largest_batch": fit.largest_batch, "largest_context": fit.largest_context}
        record |= {"missing_bytes_per_gpu": fit.missing_bytes_per_gpu, "host_stream_s": fit.host_stream_s}
        record |= {"host_hidden_tokens": fit.host_hidden_tokens, "max_num_seqs": fit.max_num_seqs}
    return record


def request_record(request: Latency, speculation: Speculation | None = None) -> dict[str, Any]:
    """Latency of one request, and with speculative decoding where it was asked for."""
    record: dict[str, Any] = {
        "ttft_s": range_record(request.ttft_s),
        "tpot_s": range_record(request.tpot_s),
        "e2e_s": range_record(request.e2e_s),
        "decode_share": request.decode_share,
        "output_tokens_per_s": rate_record(request.output_tokens_per_s),
    }
    return record if speculation is None else record | {"speculation": speculation_record(speculation)}


def speculation_record(speculation: Speculation) -> dict[str, Any]:
    """A round of speculative decoding."""
    draft = speculation.draft
    return {
        "draft": draft.name,
        "speculative_tokens": draft.tokens,
        "acceptance": list(draft.acceptance),
        "tokens_per_round": speculation.tokens_per_round,
        "draft_s": range_record(speculation.draft_s),
        "verify_s": range_record(speculation.verify_s),
        "round_s": range_record(speculation.round_s),
        "tpot_s": range_record(speculation.tpot_s),
        "e2e_s": range_record(speculation.e2e_s),
        "draft_cost": speculation.draft_cost,
        "verify_cost": speculation.verify_cost,
        "speedup": speculation.speedup,
        "best_speculative_tokens": speculation.best_drafts,
        "best_speedup": speculation.best_speedup,
    }


def shortfall_record(shortfall: Shortfall) -> dict[str, Any]:
    """What lacks: found against limit, in SI units (bytes per GPU, seconds, requests per second, requests)."""
    found: dict[str, Any] = {"what": shortfall.kind, "found": shortfall.found, "limit": shortfall.limit}
    return found | ({"because": shortfall.because} if shortfall.because else {})


def load_record(load: ServedLoad) -> dict[str, Any]:
    """The steady state under a stated demand; times are null where it is not carried."""
    demand, found = load.demand, load.answer
    times = {name: range_record(getattr(found, name) if found else NO_TIME) for name in ("ttft_s", "tpot_s", "e2e_s")}
    return {
        "request_rate": found.request_rate if found else demand.request_rate,
        "concurrency": demand.concurrency,
        "carried": load.carried,
        "replicas": load.replicas,
        **times,
        "longest_step_s": found and found.longest_step_s,
        "in_flight_per_replica": found and found.in_flight,
        "sustainable_request_rate": found and found.sustainable_rate,
        "output_tokens_per_s": found and found.output_tokens_per_s,
        "limited_by": shortfall_record(found.limited_by) if found else None,
        "fails": [shortfall_record(s) for s in load.shortfalls],
    }


def estimate_record(estimate: Estimate) -> dict[str, Any]:
    """``results`` of ``estimate``."""
    load = {} if estimate.load is None else {"load": load_record(estimate.load)}
    return {
        "prefill": phase_record(estimate.prefill, operators=False),
        "decode": phase_record(estimate.decode, operators=False) if estimate.decode else None,
        **_round_record(estimate.round, operators=False),
        "request": request_record(estimate.request, estimate.speculation),
        **load,
        "memory": fit_record(estimate.fit),
        "capacity": capacity_record(estimate.capacity),
    }


def _round_record(found: Round | None, *, operators: bool) -> dict[str, Any]:
    """The steps of a speculative round; nothing where none was asked for."""
    if found is None:
        return {}
    draft = phase_record(found.draft, operators=operators) if found.draft else None
    return {"draft": draft, "verify": phase_record(found.verify, operators=operators), "round_s": range_record(found.time_s)}


def roofline_record(result: Roofline) -> dict[str, Any]:
    """``results`` of ``roofline``."""
    record: dict[str, Any] = {}
    if result.prefill:
        record["prefill"] = phase_record(result.prefill, operators=True)
    if result.decode:
        record["decode"] = phase_record(result.decode, operators=True)
    record |= _round_record(result.round, operators=True)
    if result.critical:
        record["critical"] = {
            "batch": _number(result.critical.batch),
            "context_kv_equals_weights": _number(result.critical.context_kv_equals_weights),
            "context_never_compute_bound": _number(result.critical.context_never_compute_bound),
        }
    if result.sensitivity:
        record["sensitivity"] = {
            phase: [{"change": c.what, "time_s": range_record(c.time_s), "saved": c.saved} for c in changes]
            for phase, changes in result.sensitivity.items()
        }
    return record | {"memory": fit_record(result.fit)}


def envelope(
    command: str, inputs: dict[str, Any], profiles: list[Any], results: dict[str, Any], warnings: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    """The frame of every JSON answer. ``profiles`` are those that were read, with the digest of their content."""
    from calc.version import VERSION

    return {
        "schema": f"roofcast.{command}/1",
        "version": VERSION,
        "inputs": inputs,
        "profiles": [{"kind": p.kind, "name": p.name, "sha256": p.sha256} for p in profiles],
        "results": results,
        "warnings": [{"code": code, "message": message} for code, message in dict.fromkeys(warnings)],
    }


def dumps(document: Any, *, plain: bool = False) -> str:
    """JSON text: readable, no NaN; ``plain`` escapes what is not ASCII."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=plain) + "\n"


def inputs(deployment: Deployment, workload: Workload | None) -> dict[str, Any]:
    """Every resolved input of an answer, defaults included."""
    found = dict(deployment.inputs)
    if workload is not None:
        found |= {
            "batch_size": workload.batch_size,
            "input_len": workload.input_len,
            "output_len": workload.output_len,
            "context_len": workload.decode_context,
            "cached_len": workload.cached_len,
        }
    return found


def document(
    command: str,
    deployment: Deployment,
    workload: Workload | None,
    results: dict[str, Any],
    warnings: tuple[tuple[str, str], ...],
    draft: Draft | None = None,
    demand: Demand | None = None,
) -> dict[str, Any]:
    """The whole JSON answer about a deployment, and its draft where there is one."""
    held = results.get("capacity", results)
    resolved = {name: held[name] for name in _RESOLVED if name in held}
    given = inputs(deployment, workload) | memory_inputs(deployment) | resolved
    read: list[Any] = [deployment.model, deployment.hardware]
    if demand is not None:
        given |= {"request_rate": demand.request_rate, "concurrency": demand.concurrency}
    if isinstance(deployment.efficiency, Efficiency):  # a file, or the documented default
        read.append(deployment.efficiency)
    if draft is not None:
        given |= {"acceptance": list(draft.acceptance), "draft_model": draft.name}
        read += [draft.deployment.model] if draft.deployment and not draft.part_of_model else []
    return envelope(command, given, read, results, warnings)


_RESOLVED = ("engine_version", "max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens")


def memory_inputs(deployment: Deployment) -> dict[str, Any]:
    """Options of the memory budget that were given."""
    options = deployment.memory
    given = {f.name: getattr(options, f.name) for f in fields(options) if getattr(options, f.name) != f.default}
    if options.devices:
        given["devices"] = [device.id for device in options.devices]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
