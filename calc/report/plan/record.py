"""A plan as records, rows and inputs; the page is in ``page``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from calc.report.plan.page import page as page
from calc.report.plan.page import verdict as verdict
from calc.report.records import range_record, shortfall_record
from calc.serving.launch.command import Launch, launch
from calc.serving.load.answer import Answer
from calc.serving.load.option import Option
from calc.serving.plan import instances
from calc.serving.plan.apart import Apart
from calc.serving.plan.front import Point, front
from calc.serving.plan.reasons import Concession, Failure, cheaper_failures, compromise, concessions, nearest_misses
from calc.serving.plan.search import Plan, Question
from calc.serving.plan.space import Space


def command(answer: Answer) -> Launch:
    """The launch command of one replica of an answer."""
    return launch(answer.deployment, answer.option.rules.traffic, answer.batch_limit, answer.option.draft)


def inputs(question: Question) -> dict[str, Any]:
    """Everything that was asked, defaults included."""
    traffic, demand = question.traffic, question.demand
    return {
        "model": question.model.name,
        "hardware": [h.name for h in question.hardware],
        "requests": [{"input_len": r.input_len, "output_len": r.output_len, "cached_len": r.cached_len} for r in traffic.requests],
        "judged_request": {
            "input_len": traffic.tail.input_len, "output_len": traffic.tail.output_len, "cached_len": traffic.tail.cached_len,
        },
        "longest_request_tokens": traffic.longest,
        "arrival_cv2": traffic.arrival_cv2,
        **question.objectives.given(),
        "request_rate": demand.request_rate,
        "concurrency": demand.concurrency,
        "headroom": demand.headroom,
        "goal": question.goal,
        "judged_at": "high" if question.conservative else "expected",
        "max_gpus": question.space.max_gpus,
        **_drafting_inputs(question.space),
        "prices_usd_per_gpu_hour": dict(question.prices),
    }  # fmt: skip


def _drafting_inputs(space: Space) -> dict[str, Any]:
    if space.drafting is None:
        return {}
    name = space.drafting.name
    return {
        "speculative_tokens": list(space.speculative_tokens),
        "acceptance": list(space.drafting.acceptance),
        "draft_model": name,
    }


def split_record(option: Option, replicas: int) -> dict[str, Any]:
    """Which deployment."""
    found = option.deployment.inputs
    return {
        "hardware": found["hardware"],
        "replicas": replicas,
        "gpus": replicas * option.ranks,
        **{
            k: found[k]
            for k in (
                "tensor_parallel_size",
                "pipeline_parallel_size",
                "data_parallel_size",
                "enable_expert_parallel",
                "dtype",
                "quantization",
            )
        },
        **{k: found[k] for k in ("kv_cache_dtype", "engine", "engine_version")},
        "decode_context_parallel_size": found["decode_context_parallel_size"],
        "max_num_batched_tokens": option.deployment.memory.max_num_batched_tokens,
        "asked_max_num_seqs": option.deployment.memory.max_num_seqs,
        "speculative_tokens": option.draft.tokens if option.draft else 0,
    }


def answer_record(answer: Answer) -> dict[str, Any]:
    """One deployment that meets everything."""
    tokens = answer.token_cost
    started = command(answer)
    sold = instances.instance(answer.option)
    return {
        **split_record(answer.option, answer.replicas),
        "usd_per_hour": answer.usd_per_hour,
        "price": {"usd_per_gpu_hour": answer.option.price.usd_per_hour, "source": answer.option.price.source}
        if answer.option.price
        else None,
        "paid_gpus": instances.paid_gpus(answer.option, answer.gpus),
        "instance": {"name": sold.name, "gpus": sold.gpus, "count": sold.whole(answer.gpus)} if sold else None,
        "usd_per_million_output_tokens": tokens.output_all_in if tokens else None,
        "usd_per_million_tokens_split": {"input": tokens.input, "output": tokens.output} if tokens else None,
        "joules_per_output_token_at_most": answer.joules_per_output_token,
        "ttft_s": range_record(answer.ttft_s),
        "tpot_s": range_record(answer.tpot_s),
        "e2e_s": range_record(answer.e2e_s),
        "longest_step_s": answer.longest_step_s,
        "in_flight_per_replica": answer.in_flight,
        "max_num_seqs": answer.batch_limit,
        "request_rate": answer.request_rate,
        "sustainable_request_rate": answer.sustainable_rate,
        "output_tokens_per_s": answer.output_tokens_per_s,
        "limited_by": shortfall_record(answer.limited_by),
        "decode_bound": answer.decode_bound,
        "prefill_bound": answer.prefill_bound,
        "kv_cache_room": answer.option.room,
        "launch": str(started) or None,
        "launch_notes": list(started.notes),
    }


def failure_record(failure: Failure) -> dict[str, Any]:
    """A deployment that does not meet everything."""
    return {
        **split_record(failure.option, failure.replicas),
        "usd_per_hour": failure.usd_per_hour,
        "fails": [shortfall_record(s) for s in failure.shortfalls],
    }


def concession_record(concession: Concession) -> dict[str, Any]:
    """What one objective would have to be."""
    asked, needed = concession.asked, concession.needed
    return {"objective": concession.objective, "asked": asked, "needed": needed} | split_record(
        concession.option, concession.replicas
    )


def point_record(point: Point) -> dict[str, Any]:
    """A point of the front: one replica at a load."""
    split = split_record(point.option, 1)
    split.pop("replicas")
    return split | {
        "in_flight": point.in_flight,
        "tpot_s": point.tpot_s,
        "ttft_s": point.ttft_s,
        "output_tokens_per_s_per_gpu": point.output_tokens_per_s_per_gpu,
        "usd_per_million_output_tokens": point.usd_per_million_output_tokens,
    }


def apart_record(found: Apart) -> dict[str, Any]:
    """Prefill and decode on replicas of their own."""
    return {
        "prefill": split_record(found.prefill, found.prefill_replicas),
        "decode": split_record(found.decode, found.decode_replicas),
        "gpus": found.gpus,
        "usd_per_hour": found.usd_per_hour,
        "prefill_per_decode": found.prefill_per_decode,
        "kv_transfer": asdict(found.transfer),
        "ttft_s": range_record(found.ttft_s),
        "tpot_s": range_record(found.tpot_s),
        "e2e_s": range_record(found.e2e_s),
        "in_flight_per_decode_replica": found.in_flight,
        "max_num_seqs": found.batch_limit,
        "sustainable_request_rate": found.sustainable_rate,
    }


def record(found: Plan, separate: list[Apart] | None = None) -> dict[str, Any]:
    """``results`` of ``plan``; ``separate`` where disaggregation was asked for."""
    counts = found.counts
    further = {} if separate is None else {"disaggregated": [apart_record(a) for a in separate]}
    none = not found.answers
    return {
        "meets": not none,
        "answers": [answer_record(a) for a in found.answers],
        **further,
        "next_cheaper": [failure_record(f) for f in cheaper_failures(found)],
        "nearest_misses": [failure_record(f) for f in nearest_misses(found)] if none else [],
        "would_have_to_give": [concession_record(c) for c in concessions(found)] if none else [],
        "would_have_to_give_together": [concession_record(c) for c in compromise(found)] if none else [],
        "front": [point_record(p) for p in front(found)],
        "examined": {"deployments": counts.examined, "fit": counts.fit, "meet": counts.meet},
    }


def rows(found: Plan) -> list[dict[str, object]]:
    """One flat row an answer (CSV)."""
    from calc.report.table import flatten

    return [flatten(answer_record(a)) for a in found.answers]
