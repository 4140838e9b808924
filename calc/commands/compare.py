"""``roofcast compare``: two deployments side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served

_SIDE = "A deployment in quotes: 'MODEL HARDWARE [options]'."


@opt.takes(opt.WORK, served.LOAD, opt.PROFILES_DIR, opt.OUTPUT)
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

    shared = {k: v for k, v in options.items() if k in {p.name for p in (*opt.WORK, *served.LOAD)} and v is not None}
    sides = []
    for side in (one, two):
        model, hardware, given = _parse(side)
        given = shared | {k: v for k, v in given.items() if v not in (None, False)}
        deployment = calc.deploy(model, hardware, opt.deployment_options(given), options.get("profiles_dir"))
        draft = served.draft(given | {"profiles_dir": options.get("profiles_dir")}, deployment)
        sides.append((deployment, calc.estimate_deployment(deployment, opt.workload(given), draft, served.demand(given))))
    (first, a), (second, b) = sides
    output.notices(options, first.model, first.hardware, second.model, second.hardware)
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


def _parse(side: str) -> tuple[str, str, dict[str, Any]]:
    """Read one side with the option parser of ``estimate``."""
    import shlex

    from calc.commands.estimate import estimate
    from calc.errors import UsageError

    try:
        words = shlex.split(side)
    except ValueError as error:
        raise UsageError(f"cannot read {side!r}: {error}") from error
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(estimate)
    command = typer.main.get_command(app)
    context = command.make_context(f"compare '{side}'", words)
    given = dict(context.params)
    return given.pop("model"), given.pop("hardware"), given


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)
