"""``roofcast report``: measured against predicted from run files, or two runs against each other."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from calc.commands import options as opt

_OPTIONS = (
    opt.text(
        "efficiency", "--efficiency", help="Efficiency file to predict with. Default: the run's own ceilings.", metavar="FILE"
    ),
    opt.text("max_error", "--max-error", help="Fail (exit 1) beyond this median error of a class, e.g. 15%.", metavar="SHARE"),
    *(p for p in opt.PICTURE if p.name == "theme"),
)


@opt.takes(_OPTIONS, opt.OUTPUT)
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run file that measure wrote.")],
    other: Annotated[
        str | None, typer.Argument(metavar="[RUN2]", help="A second run to compare with the first.", show_default=False)
    ] = None,
    **options: Any,
) -> None:
    """Measured against predicted; -o FILE.html makes one self-contained page, .png or .svg a picture."""
    from calc import units
    from calc.errors import UsageError

    limit = options.get("max_error")
    share = None if limit is None else units.parse_fraction(limit, "--max-error")
    if other is not None:
        if share is not None or options.get("efficiency"):
            raise UsageError("--max-error and --efficiency judge one run against its predictions", "name one run file")
        _two(run, other, options)
        return
    _one(run, share, options)


def _one(name: str, limit: float | None, options: dict[str, Any]) -> None:
    from pathlib import Path

    from calc.commands import output
    from calc.measure import run_reader
    from calc.measure.comparing.evaluation import evaluate, gate
    from calc.report import records
    from calc.report.measured import html_page, picture, summary
    from calc.timing.efficiency import load_efficiency

    run, content_hash = run_reader.load(Path(name).expanduser())
    efficiency = load_efficiency(options["efficiency"]) if options.get("efficiency") else None
    record = evaluate(run, content_hash, efficiency)
    reasons = gate(record, limit) if limit is not None else []
    wanted, theme = output.chosen_format(options), output.theme(options)
    if wanted == "html":
        output.write(html_page.html(record), options["output"])
    elif wanted in ("png", "svg"):
        output.write((picture.png if wanted == "png" else picture.svg)(record, theme), options["output"])
    else:
        warnings = tuple((w["code"], w["message"]) for w in record["warnings"])
        facts = record | {"gate": {"max_error": limit, "passed": not reasons, "reasons": reasons} if limit is not None else None}
        output.emit(
            options,
            document=lambda: records.envelope("report", {"run": name, "max_error": limit}, [], facts, warnings),
            page=lambda: summary.page(record, reasons),
            rows=lambda: summary.rows(record),
        )
    if reasons:
        for reason in reasons:
            print(f"gate: {reason}", file=sys.stderr)
        raise typer.Exit(1)


def _two(first: str, second: str, options: dict[str, Any]) -> None:
    from pathlib import Path

    from calc.commands import output
    from calc.measure import run_reader
    from calc.measure.comparing.differences import differences
    from calc.report import differences as differences_report
    from calc.report import records

    runs = [run_reader.load(Path(name).expanduser())[0] for name in (first, second)]
    record = differences(*runs)
    if output.chosen_format(options) == "html":
        output.write(differences_report.html(record, (Path(first).name, Path(second).name)), options["output"])
        return
    output.emit(
        options,
        document=lambda: records.envelope("report", {"first": first, "second": second}, [], record, ()),
        page=lambda: differences_report.page(record),
        rows=lambda: differences_report.rows(record),
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)
