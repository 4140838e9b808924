"""``roofcast check``: lints profiles."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from calc.commands import options as opt

_OPTIONS = (
    opt.text("format_", "--format", "-f", help="text, json, github, sarif or junit. Default: text.", metavar="FORMAT"),
    opt.flag("json_", "--json", help="Same as --format json."),
    opt.text("select", "--select", help="Only these rules: ids or families, e.g. C2,M.", metavar="RULES"),
    opt.text("ignore", "--ignore", help="All but these rules.", metavar="RULES"),
    opt.flag("exit_zero", "--exit-zero", help="Exit 0 whatever is found."),
    opt.flag("rules", "--rules", help="List the rules and stop."),
    opt.text("explain", "--explain", help="Explain one rule with its arithmetic and stop.", metavar="RULE"),
    opt.text("output", "--output", "-o", help="Write to a file.", metavar="FILE"),
)
_PATHS = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATHS]...", help="Files or folders. Default: the bundled profiles.", show_default=False),
]


@opt.takes(_OPTIONS)
def check(paths: _PATHS = None, **options: Any) -> None:
    """Lint profiles: schema, plausibility, provenance. Exit 1 with any finding."""
    from pathlib import Path

    from calc.checks import runner
    from calc.commands import output
    from calc.errors import ProfileError
    from calc.report import findings

    if options.get("explain"):
        output.write(runner.explain(options["explain"].strip()).rstrip() + "\n", options.get("output"))
        return
    if options.get("rules"):
        output.write(findings.rule_list(runner.rules()).rstrip() + "\n", options.get("output"))
        return
    wanted = _format(options, findings.FORMATS)
    report = runner.run_checks(
        [Path(p).expanduser() for p in paths] if paths else None, _words(options.get("select")), _words(options.get("ignore"))
    )
    if paths and not report.files:
        raise ProfileError("no profile under " + ", ".join(paths), "name YAML files, or folders that hold some")
    inputs = {"paths": paths or ["bundled"], "select": _words(options.get("select")), "ignore": _words(options.get("ignore"))}
    output.write(findings.render(wanted, report, runner.rules(), inputs), options.get("output"))
    if not report.passed and not options.get("exit_zero"):
        raise typer.Exit(1)


def _words(text: str | None) -> list[str]:
    return [] if text is None else [w.strip() for w in text.split(",") if w.strip()]


def _format(options: dict[str, Any], known: tuple[str, ...]) -> str:
    from calc.errors import UsageError, did_you_mean

    if options.get("json_"):
        return "json"
    asked = options.get("format_")
    if asked is None:
        return "github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text"
    if asked not in known:
        raise UsageError(f"unknown format {asked!r}", did_you_mean(asked, known) or "known: " + ", ".join(known))
    return str(asked)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)
