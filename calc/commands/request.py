"""``roofcast request``: the life of one request."""

from __future__ import annotations

from typing import Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served

_CHUNKED = opt.flag(
    "chunked", "--chunked", help="The prompt in chunks of --max-num-batched-tokens, the rest of the batch decoding beside it."
)


@opt.takes(_CHUNKED, opt.DEPLOYMENT, served.SPECULATION, opt.WORK, opt.OUTPUT, opt.VERBOSE, opt.PICTURE)
def request(model: opt.MODEL, hardware: opt.HARDWARE, **options: Any) -> None:
    """The life of a request: TTFT, each token's latency as the context grows, and the cost without a KV cache."""
    import calc
    from calc.commands import output
    from calc.report import estimate as estimate_report
    from calc.report import life as report
    from calc.report import pictures, records, table

    workload = opt.workload(options)
    deployment = calc.deploy(model, hardware, opt.deployment_options(options), options.get("profiles_dir"))
    output.settled(options, deployment, workload)
    draft = served.draft(options, deployment)
    result = calc.estimate_deployment(deployment, workload, draft)
    if not (result.fit.fits and deployment.has_rates):
        empty = records.request_record(result.request, result.speculation) | report.UNANSWERED
        empty |= {"memory": records.fit_record(result.fit)}
        output.emit(
            options,
            document=lambda: records.document("request", deployment, workload, empty, result.warnings, draft),
            page=lambda: estimate_report.page(deployment, result),
            rows=lambda: [table.flatten(empty)],
            picture=lambda: None,
        )
        raise typer.Exit(0 if result.fit.fits else 1)

    from calc.serving.chunking import chunked_prefill
    from calc.serving.handover import handover
    from calc.serving.life import life

    found = life(deployment, workload)
    chunked = chunked_prefill(deployment, workload, result.capacity.max_num_batched_tokens) if options.get("chunked") else None
    moved = handover(deployment, workload)
    record = report.record(found, records.request_record(result.request, result.speculation))
    record |= report.further(chunked, moved) | {"memory": records.fit_record(result.fit)}
    output.emit(
        options,
        document=lambda: records.document("request", deployment, workload, record, result.warnings, draft),
        page=lambda: report.page(deployment, workload, found, result, chunked, moved),
        rows=lambda: [
            {"token": t, "context_len": c, "latency_s": a, "without_cache_s": b}
            for t, c, a, b in zip(found.token, found.context, found.latency_s, found.uncached_latency_s, strict=True)
        ],
        picture=lambda: pictures.request(deployment, workload, found, chunked, result.speculation),
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(request)
