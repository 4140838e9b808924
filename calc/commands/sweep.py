"""``roofcast sweep``: the cross product of comma lists, one row a point."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served

if TYPE_CHECKING:
    from calc.commands.sweep_axes import Varied
    from calc.serving.speculation import Drafting
    from calc.serving.sweep.grid import WorkAxes

_MODELS = Annotated[str, typer.Argument(metavar="MODEL,...", help="Models, comma-separated.")]
_HARDWARE = Annotated[str, typer.Argument(metavar="HARDWARE,...", help="Devices, comma-separated.")]
_FORMAT = opt.text("format_", "--format", "-f", help="table, csv, jsonl, markdown or parquet.", metavar="FORMAT")
_OUTPUT = tuple(_FORMAT if p.name == "format_" else p for p in opt.OUTPUT if p.name != "json_")
_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".md": "markdown", ".parquet": "parquet", ".arrow": "arrow", ".txt": "table"}


@opt.takes(opt.DEPLOYMENT, served.SPECULATION, opt.WORK, served.LOAD, _OUTPUT, opt.VERBOSE)
def sweep(models: _MODELS, hardware: _HARDWARE, **options: Any) -> None:
    """Every combination of comma lists of any option, and of ranges of any count (1..64, 1..512:*2), one row a point."""
    from calc.commands import output
    from calc.commands.sweep_axes import check_values, varied
    from calc.report import sweep as report
    from calc.serving.sweep import grid as serving

    axes, wanted = _axes(options), _format(options)
    found = varied(models, hardware, options)
    serving.check_size(found.deployments, axes)
    check_values(found)
    output.notices(options, *found.models.values(), *found.hardware.values())
    drafting = served.drafting(options)
    points = found.deployments * axes.points
    further = (report.LOAD_COLUMNS if axes.is_loaded else ()) + (report.DRAFT_COLUMNS if drafting else ())
    chunks = _with_progress(_chunks(found, axes, drafting, options), points, options)
    report.write(chunks, found.heads, wanted, options.get("output"), points, further)


def _axes(options: dict[str, Any]) -> WorkAxes:
    from calc import units
    from calc.commands import lists
    from calc.serving.sweep.grid import WorkAxes

    limits = {"batch_size": (1, units.MAX_BATCH), "cached_len": (0, units.MAX_TOKENS)}
    given: dict[str, Any] = {}
    for parameter in opt.WORK:
        text = options.get(parameter.name)
        if text is not None:
            low, high = limits.get(parameter.name, (1, units.MAX_TOKENS))
            given[parameter.name] = lists.counts(text, opt.written(parameter.name), minimum=low, maximum=high)
    return WorkAxes(**given, **_loads(options))


def _loads(options: dict[str, Any]) -> dict[str, Any]:
    """Loads to ask about: users, or requests per second."""
    from calc import units
    from calc.commands import lists
    from calc.errors import UsageError

    served.one_load(options)
    users, rates = options.get("concurrency"), options.get("request_rate")
    if users is not None:
        return {"concurrency": lists.counts(users, "--concurrency", maximum=units.MAX_BATCH)}
    if rates is None:
        return {}
    found = tuple(units.parse_rate(text, "--request-rate") for text in lists.words(rates, "--request-rate"))
    if min(found) <= 0:
        raise UsageError("--request-rate must be above 0", "leave it out to ask about batches alone")
    return {"request_rate": found}


def _format(options: dict[str, Any]) -> str:
    from pathlib import Path

    from calc.errors import UsageError, did_you_mean

    known = ("table", "csv", "jsonl", "markdown", "parquet", "arrow")
    asked = options.get("format_")
    output = options.get("output")
    if asked is None and output not in (None, "-"):
        suffix = Path(output).suffix.lower()
        if suffix not in _SUFFIXES:
            raise UsageError(f"no format is known for {output!r}", "use a suffix of " + ", ".join(_SUFFIXES))
        return _SUFFIXES[suffix]
    if asked is not None and asked not in known:
        raise UsageError(f"unknown format {asked!r}", did_you_mean(asked, known) or "known: " + ", ".join(known))
    if asked in ("parquet", "arrow") and output in (None, "-"):
        raise UsageError(f"{asked} is binary", "name a file with -o")
    return asked or "table"


def _chunks(found: Varied, axes: WorkAxes, drafting: Drafting | None, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Columns of each part of the sweep, the varied options of its deployment in front. An impossible split or a type the device
    lacks is a row that says so, not the end of the sweep."""
    from itertools import islice

    from calc.errors import UsageError
    from calc.serving.deployment import resolve
    from calc.serving.sweep import grid as serving

    told: set[str] = set()
    for combination in serving.product(found.choices):
        head = {name: str(combination[name]) for name in found.heads}
        settled = opt.deployment_options(found.options(combination))
        answered = 0
        try:
            deployment = resolve(found.models[combination["model"]], found.hardware[combination["hardware"]], settled)
            _tell((f"warning [{code}]: {said}" for code, said in deployment.warnings), told, options)
            for columns in serving.Sweep(deployment, drafting).parts(axes):
                yield head | columns | {"note": ""}
                answered += 1
        except UsageError as error:
            _tell([f"notice: {error.message}"], told, options)
            for part in islice(axes.chunks(), answered, None):
                yield head | serving.unanswered(part) | {"note": error.message}


def _tell(lines: Iterable[str], told: set[str], options: dict[str, Any]) -> None:
    """Say each line once on standard error: many deployments of a sweep share what is to be told of them."""
    for line in lines:
        if line not in told and not options.get("quiet"):
            told.add(line)
            print(line, file=sys.stderr)


def _with_progress(chunks: Iterator[dict[str, Any]], total: int, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A progress bar on a terminal's standard error for long sweeps."""
    if options.get("quiet") or total < 50_000 or not sys.stderr.isatty():
        yield from chunks
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("points", total=total)
        for columns in chunks:
            yield columns
            progress.advance(task, len(columns["fits"]))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sweep)
