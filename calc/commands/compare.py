"""``roofcast compare``: two deployments side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served

_SIDE = "A deployment in quotes: 'MODEL HARDWARE [options]'."


@opt.takes(opt.WORK, served.LOAD, opt.PROFILES_DIR, opt.OUTPUT, opt.VERBOSE)
def compare(
    one: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    two: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    **options: Any,
) -> None:
    """Two deployments side by side: each result, its ratio, and what moved most. Options outside the quotes hold for both."""
    import calc
    from calc.commands import output
    from calc.report import compare as report
    from calc.report import records
    from calc.serving.compare import compare as compare_estimates

    shared = {p.name: options.get(p.name) for p in (*opt.WORK, *served.LOAD, *opt.PROFILES_DIR)}
    told = {name: options.get(name) for name in ("quiet", "verbose")}
    sides = []
    for side in (one, two):
        model, hardware, own = _parse(side)
        given = own | {k: v for k, v in shared.items() if own.get(k) is None}
        deployment = calc.deploy(model, hardware, opt.deployment_options(given), given["profiles_dir"])
        draft = served.draft(given, deployment)
        workload = opt.workload(given)
        output.settled(given | told, deployment, workload)
        sides.append((deployment, calc.estimate_deployment(deployment, workload, draft, served.demand(given))))
    (first, a), (second, b) = sides
    comparison = compare_estimates(a, b, (first.sharding.ranks, second.sharding.ranks))
    inputs = {"one": records.inputs(first, a.workload), "two": records.inputs(second, b.workload)}
    profiles = [first.model, first.hardware, second.model, second.hardware]
    output.emit(
        options,
        document=lambda: records.envelope("compare", inputs, profiles, report.record(comparison), a.warnings + b.warnings),
        page=lambda: report.page(first, second, comparison, a.warnings + b.warnings),
        rows=lambda: report.rows(comparison),
    )
    if not (a.holds and b.holds):
        raise typer.Exit(1)


@opt.takes(opt.DEPLOYMENT, served.SPECULATION, opt.WORK, served.LOAD)
def _side(model: opt.MODEL, hardware: opt.HARDWARE, **options: Any) -> None:
    """What one side can say: how the answer is written is said once, outside the quotes."""


def _parse(side: str) -> tuple[str, str, dict[str, Any]]:
    import shlex

    from calc.errors import UsageError

    try:
        words = shlex.split(side)
    except ValueError as error:
        raise UsageError(
            f"cannot read {side!r}: {str(error).lower()}", "close every quote of the side: 'MODEL HARDWARE [options]'"
        ) from error
    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": []})
    app.command()(_side)
    given = dict(typer.main.get_command(app).make_context("roofcast compare", words).params)
    return given.pop("model"), given.pop("hardware"), given


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)
