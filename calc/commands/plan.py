"""``roofcast plan``: the cheapest deployments that meet service objectives, with their launch commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served

if TYPE_CHECKING:
    from calc.serving.launch.command import Launch
    from calc.serving.plan.search import GoalName, Question

_LISTS = {
    "tensor_parallel_size": "Tensor parallel sizes to try. Default: all that divide and that the links allow.",
    "pipeline_parallel_size": "Pipeline parallel sizes to try.",
    "data_parallel_size": "Sizes of data-parallel attention to try, experts on all ranks; 1: none. Default: all that fit.",
    "quantization": "Weight formats to try, e.g. none,fp8. Default: as stored.",
    "kv_cache_dtype": "KV cache formats to try, e.g. auto,fp8.",
    "engine": "Engines to try: vllm, sglang, llama.cpp, tensorrt-llm and those of estimate. Default: vllm.",
    "max_num_seqs": "Limits of sequences at once to try. Default: the engine's own.",
    "max_num_batched_tokens": "Limits of tokens in a step to try. Default: the engine's own.",
    "speculative_tokens": "Draft tokens a round to try, e.g. 0,2,4; needs --acceptance. Default: none.",
}
_FIXED = tuple(p for p in opt.DEPLOYMENT if p.name not in (*_LISTS, "gpus", "enable_prefix_caching"))
_VARIED = tuple(
    opt.text(p.name, *p.annotation.__metadata__[0].param_decls, help=_LISTS[p.name], metavar="LIST")
    for p in opt.DEPLOYMENT
    if p.name in _LISTS
)
_WANTED = (
    opt.text("hardware", "--hardware", "-H", help="Devices to choose from, or priced: all with a price. Required.", metavar="LIST"),
    opt.text("input_len", "--input-len", "-i", help="Prompt tokens: 2k, or percentiles p50=1k,p95=8k. Default: 1024.", metavar="TOKENS"),
    opt.text("output_len", "--output-len", help="Output tokens: 256, or percentiles. Default: 256.", metavar="TOKENS"),
    opt.text("cached_len", "--cached-len", help="Prompt tokens that all requests share and find cached. Default: 0.", metavar="TOKENS"),
    opt.text("trace", "--trace", help="CSV of requests: input,output and, if known, arrival (s), cached.", metavar="FILE"),
    opt.text("request_rate", "--request-rate", help="Requests per second of independent users.", metavar="RATE"),
    opt.text("concurrency", "--concurrency", help="Users at once, each asking again when answered. Default: 1.", metavar="N"),
    opt.text("ttft_slo", "--ttft-slo", help="Time to first token to meet, e.g. 1s.", metavar="TIME"),
    opt.text("tpot_slo", "--tpot-slo", help="Time per output token to meet, e.g. 40ms.", metavar="TIME"),
    opt.text("e2e_slo", "--e2e-slo", help="Time of a whole request to meet.", metavar="TIME"),
    opt.text("minimise", "--minimise", "--minimize", help="cost, gpus, tpot or ttft. Default: cost.", metavar="FIGURE"),
    opt.text("maximise", "--maximise", "--maximize", help="throughput: with all of --max-gpus.", metavar="FIGURE"),
    opt.flag("conservative", "--conservative", help="Hold objectives at the high end of times and the low end of memory."),
    opt.flag("disaggregated", "--disaggregated", help="Prefill and decode on replicas of their own too; needs --request-rate."),
    opt.text("headroom", "--headroom", help="Share of the sustainable rate left free. Default: 20%.", metavar="SHARE"),
    opt.text("max_gpus", "--max-gpus", help="Most GPUs of an answer. Default: 64.", metavar="N"),
    opt.many("price", "--price", help="Price of a device, ID=USD per GPU and hour; may be repeated.", metavar="ID=USD"),
    opt.flag("whole_instances", "--whole-instances", help="Pay for whole instances where a profile's price is a share of one."),
    opt.text("top", "--top", help="Answers to show. Default: 5.", metavar="N"),
    opt.flag("engine_args", "--engine-args", help="Print only the launch command of the best answer."),
)  # fmt: skip


@opt.takes(_WANTED, _VARIED, served.SPECULATION, _FIXED, opt.OUTPUT, opt.VERBOSE, opt.PICTURE, opt.EXPLAIN)
def plan(model: opt.MODEL, **options: Any) -> None:
    """The cheapest deployments that carry a load within latency objectives, why cheaper ones fail, and how to start them."""
    from calc.commands import output
    from calc.report import explain, pictures, records
    from calc.report.plan import record as report
    from calc.serving.plan.apart import apart
    from calc.serving.plan.search import plan as search

    question = _question(model, options)
    output.notices(options, question.model, *question.hardware)
    found = search(question)
    separate = apart(found) if options.get("disaggregated") else None
    if options.get("engine_args"):
        if not found.answers:
            _say(f"error: {report.verdict(found)}")
            raise typer.Exit(1)
        output.write(_command(report.command(found.answers[0])) + "\n", options.get("output"))
        return
    output.emit(
        options,
        document=lambda: records.envelope(
            "plan", report.inputs(question), [question.model, *question.hardware], report.record(found, separate), found.warnings
        ),
        page=lambda: report.page(found, separate),
        rows=lambda: report.rows(found),
        picture=lambda: pictures.plan(found),
        explanation=lambda: explain.plan(found, separate),
    )
    if not (found.answers or separate):
        raise typer.Exit(1)


def _command(started: Launch) -> str:
    """The command of an engine; what it cannot say goes to standard error. Raises UsageError where the engine has none."""
    from calc.errors import UsageError

    if not started.words:
        why, _, hint = started.notes[0].partition(": choose")
        raise UsageError(why, f"choose{hint}")
    for note in started.notes:
        _say(f"notice: {note}")
    return str(started)


def _say(text: str) -> None:
    import sys

    print(text, file=sys.stderr)


def _question(model: str, options: dict[str, Any]) -> Question:
    from functools import partial

    import calc
    from calc import units
    from calc.commands import lengths, lists
    from calc.errors import UsageError
    from calc.serving import cost
    from calc.serving.load.objectives import HEADROOM, LEAST_S, Demand, Objectives
    from calc.serving.plan.search import Question

    if options.get("hardware") is None:
        hint = "name the devices to choose from: --hardware l40s,h100-sxm5-80gb; --hardware priced tries all whose price is known"
        raise UsageError("plan needs --hardware", hint)
    profiles_dir = options.get("profiles_dir")
    names = _devices(lists.words(options["hardware"], "--hardware"), profiles_dir)
    hardware = {name: calc.load_hardware(name, profiles_dir) for name in names}
    distinct = {h.profile.id: h for h in hardware.values()}
    traffic = lengths.traffic(options.get("input_len"), options.get("output_len"), options.get("cached_len"), options.get("trace"))
    served.one_load(options)
    rate = _number(options, "request_rate", units.parse_rate)
    concurrency = options.get("concurrency")
    goal = _goal(options)
    users = None if concurrency is None else units.parse_count(concurrency, "--concurrency", maximum=1 << 24)
    if rate is None and users is None:
        rate = traffic.request_rate
        users = 1 if rate is None and goal != "throughput" else None
    if rate is not None and rate <= 0:
        raise UsageError("--request-rate must be above 0", "requests per second, like 2.5; leave it out for one user alone")
    if options.get("disaggregated") and options.get("engine_args"):
        raise UsageError(
            "--engine-args prints the command of one kind of replica; --disaggregated has two",
            "leave one of them out",
        )
    if options.get("disaggregated") and rate is None:
        raise UsageError(
            "--disaggregated needs --request-rate", "say how many requests per second prefill and decode have to carry"
        )
    share = options.get("headroom")
    headroom = HEADROOM if share is None else units.parse_fraction(share, "--headroom", maximum=0.95, zero=True)
    limit = partial(units.parse_seconds, minimum=LEAST_S)
    objectives = Objectives(*(_number(options, n, limit) for n in ("ttft_slo", "tpot_slo", "e2e_slo")))
    if objectives.tpot_s is not None and objectives.tpot_s > _SLOWEST_TPOT_S:
        stated = options["tpot_slo"]
        raise UsageError(f"--tpot-slo {stated} allows {objectives.tpot_s:g} s for each token", "name the unit, for example 50ms")
    return Question(
        model=calc.load_model(model, profiles_dir),
        hardware=tuple(distinct.values()),
        traffic=traffic,
        objectives=objectives,
        demand=Demand(rate, users, headroom),
        goal=goal,
        conservative=bool(options.get("conservative")),
        whole_instances=bool(options.get("whole_instances")),
        prices=cost.parse_prices(options.get("price") or [], {n: h.profile.id for n, h in hardware.items()}),
        space=_space(options, traffic.longest),
        top=units.parse_count(options.get("top") or "5", "--top", maximum=1000),
    )


def _devices(words: list[str], profiles_dir: str | None) -> list[str]:
    """Names of devices; ``priced`` stands for all whose profiles have a price."""
    if _PRICED not in words:
        return words
    from calc.report import library

    priced = [row["id"] for row in library.hardware_rows(profiles_dir, sort="price") if row["price_usd_per_hour"]]
    return list(dict.fromkeys(name for word in words for name in (priced if word == _PRICED else [word])))


_PRICED = "priced"
#: Slower tokens are no objective but a number whose unit was left out.
_SLOWEST_TPOT_S = 10.0


def _number(options: dict[str, Any], name: str, parse: Any) -> float | None:
    value = options.get(name)
    return None if value is None else float(parse(value, "--" + name.replace("_", "-")))


def _goal(options: dict[str, Any]) -> GoalName:
    from calc.errors import UsageError, did_you_mean

    least, most = options.get("minimise"), options.get("maximise")
    if least is not None and most is not None:
        raise UsageError("--minimise and --maximise contradict each other", "ask for one figure")
    known: tuple[GoalName, ...] = ("throughput",) if most is not None else ("cost", "gpus", "tpot", "ttft")
    asked = most or least or "cost"
    for name in known:
        if asked.lower() == name:
            return name
    option = "--maximise" if most is not None else "--minimise"
    raise UsageError(f"{option} does not know {asked!r}", did_you_mean(asked, known) or "known: " + ", ".join(known))


def _space(options: dict[str, Any], longest: int) -> Any:
    from calc import units
    from calc.commands import lists
    from calc.errors import UsageError
    from calc.serving.plan.space import Space

    def counts(name: str, minimum: int = 1, maximum: int = 1 << 30) -> Any:
        text = options.get(name)
        what = "--" + name.replace("_", "-")
        return None if text is None else tuple(lists.counts(text, what, minimum=minimum, maximum=maximum))

    def words(name: str, default: Any) -> Any:
        text = options.get(name)
        return (default,) if text is None else tuple(lists.words(text, "--" + name.replace("_", "-")))

    drafting, drafts = served.drafting(options), counts("speculative_tokens", 0, 1024)
    if drafts and any(drafts) and drafting is None:
        raise UsageError(
            "--speculative-tokens needs --acceptance", "the share of drafts that the model keeps, e.g. --acceptance 0.7"
        )
    base = opt.deployment_options({k: v for k, v in options.items() if k not in _LISTS})
    limit = base.memory.max_model_len
    if limit is not None and limit < longest:
        raise UsageError(
            f"--max-model-len {limit:,} is shorter than the longest request of {longest:,} tokens",
            f"at least --max-model-len {longest}",
        )
    return Space(
        base=base,
        quantizations=words("quantization", None),
        kv_cache_dtypes=words("kv_cache_dtype", "auto"),
        engines=words("engine", None),
        max_num_seqs=counts("max_num_seqs") or (None,),
        max_num_batched_tokens=counts("max_num_batched_tokens") or (None,),
        tensor=counts("tensor_parallel_size"),
        pipeline=counts("pipeline_parallel_size"),
        data=counts("data_parallel_size"),
        max_gpus=units.parse_count(options.get("max_gpus") or "64", "--max-gpus", maximum=1 << 16),
        drafting=drafting,
        speculative_tokens=drafts or (0,),
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)
