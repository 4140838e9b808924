"""Where answers go: results to standard output or a file, everything else to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calc.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from calc.profiles.catalog import Loaded
    from calc.report.explain.step import Section
    from calc.report.pictures.picture import Picture
    from calc.report.table import Page

FORMATS = ("table", "json", "csv", "markdown")
PICTURES = {".png": "png", ".svg": "svg", ".html": "html", ".htm": "html"}
_SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".markdown": "markdown", ".txt": "table"}


def chosen_format(options: dict[str, Any]) -> str:
    """The output format: asked for, told by the suffix of ``--output``, or a table."""
    asked = options.get("format_")
    if options.get("json_"):
        if asked not in (None, "json"):
            raise UsageError(f"--json and --format {asked} contradict each other")
        return "json"
    if asked is not None:
        if asked not in FORMATS:
            raise UsageError(f"unknown format {asked!r}", did_you_mean(asked, FORMATS) or "known: " + ", ".join(FORMATS))
        return str(asked)
    output = options.get("output")
    if output and output != "-":
        suffix = Path(output).suffix.lower()
        if suffix in PICTURES:
            return PICTURES[suffix]
        if suffix not in _SUFFIXES:
            raise UsageError(f"no format is known for {output!r}", "use a suffix of " + ", ".join(_SUFFIXES) + " or --format")
        return _SUFFIXES[suffix]
    return "table"


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
        content = records.dumps(made_document)
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
            print("".join(f"{text}\n" for text in made.warnings), end="", file=sys.stderr)
    write(content, options.get("output"))


_NOTHING = "there is nothing to draw: no time or memory is answered"


def _draw(options: dict[str, Any], kind: str, picture: Callable[[], Picture | None] | None) -> None:
    from calc.report.pictures import draw

    if picture is None:
        raise UsageError(f"this command draws no picture: {options.get('output')}", "use a suffix of " + ", ".join(_SUFFIXES))
    draw.library()
    made = picture()
    if made is None or not made.panels:
        raise UsageError(_NOTHING, "ask for a deployment that fits")
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
    """To standard output, or to a file through a temporary one, so that a failure leaves the old file whole."""
    if output is None or output == "-":
        sys.stdout.write(content if isinstance(content, str) else content.decode("utf-8"))
        sys.stdout.flush()
        return
    target = Path(output).expanduser()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True) if temporary.parent.is_dir() else None
        raise UsageError(f"cannot write {output}: {error.strerror or error}", "choose a folder you can write to") from error


def notices(options: dict[str, Any], *loaded: Loaded[Any]) -> None:
    """Say on standard error what profiles shadow and what an import guessed."""
    if not options.get("quiet"):
        for item in loaded:
            for text in item.notices:
                print(f"notice: {text}", file=sys.stderr)
