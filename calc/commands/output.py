"""Where answers go: results to standard output or a file, everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calc.errors import NoAnswerError, UsageError, did_you_mean

if TYPE_CHECKING:
    from calc.profiles.catalog import Loaded
    from calc.report.explain.step import Section
    from calc.report.pictures.picture import Picture
    from calc.report.table import Page
    from calc.serving.deployment import Deployment
    from calc.serving.request import Workload

FORMATS = ("table", "json", "csv", "markdown")
PICTURES = {".png": "png", ".svg": "svg", ".html": "html", ".htm": "html"}
_SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".markdown": "markdown", ".txt": "table"}


def chosen_format(options: dict[str, Any]) -> str:
    """The output format: asked for, told by the suffix of ``--output``, or a table."""
    asked = options.get("format_")
    if options.get("json_"):
        _refuse_picture(options, "json")
        if asked not in (None, "json"):
            raise UsageError(f"--json and --format {asked} contradict each other", "leave one of them out")
        return "json"
    if asked is not None:
        if asked not in FORMATS:
            raise UsageError(f"unknown format {asked!r}", did_you_mean(asked, FORMATS) or "known: " + ", ".join(FORMATS))
        _refuse_picture(options, asked)
        return str(asked)
    output = options.get("output")
    if output and output != "-":
        suffix = Path(output).suffix.lower()
        if suffix in PICTURES:
            return PICTURES[suffix]
        if suffix not in _SUFFIXES:
            raise UsageError(
                f"no format is known for {output!r}", "use a suffix of " + ", ".join((*_SUFFIXES, *PICTURES)) + " or --format"
            )
        return _SUFFIXES[suffix]
    return "table"


def _refuse_picture(options: dict[str, Any], asked: str) -> None:
    output = options.get("output")
    if output and Path(output).suffix.lower() in PICTURES:
        raise UsageError(f"{output} names a picture, and {asked} is none", "leave out the format, or name another file")


def emit(
    options: dict[str, Any],
    *,
    document: Callable[[], dict[str, Any]],
    page: Callable[[], Page],
    rows: Callable[[], list[dict[str, object]]],
    picture: Callable[[], Picture | None] | None = None,
    explanation: Callable[[], list[Section]] | None = None,
) -> None:
    """Print or write an answer in the asked format; only that format is made. A command that has a ``picture`` draws it into a file by
    suffix, or below its table with ``--plot``; one that has an ``explanation`` gives it with ``--explain``."""
    from calc.report import records, table

    wanted = chosen_format(options)
    explain = explanation if options.get("explain") else None
    if explain and (wanted == "csv" or wanted in PICTURES.values()):
        raise UsageError(
            f"--explain gives formulas and their values, which {wanted} does not hold", "leave the format out, or ask for json"
        )
    if wanted in PICTURES.values():
        _draw(options, wanted, picture)
        return
    if options.get("plot") and wanted != "table":
        raise UsageError(f"--plot draws in the terminal, which {wanted} does not go with", "draw into a file: -o picture.svg")
    if wanted == "json":
        made_document = document()
        if explain:
            from calc.report.explain import step

            made_document["results"]["explanation"] = step.records(explain())
        content = records.dumps(made_document, plain=options.get("output") in (None, "-") and not _prints_all())
    elif wanted == "csv":
        content = table.csv_text(rows())
    else:
        made = page()
        if explain:
            from calc.report.explain import step

            made.tables.extend(step.tables(explain()))
        to_terminal = options.get("output") in (None, "-")
        bold = to_terminal and table.colour_wanted(bool(options.get("no_color")))
        content = table.markdown(made) if wanted == "markdown" else table.plain(made, bold=bold)
        if options.get("plot") and picture is not None:
            content += "\n" + _in_terminal(picture)
        if not options.get("quiet"):
            for code, message in dict.fromkeys(made.warnings):
                print(table.printable(f"warning [{code}]: {message}"), file=sys.stderr)
    write(content, options.get("output"))


def _prints_all() -> bool:
    """Whether standard output takes every sign."""
    return "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()


_NOTHING = "there is nothing to draw: no time or memory is answered"


def _draw(options: dict[str, Any], kind: str, picture: Callable[[], Picture | None] | None) -> None:
    from calc.report.pictures import draw

    if picture is None:
        raise UsageError(f"this command draws no picture: {options.get('output')}", "use a suffix of " + ", ".join(_SUFFIXES))
    draw.converter()
    made = picture()
    if made is None or not made.panels:
        raise NoAnswerError(_NOTHING, "`roofcast capacity` draws what does not fit; else ask for a deployment that fits")
    write(draw.draw(made, kind, theme(options)), options.get("output"))


def theme(options: dict[str, Any]) -> str:
    """The ground of a picture. Raises UsageError for a name that is none."""
    wanted = str(options.get("theme") or "light")
    if wanted not in ("light", "dark"):
        raise UsageError(f"unknown theme {wanted!r}", did_you_mean(wanted, ("light", "dark")) or "light or dark")
    return wanted


def _in_terminal(picture: Callable[[], Picture | None]) -> str:
    from calc.report import table
    from calc.report.pictures import terminal

    made = picture()
    return terminal.text(made, table.terminal_width()) if made is not None and made.panels else _NOTHING + "\n"


def write(content: str | bytes, output: str | None) -> None:
    """To standard output, or to a file, whole or not at all. Raises UsageError."""
    from calc import files

    if output is None or output == "-":
        sys.stdout.write(content if isinstance(content, str) else content.decode("utf-8"))
        sys.stdout.flush()
        return
    files.write(output, content.encode("utf-8") if isinstance(content, str) else content)


def notices(options: dict[str, Any], *loaded: Loaded[Any]) -> None:
    """Say on standard error what profiles shadow and what an import guessed; with ``--verbose`` what was read, and from where."""
    if options.get("quiet") and options.get("verbose"):
        raise UsageError("--quiet and --verbose contradict each other", "leave one of them out")
    for item in loaded:
        if not options.get("quiet"):
            print("".join(f"notice: {text}\n" for text in item.notices), end="", file=sys.stderr)
        if options.get("verbose"):
            print(f"read: {item.kind} {item.name} from {item.path or 'memory'} (sha256 {item.sha256})", file=sys.stderr)


def settled(options: dict[str, Any], deployment: Deployment, workload: Workload | None = None) -> None:
    """``notices`` of a deployment; with ``--verbose`` also what times rest on, and each default that was taken."""
    notices(options, deployment.model, deployment.hardware)
    if not options.get("verbose"):
        return
    from calc.report import records
    from calc.timing.efficiency import told

    print(f"times: {told(options.get('efficiency'), deployment.setting, deployment.efficiency)}", file=sys.stderr)
    held = deployment.engine.capacity(deployment.question())
    figures = ("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
    taken = records.inputs(deployment, workload) | {name: getattr(held, name) for name in figures}
    for name, value in taken.items():
        option = name.removesuffix("_policy")
        if option in options and options[option] in (None, False) and value is not None:
            print(f"default: {option} {str(value).lower() if isinstance(value, bool) else value}", file=sys.stderr)
