"""``roofcast run``: scenario files with expectations, for CI."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands import serving_options as served

if TYPE_CHECKING:
    from pathlib import Path

    from calc.profiles.catalog import Loaded
    from calc.profiles.reader import Document
    from calc.profiles.scenario import Scenario
    from calc.serving.scenario import Verdict

_UPDATE = opt.flag("update", "--update", help="Write found values in place of broken numbers, and list every change.")
_FORMAT = opt.text("format_", "--format", "-f", help="table, json, csv, markdown, junit or github.", metavar="FORMAT")
_FOR_MACHINES = ("junit", "github")
_OUTPUT = tuple(_FORMAT if p.name == "format_" else p for p in opt.OUTPUT)


@opt.takes(_UPDATE, opt.PROFILES_DIR, _OUTPUT, opt.VERBOSE)
def run(files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Scenario files.")], **options: Any) -> None:
    """Judge scenario files; exit 1 when an expectation is broken."""
    from pathlib import Path

    from calc.commands import output
    from calc.profiles import reader
    from calc.profiles.scenario import ScenarioFile, faults
    from calc.report import records
    from calc.report import scenario as report
    from calc.serving.scenario import limit_faults

    wanted = _format(options)
    verdicts: list[Verdict] = []
    read: dict[tuple[str, str], Loaded[Any]] = {}
    for name in files:
        path = Path(name).expanduser()
        document = reader.parse_yaml(reader.read_bytes(path), name)
        content = reader.convert(document, ScenarioFile, lambda found: faults(found) + limit_faults(found))
        found = [v for i, s in enumerate(content.scenarios) for v in _judged(s, i, document, options.get("profiles_dir"), read)]
        verdicts += found
        if options.get("update") and any(not v.holds for v in found):
            _update(path, found)
    output.notices(options, *read.values())
    if wanted in ("junit", "github"):
        output.write(report.junit(verdicts) if wanted == "junit" else report.github(verdicts), options.get("output"))
    else:
        output.emit(
            options,
            document=lambda: records.envelope("run", {"files": files}, [], {"verdicts": report.rows(verdicts)}, ()),
            page=lambda: report.page(verdicts),
            rows=lambda: report.rows(verdicts),
        )
    if any(not v.holds for v in verdicts):
        raise typer.Exit(1)


def _format(options: dict[str, Any]) -> str:
    """The asked format; a .xml file is JUnit, and GitHub's runner reads its own annotations where nothing is asked."""
    from calc.commands import output
    from calc.errors import UsageError, did_you_mean

    asked, target = options.get("format_"), options.get("output")
    if asked is not None and asked not in (*output.FORMATS, *_FOR_MACHINES):
        known = (*output.FORMATS, *_FOR_MACHINES)
        raise UsageError(f"unknown format {asked!r}", did_you_mean(asked, known) or "known: " + ", ".join(known))
    if asked is None and not options.get("json_"):
        if target is not None and target.lower().endswith(".xml"):
            return "junit"
        if target in (None, "-") and os.environ.get("GITHUB_ACTIONS") == "true":
            return "github"
    return str(asked) if asked in _FOR_MACHINES else output.chosen_format(options)


def _judged(
    scenario: Scenario, index: int, document: Document, profiles_dir: str | None, read: dict[tuple[str, str], Loaded[Any]]
) -> list[Verdict]:
    """Verdicts on one scenario; the profiles it takes are added to ``read``."""
    import msgspec

    import calc
    from calc.errors import RoofcastError
    from calc.report import records
    from calc.serving import scenario as serving

    asked: dict[str, Any] = {"profiles_dir": profiles_dir}
    texts = asked | {
        k: v if isinstance(v, bool) else str(v) for k, v in _given(msgspec.structs.asdict(scenario.deployment)).items()
    }
    if "n_gpu_layers" in texts:
        texts["gpu_layers"] = texts.pop("n_gpu_layers")
    work = {k: str(v) for k, v in _given(msgspec.structs.asdict(scenario.workload)).items()}
    try:
        deployment = calc.deploy(scenario.model, scenario.hardware, opt.deployment_options(texts), profiles_dir)
        read |= {(p.kind, p.name): p for p in (deployment.model, deployment.hardware)}
        estimated = calc.estimate_deployment(deployment, opt.workload(work), served.draft(texts, deployment), served.demand(work))
        results = records.estimate_record(estimated)
    except RoofcastError as error:
        raise serving.as_error(scenario, document.at(("scenarios", index)), error) from error
    return serving.judge(scenario, index, document, results)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None}


def _update(path: Path, verdicts: list[Verdict]) -> None:
    import sys

    from calc.commands import output
    from calc.report import scenario as report

    text, changes, kept = report.updated(path.read_text(encoding="utf-8"), verdicts)
    for line in changes:
        print(f"updated: {line}", file=sys.stderr)
    for line in kept:
        print(f"not updated: {line}", file=sys.stderr)
    if changes:
        output.write(text, str(path))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(run)
