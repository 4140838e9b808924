"""A plan as a page: the best answers and their limits, the launch command, why cheaper ones fail, the front."""

from __future__ import annotations

from collections.abc import Callable

from calc.report.estimate import spread
from calc.report.table import Column, Page, Table
from calc.serving.launch.command import Launch, launch
from calc.serving.load.answer import Answer
from calc.serving.load.objectives import Shortfall
from calc.serving.load.option import Option
from calc.serving.plan import instances
from calc.serving.plan.apart import Apart
from calc.serving.plan.front import Point, front
from calc.serving.plan.reasons import Concession, Failure, cheaper_failures, compromise, concessions, fewest_gpus, nearest_misses
from calc.serving.plan.search import Plan, Question
from calc.units import format_bytes, format_count, format_number, format_rate, format_seconds

_OBJECTIVES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end to end"}
_LIMITS = _OBJECTIVES | {"kv_cache": "KV cache", "batch_limit": "sequences", "prefill": "prefill"}
_OPTIONS = {
    "ttft_s": "--ttft-slo", "tpot_s": "--tpot-slo", "e2e_s": "--e2e-slo", "request_rate": "--request-rate",
    "concurrency": "--concurrency", "max_gpus": "--max-gpus",
}  # fmt: skip
#: Headings of the answers by what was asked for.
_ORDER = {
    "cost": "Cheapest first",
    "gpus": "Fewest GPUs first",
    "tpot": "Fastest token first",
    "ttft": "Fastest first token first",
    "throughput": "Highest throughput first",
}
_UNKNOWN = "-"
#: Digits that tell any two figures apart that a plan does.
_MOST_DIGITS = 12
#: How sure waits are (docs/accuracy-speed.md, time to first token under load).
WAITS = "TTFT of a number of users: expected where they come by themselves, at its high end where all ask at once."
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
        tables += [_answers(found), _launch(found.answers[0]), _details(found)]
        cheaper = cheaper_failures(found)
        if cheaper:
            less = "the next cheaper ones" if question.goal == "cost" else "fewer GPUs"
            tables.append(_failures(cheaper, f"Why {less} fail"))
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
    known = (("TP", sharding.tensor), ("PP", sharding.pipeline), ("DP", sharding.data_ranks), ("DCP", sharding.decode_context))
    sizes = [f"{name} {size}" for name, size in known if size > 1]
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
    formats += [f"at most {format_count(memory.max_num_seqs, 'sequence')}"] if memory.max_num_seqs else []
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
    paid = instances.paid_gpus(best.option, best.gpus)
    idle = f" of {paid} that are paid for" if paid > best.gpus else ""
    return f"{best.gpus} GPU{'s' if best.gpus > 1 else ''}{idle}{bill}: {label(best.option, best.replicas)}"


def asked(question: Question) -> str:
    """The question in one sentence."""
    traffic, demand = question.traffic, question.demand
    model = question.model.profile.name
    if demand.request_rate is not None:
        load = f"{format_rate(demand.request_rate)} (headroom {demand.headroom:.0%})"
    elif demand.concurrency is not None:
        load = f"{format_count(demand.concurrency, 'user')} at once"
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
    return _UNKNOWN if value is None else f"{value:,.2f}" if 1 <= value < 1e9 else format_number(value, 3)


def _in_flight(found: Answer) -> float:
    """Requests in flight on all replicas: users are dealt out to them, and the busiest may have one more than others."""
    return found.option.rules.demand.concurrency or found.replicas * found.in_flight


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
        Column("limited by"),
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
                f"{format_number(_in_flight(a), 3)} of {a.replicas * a.batch_limit:,}",
                f"{format_number(a.sustainable_rate, 3)}/s",
                reason(a.limited_by, beyond=True),
            ]
        )
    known = [i for i in range(len(columns)) if any(row[i] != _UNKNOWN for row in rows)]  # no price, no columns of money
    title = _ORDER[found.question.goal] + _of_different_providers(found)
    return Table(tuple(columns[i] for i in known), [[row[i] for i in known] for row in rows], title)


def _of_different_providers(found: Plan) -> str:
    """What the heading adds where an order by cost rests on prices of several providers."""
    differ = any(code == "prices_differ" for code, _ in found.warnings)
    return ", by prices of different providers" if differ and found.question.goal == "cost" else ""


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


def _details(found: Plan) -> Table:
    best = found.answers[0]
    rows = [
        ["TTFT", spread(best.ttft_s)],
        ["TPOT", f"{spread(best.tpot_s)}; longest gap {format_seconds(best.longest_step_s)}"],
        ["end to end", spread(best.e2e_s)],
        ["output tokens/s", f"{format_number(best.output_tokens_per_s, 4)} under this load"],
        ["bottleneck", f"decode {best.decode_bound}, prefill {best.prefill_bound}"],
        ["memory", f"room for {format_count(round(best.option.room), 'request')} of mean length per replica"],
    ]
    rows += _sold(found)
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


def _sold(found: Plan) -> list[list[str]]:
    """What the GPUs are sold as, where they do not come one by one."""
    best = found.answers[0]
    sold, parent = instances.instance(best.option), best.deployment.hardware.profile.parent
    if sold is not None:
        idle, enough = instances.paid_gpus(best.option, best.gpus) - best.gpus, fewest_gpus(found, best)
        said = f"{sold.whole(best.gpus):,} x {sold.name} of {sold.gpus} GPUs" + (f", {idle:,} idle" if idle else "")
        return [["sold as", said + (f"; {enough:,} GPU{'s' if enough > 1 else ''} would do" if enough < best.gpus else "")]]
    share = instances.sold_as(best.deployment.hardware.profile)
    if share is not None and best.option.price and best.option.price.source != instances.GIVEN and best.gpus % share.gpus:
        return [["sold as", f"{share.name} of {share.gpus} GPUs, billed by the GPU here (--whole-instances)"]]
    if parent is not None and best.gpus % parent.count:
        unpaid = ", not in the bill" if best.usd_per_hour is not None else ""
        return [["sold as", f"{parent.name} of {parent.count}: {-best.gpus % parent.count} idle{unpaid}"]]
    return []


def reason(shortfall: Shortfall, *, beyond: bool = False) -> str:
    """What lacks, in words; ``beyond``: what would lack with one more step of load."""
    found, limit = shortfall.found, shortfall.limit
    if beyond:
        return _LIMITS.get(shortfall.kind, shortfall.kind)
    if shortfall.kind in _OBJECTIVES:
        least = " at least" if shortfall.because == "any load" else ""
        return f"{_OBJECTIVES[shortfall.kind]}{least} {' > '.join(told_apart(format_seconds, found, limit))}"
    if shortfall.kind == "weights":
        return f"weights and activations {' > '.join(told_apart(format_bytes, found, limit, 4))} per GPU"
    few = " of ".join(told_apart(format_number, found, limit))
    return {
        "kv_cache": f"KV cache for {few} requests",
        "batch_limit": f"max_num_seqs lets {few} requests run",
        "request_rate": f"carries {few} requests/s, headroom left free"
        + (f", limited by {_LIMITS[shortfall.because]}" if shortfall.because else ""),
    }.get(shortfall.kind, shortfall.kind)


def told_apart(form: Callable[[float, int], str], found: float, limit: float, digits: int = 3) -> tuple[str, str]:
    """Both figures in the fewest significant digits, ``digits`` or more, in which they differ."""
    while digits < _MOST_DIGITS and f"{found:.{digits}g}" == f"{limit:.{digits}g}":
        digits += 1
    return form(found, digits), form(limit, digits)


def _failures(failures: list[Failure], title: str) -> Table:
    columns = (Column("deployment"), Column("GPUs", right=True), Column("USD/h", right=True), Column("fails because"))
    rows = [
        [label(f.option, f.replicas), f"{f.gpus:,}", money(f.usd_per_hour), "; ".join(map(reason, f.shortfalls))] for f in failures
    ]
    return Table(columns, rows, title)


def _concessions(found: list[Concession], title: str) -> Table:
    rows = []
    for c in found:
        form, digits = (format_seconds, 3) if c.objective in _OBJECTIVES else (format_number, 4)
        rows.append([_OPTIONS[c.objective], *told_apart(form, c.asked, c.needed, digits), label(c.option, c.replicas)])
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
        if found.question.demand.closed:
            notes.append(WAITS)
        if found.answers[0].token_cost is not None:
            notes.append(COST)
    counts = found.counts
    notes.append(f"{format_count(counts.examined, 'deployment')} looked at, {counts.fit:,} fit, {counts.meet:,} meet everything.")
    return notes
