"""``roofcast estimate``: the main job on one screen."""

from __future__ import annotations

from typing import Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served


@opt.takes(opt.DEPLOYMENT, served.SPECULATION, opt.WORK, served.LOAD, opt.OUTPUT, opt.VERBOSE, opt.PICTURE, opt.EXPLAIN)
def estimate(model: opt.MODEL, hardware: opt.HARDWARE, **options: Any) -> None:
    """Prefill, decode, request latency, memory and capacity of a deployment, and what limits each."""
    import calc
    from calc.commands import output

    workload = opt.workload(options)
    deployment = calc.deploy(model, hardware, opt.deployment_options(options), options.get("profiles_dir"))
    output.settled(options, deployment, workload)
    draft = served.draft(options, deployment)
    demand = served.demand(options)
    result = calc.estimate_deployment(deployment, workload, draft, demand)

    from calc.report import estimate as report
    from calc.report import explain, pictures, records, table

    output.emit(
        options,
        document=lambda: records.document(
            "estimate", deployment, workload, records.estimate_record(result), result.warnings, draft, demand
        ),
        page=lambda: report.page(deployment, result),
        rows=lambda: [table.flatten(records.inputs(deployment, workload) | records.estimate_record(result))],
        picture=lambda: pictures.estimate(deployment, result) if result.fit.fits else None,
        explanation=lambda: explain.estimate(deployment, result),
    )
    if not result.holds:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(estimate)
