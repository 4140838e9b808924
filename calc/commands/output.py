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
    from calc.report.table import Page

FORMATS = ("table", "json", "csv", "markdown")
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
) -> None:
    """Print or write an answer in the asked format; only that format is made."""
    from calc.report import records, table

    wanted = chosen_format(options)
    if wanted == "json":
        content = records.dumps(document())
    elif wanted == "csv":
        content = table.csv_text(rows())
    else:
        made = page()
        to_terminal = options.get("output") in (None, "-")
        bold = to_terminal and table.colour_wanted(bool(options.get("no_color")))
        content = table.markdown(made) if wanted == "markdown" else table.plain(made, bold=bold)
        if not options.get("quiet"):
            print("".join(f"{text}\n" for text in made.warnings), end="", file=sys.stderr)
    write(content, options.get("output"))


def write(content: str, output: str | None) -> None:
    """To standard output, or to a file through a temporary one, so that a failure leaves the old file whole."""
    if output is None or output == "-":
        sys.stdout.write(content)
        sys.stdout.flush()
        return
    target = Path(output).expanduser()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(content, encoding="utf-8")
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
