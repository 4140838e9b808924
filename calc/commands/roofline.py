"""``roofcast roofline``: one step operator by operator."""

from __future__ import annotations

from typing import Any

import typer

from calc.commands import options as opt

_PHASE = opt.text("phase", "--phase", help="prefill, decode or both. Default: both.", metavar="PHASE")


@opt.takes(_PHASE, opt.DEPLOYMENT, opt.WORK, opt.OUTPUT, opt.VERBOSE, opt.PICTURE, opt.EXPLAIN)
def roofline(model: opt.MODEL, hardware: opt.HARDWARE, **options: Any) -> None:
    """One step operator by operator: shape, FLOPs, bytes by operand, intensity, bound, time, share."""
    import calc
    from calc.commands import output
    from calc.errors import UsageError, did_you_mean

    phase = options.get("phase") or "both"
    if phase not in ("prefill", "decode", "both"):
        raise UsageError(
            f"unknown phase {phase!r}", did_you_mean(phase, ("prefill", "decode", "both")) or "prefill, decode or both"
        )
    phases = ("prefill", "decode") if phase == "both" else (phase,)
    workload = opt.workload(options)
    deployment = calc.deploy(model, hardware, opt.deployment_options(options), options.get("profiles_dir"))
    output.settled(options, deployment, workload)
    result = calc.roofline_deployment(deployment, workload, phases)

    from calc.report import explain, pictures, records, table
    from calc.report import roofline as report

    record = records.roofline_record(result)
    output.emit(
        options,
        document=lambda: records.document("roofline", deployment, workload, record, result.warnings),
        page=lambda: report.page(deployment, result),
        rows=lambda: [table.flatten({"phase": p} | o) for p, step in report.steps(result) if step for o in record[p]["operators"]],
        picture=lambda: pictures.roofline(deployment, result),
        explanation=lambda: explain.roofline(deployment, result),
    )
    if not result.fit.fits:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(roofline)
