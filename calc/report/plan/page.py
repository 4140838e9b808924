"""A plan as a page: the best answers and their limits, the launch command, why cheaper ones fail, the front."""

from __future__ import annotations

from calc.report.estimate import spread
from calc.report.table import Column, Page, Table
from calc.serving.launch.command import Launch, launch
from calc.serving.load.answer import Answer
from calc.serving.load.objectives import Shortfall
from calc.serving.load.option import Option
from calc.serving.plan.apart import Apart
from calc.serving.plan.front import Point, front
from calc.serving.plan.reasons import Concession, Failure, cheaper_failures, compromise, concessions, nearest_misses
from calc.serving.plan.search import Plan, Question
from calc.units import format_bytes, format_number, format_seconds

_OBJECTIVES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end to end"}
_LIMITS = _OBJECTIVES | {"kv_cache": "KV cache", "batch_limit": "max_num_seqs", "prefill": "prefill"}
_OPTIONS = {
    "ttft_s": "--ttft-slo", "tpot_s": "--tpot-slo", "e2e_s": "--e2e-slo", "request_rate": "--request-rate",
    "concurrency": "--concurrency", "max_gpus": "--max-gpus",
}  # fmt: skip
COST = (
    "USD/Mtok charges the whole bill to the output tokens at this load, idle time included; in + out splits it by time: what prompts add "
    "to the steps is charged to the prompt tokens, cached ones included."
)


def page(found: Plan, separate: list[Apart] | None = None) -> Page:
    """The answer, best first; ``separate`` where disaggregation was asked for."""
    question = found.question
    headline = [verdict(found), asked(question)]
    tables = []
    if found.answers:
        tables += [_answers(found), _launch(found.answers[0]), _details(found.answers[0])]
        cheaper = cheaper_failures(found)
        if cheaper:
            tables.append(_failures(cheaper, "Why the next cheaper ones fail"))
    else:
        tables.append(_failures(nearest_misses(found), "Nearest misses, with all GPUs allowed"))
        alone = concessions(found)
        title = "Which objective would have to give (the others held)" if alone else "What would have to give together"
        tables.append(_concessions(alone or compromise(found), title))
    if separate:
        from calc.report.plan.apart_page import table

        tables.append(table(separate))
    points = front(found)
    if len(points) > 1:
        tables.append(_front(points))
    notes = _notes(found)
    if separate is not None:
        from calc.report.plan.apart_page import compared

        notes.insert(0, compared(found, separate))
    return Page(headline, [t for t in tables if t.rows], notes, found.warnings)


def label(option: Option, replicas: int = 1) -> str:
    """``2 x (TP 4, PP 2) h100-sxm5-80gb, fp8``."""
    deployment = option.deployment
    sharding, inputs = deployment.sharding, deployment.inputs
    sizes = [f"{n} {s}" for n, s in (("TP", sharding.tensor), ("PP", sharding.pipeline), ("DCP", sharding.decode_context)) if s > 1]
    sizes += ["EP"] if sharding.expert_parallel else []
    split = ", ".join(sizes)
    many = (
        f"{replicas} x ({split}) " if split and replicas > 1 else f"{replicas} x " if replicas > 1 else f"{split} " if split else ""
    )
    formats = [str(inputs["quantization"])] if inputs["quantization"] != "as stored" else []
    formats += [f"KV {inputs['kv_cache_dtype']}"] if inputs["kv_cache_dtype"] != deployment.numbers.compute else []
    formats += [str(inputs["engine"])] if inputs["engine"] != "vllm" else []
    memory = deployment.memory
    formats += [f"{memory.max_num_batched_tokens:,} tokens a step"] if memory.max_num_batched_tokens else []
    formats += [f"at most {memory.max_num_seqs:,} sequences"] if memory.max_num_seqs else []
    formats += [f"{option.draft.tokens} draft{'s' if option.draft.tokens > 1 else ''}"] if option.draft else []
    return many + str(inputs["hardware"]) + (", " + ", ".join(formats) if formats else "")


def verdict(found: Plan) -> str:
    """The answer in one sentence."""
    if not found.answers:
        counts = found.counts
        most = found.question.space.max_gpus
        return (
            f"No deployment meets the objectives: {counts.examined:,} looked at, {counts.fit:,} fit in memory; none meets them with up "
            f"to {most:,} GPU{'s' if most > 1 else ''}."
        )
    best = found.answers[0]
    bill = f", {best.usd_per_hour:,.2f} USD/h" if best.usd_per_hour is not None else ""
    return f"{best.gpus} GPU{'s' if best.gpus > 1 else ''}{bill}: {label(best.option, best.replicas)}"


def asked(question: Question) -> str:
    """The question in one sentence."""
    traffic, demand = question.traffic, question.demand
    model = question.model.profile.name
    if demand.request_rate is not None:
        load = f"{format_number(demand.request_rate, 3)} requests/s (headroom {demand.headroom:.0%})"
    elif demand.concurrency is not None:
        load = f"{demand.concurrency:,} user{'s' if demand.concurrency > 1 else ''} at once"
    else:
        load = "as many requests as possible"
    if len(traffic.requests) == 1:
        request = traffic.tail
        lengths = f"{request.input_len:,} + {request.output_len:,} tokens"
    else:
        lengths = (
            f"{format_number(traffic.mean_input, 4)} + {format_number(traffic.mean_output, 4)} tokens on average (latency of the 95th "
            f"percentile: {traffic.tail.input_len:,} + {traffic.tail.output_len:,})"
        )
    cached = f" ({traffic.tail.cached_len:,} cached)" if traffic.tail.cached_len else ""
    limits = ", ".join(f"{_OBJECTIVES[n]} at most {format_seconds(v)}" for n, v in question.objectives.given().items())
    end = "high" if question.conservative else "expected"
    aim = ("maximise " if question.goal == "throughput" else "minimise ") + question.goal
    return f"{model}: {load} of {lengths}{cached}" + (f"; {limits}, judged at {end}" if limits else "") + f"; {aim}"


def money(value: float | None) -> str:
    """USD with two digits behind the point, three significant ones below a dollar."""
    return "-" if value is None else f"{value:,.2f}" if 1 <= value < 1e9 else format_number(value, 3)


def _answers(found: Plan) -> Table:
    columns = (
        Column("deployment"),
        Column("GPUs", right=True),
        Column("USD/h", right=True),
        Column("USD/Mtok", right=True, priority=2),
        Column("TTFT", right=True),
        Column("TPOT", right=True),
        Column("in flight", right=True, priority=3),
        Column("carries", right=True, priority=4),
        Column("limited by", priority=1),
    )
    rows = []
    for a in found.answers:
        tokens = a.token_cost.output_all_in if a.token_cost else None
        rows.append(
            [
                label(a.option, a.replicas),
                f"{a.gpus:,}",
                money(a.usd_per_hour),
                money(tokens),
                format_seconds(a.ttft_s.expected),
                format_seconds(a.tpot_s.expected),
                f"{format_number(a.replicas * a.in_flight, 3)} of {a.replicas * a.batch_limit:,}",
                f"{format_number(a.sustainable_rate, 3)}/s",
                reason(a.limited_by, beyond=True),
            ]
        )
    return Table(columns, rows)


def _launch(answer: Answer) -> Table:
    started = launch(answer.deployment, answer.option.rules.traffic, answer.batch_limit, answer.option.draft)
    each = f", each of {answer.replicas} replicas" if answer.replicas > 1 else ""
    return Table((Column("", whole=True),), [[line] for line in lines(started)], f"Launch{each}")


def lines(started: Launch, width: int = 76) -> list[str]:
    """A command over several lines that a shell reads as one; notes as comments above it."""
    import shlex
    import textwrap

    sign = {"initial_indent": "# ", "subsequent_indent": "# ", "break_long_words": False, "break_on_hyphens": False}
    found = [line for note in started.notes for line in textwrap.wrap(note, width, **sign)]  # type: ignore[arg-type]
    line = ""
    for word in map(shlex.quote, started.words):
        opens = word.startswith("--")
        if line and len(line) + len(word) + (20 if opens else 1) > width:
            found.append(line + " \\")
            line = "   "
        line = f"{line} {word}" if line else word
    return [*found, line] if line else found


def _details(best: Answer) -> Table:
    rows = [
        ["TTFT", spread(best.ttft_s)],
        ["TPOT", f"{spread(best.tpot_s)}; a step with a chunk of prompt {format_seconds(best.longest_step_s)}"],
        ["end to end", spread(best.e2e_s)],
        ["output tokens/s", f"{format_number(best.output_tokens_per_s, 4)} under this load"],
        ["bottleneck", f"decode {best.decode_bound}, prefill {best.prefill_bound}"],
        ["memory", f"room for {best.option.room:,.0f} requests of mean length per replica"],
    ]
    if best.token_cost is not None and best.option.price is not None:
        cost = best.token_cost
        rows.append(
            [
                "USD/Mtok",
                f"{money(cost.output_all_in)} all on output, or {money(cost.input)} in + {money(cost.output)} out "
                f"({money(best.option.price.usd_per_hour)} USD per GPU and hour: {best.option.price.source})",
            ]
        )
    if best.joules_per_output_token is not None:
        rows.append(["energy", f"at most {format_number(best.joules_per_output_token, 3)} J per output token (GPUs at their TDP)"])
    return Table((Column(""), Column("")), rows, "The best one")


def reason(shortfall: Shortfall, *, beyond: bool = False) -> str:
    """What lacks, in words; ``beyond``: what would lack with one more step of load."""
    found, limit = shortfall.found, shortfall.limit
    if shortfall.kind in _OBJECTIVES:
        name = _OBJECTIVES[shortfall.kind]
        least = " at least" if shortfall.because == "any load" else ""
        return name if beyond else f"{name}{least} {format_seconds(found)} > {format_seconds(limit)}"
    if beyond:
        return _LIMITS.get(shortfall.kind, shortfall.kind)
    return {
        "weights": f"weights and activations {format_bytes(found)} > {format_bytes(limit)} per GPU",
        "kv_cache": f"KV cache for {format_number(found, 3)} of {format_number(limit, 4)} requests",
        "batch_limit": f"max_num_seqs lets {format_number(found, 4)} of {format_number(limit, 4)} requests run",
        "request_rate": f"carries {format_number(found, 3)} of {format_number(limit, 3)} requests/s, headroom left free"
        + (f", limited by {_LIMITS[shortfall.because]}" if shortfall.because else ""),
    }.get(shortfall.kind, shortfall.kind)


def _failures(failures: list[Failure], title: str) -> Table:
    columns = (Column("deployment"), Column("GPUs", right=True), Column("USD/h", right=True), Column("fails because"))
    rows = [
        [label(f.option, f.replicas), f"{f.gpus:,}", money(f.usd_per_hour), "; ".join(map(reason, f.shortfalls))] for f in failures
    ]
    return Table(columns, rows, title)


def _concessions(found: list[Concession], title: str) -> Table:
    rows = []
    for c in found:
        form = format_seconds if c.objective in _OBJECTIVES else (lambda v: format_number(float(v or 0), 4))
        rows.append([_OPTIONS[c.objective], form(c.asked), form(c.needed), label(c.option, c.replicas)])
    columns = (Column("objective"), Column("asked", right=True), Column("would have to be", right=True), Column("then met by"))
    return Table(columns, rows, title)


def _front(points: list[Point]) -> Table:
    priced = points[0].usd_per_million_output_tokens is not None
    columns = (
        Column("TPOT", right=True),
        Column("TTFT", right=True, priority=2),
        Column("USD/Mtok" if priced else "tok/s per GPU", right=True),
        Column("in flight", right=True, priority=1),
        Column("one replica"),
    )
    rows = [
        [
            format_seconds(p.tpot_s),
            format_seconds(p.ttft_s),
            money(p.usd_per_million_output_tokens) if priced else format_number(p.output_tokens_per_s_per_gpu, 4),
            format_number(p.in_flight, 4),
            label(p.option),
        ]
        for p in points
    ]
    return Table(
        columns, rows, "Cost against latency, at full load" if priced else "Throughput per GPU against latency, at full load"
    )


def _notes(found: Plan) -> list[str]:
    notes = []
    if found.answers:
        evidence = found.answers[0].tpot_s.evidence
        notes.append(f"Steady state of continuous batching; times: expected (low - high), evidence: {evidence}.")
        if found.answers[0].token_cost is not None:
            notes.append(COST)
    counts = found.counts
    notes.append(f"{counts.examined:,} deployments looked at, {counts.fit:,} fit, {counts.meet:,} meet everything.")
    return notes
