"""``roofcast sweep``: the cross product of comma lists, one row a point."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served

if TYPE_CHECKING:
    from calc.serving.speculation import Drafting
    from calc.serving.sweep.grid import WorkAxes

_MODELS = Annotated[str, typer.Argument(metavar="MODEL,...", help="Models, comma-separated.")]
_HARDWARE = Annotated[str, typer.Argument(metavar="HARDWARE,...", help="Devices, comma-separated.")]
_FORMAT = opt.text("format_", "--format", "-f", help="table, csv, jsonl, markdown or parquet.", metavar="FORMAT")
_OUTPUT = tuple(_FORMAT if p.name == "format_" else p for p in opt.OUTPUT if p.name != "json_")
_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".md": "markdown", ".parquet": "parquet", ".arrow": "arrow", ".txt": "table"}
_SINGLE = ("profiles_dir", "efficiency")


@opt.takes(opt.DEPLOYMENT, served.SPECULATION, opt.WORK, served.LOAD, _OUTPUT)
def sweep(models: _MODELS, hardware: _HARDWARE, **options: Any) -> None:
    """Every combination of comma lists and ranges (1..64, 1..512:*2) of any option, one row a point."""
    from calc.commands import lists
    from calc.report import sweep as report
    from calc.serving.sweep import grid as serving

    axes, drafting = _axes(options), served.drafting(options)
    choices: dict[str, list[Any]] = {"model": lists.words(models, "MODEL"), "hardware": lists.words(hardware, "HARDWARE")}
    names = {p.name for p in opt.DEPLOYMENT} - set(_SINGLE)
    for name in (n for n in names if isinstance(options.get(n), str)):
        choices[name] = lists.words(options[name], "--" + name.replace("_", "-"))
    deployments = 1
    for values in choices.values():
        deployments *= len(values)
    serving.check_size(deployments * axes.points)
    wanted = _format(options)
    fixed = {k: v for k, v in options.items() if k in names and k not in choices} | {k: options.get(k) for k in _SINGLE}
    varied = [n for n, values in choices.items() if len(values) > 1 or n in ("model", "hardware")]
    chunks = _chunks(choices, fixed, axes, varied, drafting)
    points = deployments * axes.points
    further = (report.LOAD_COLUMNS if axes.is_loaded else ()) + (report.DRAFT_COLUMNS if drafting else ())
    report.write(_with_progress(chunks, points, options), varied, wanted, options.get("output"), points, further)


def _axes(options: dict[str, Any]) -> WorkAxes:
    from calc.commands import lists
    from calc.serving.sweep.grid import WorkAxes

    limits = {"batch_size": (1, opt.MAX_BATCH), "cached_len": (0, opt.MAX_TOKENS)}
    given: dict[str, Any] = {}
    for parameter in opt.WORK:
        text = options.get(parameter.name)
        if text is not None:
            low, high = limits.get(parameter.name, (1, opt.MAX_TOKENS))
            given[parameter.name] = lists.counts(text, "--" + parameter.name.replace("_", "-"), minimum=low, maximum=high)
    return WorkAxes(**given, **_loads(options))


def _loads(options: dict[str, Any]) -> dict[str, Any]:
    """Loads to ask about: users, or requests per second."""
    from calc import units
    from calc.commands import lists
    from calc.errors import UsageError

    users, rates = options.get("concurrency"), options.get("request_rate")
    if users is not None and rates is not None:
        raise UsageError("--request-rate and --concurrency contradict each other", "say one: independent users, or a fixed number")
    if users is not None:
        return {"concurrency": lists.counts(users, "--concurrency", maximum=opt.MAX_BATCH)}
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


def _chunks(
    choices: dict[str, list[Any]], fixed: dict[str, Any], axes: WorkAxes, varied: list[str], drafting: Drafting | None
) -> Iterator[dict[str, Any]]:
    """Columns of each part of the sweep, the varied options of its deployment in front."""
    import calc
    from calc.errors import ProfileError, UnknownNameError, UsageError
    from calc.serving.sweep import grid as serving

    seen: set[str] = set()
    for combination in serving.product(choices):
        head = {name: combination[name] for name in varied}
        given = fixed | {k: v for k, v in combination.items() if k not in ("model", "hardware")}
        try:
            settled = opt.deployment_options(given)
            deployment = calc.deploy(combination["model"], combination["hardware"], settled, fixed.get("profiles_dir"))
            sweep = serving.Sweep(deployment, drafting)
            for columns in sweep.parts(axes):
                yield head | columns | {"note": ""}
        except (UnknownNameError, ProfileError):
            raise
        except (
            UsageError
        ) as error:  # an impossible split or a type the device lacks is a row that says so, not the end of the sweep
            if error.message not in seen:
                seen.add(error.message)
                print(f"notice: {error.message}", file=sys.stderr)
            for part in axes.chunks():
                yield head | serving.unanswered(part) | {"note": error.message}


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
