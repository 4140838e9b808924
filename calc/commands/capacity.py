"""``roofcast capacity``: does it fit, and how many requests."""

from __future__ import annotations

from typing import Any

import typer

from calc.commands import options as opt

_GATES = (
    opt.text("concurrency", "--concurrency", help="Requests that must fit at once (with --require-fit).", metavar="N"),
    opt.flag("require_fit", "--require-fit", help="Exit 1 when it does not fit."),
)


@opt.takes(_GATES, opt.DEPLOYMENT, opt.OUTPUT)
def capacity(model: opt.MODEL, hardware: opt.HARDWARE, **options: Any) -> None:
    """Weights, KV cache (ideal, reserved, read per step), tokens, blocks, concurrency and longest context, by the engine's law."""
    import calc
    from calc import units
    from calc.commands import output

    wanted = options.get("concurrency")
    concurrency = None if wanted is None else units.parse_count(wanted, "--concurrency")
    deployment = calc.deploy(model, hardware, opt.deployment_options(options), options.get("profiles_dir"))
    output.notices(options, deployment.model, deployment.hardware)
    held = calc.capacity_deployment(deployment)

    from calc.report import capacity as report
    from calc.report import records, table

    record = records.capacity_record(held)
    if concurrency is not None:
        record["concurrency_fits"] = held.max_concurrency >= concurrency
    warnings = deployment.warnings + held.warnings
    output.emit(
        options,
        document=lambda: records.document("capacity", deployment, None, record, warnings),
        page=lambda: report.page(deployment, held),
        rows=lambda: [table.flatten(deployment.inputs | record)],
    )
    if options.get("require_fit") and not (held.fits and record.get("concurrency_fits", True)):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(capacity)
