"""Pages of headlines, tables and notes, and their plain, Markdown, CSV and terminal renderings. Knows nothing of what it shows."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """``priority`` 0 is always shown; higher ones give way first when the page is narrow. A ``whole`` column is never wrapped: its lines
    are there to be copied."""

    header: str
    right: bool = False
    priority: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text under columns."""

    columns: tuple[Column, ...]
    rows: list[list[str]]
    title: str | None = None


@dataclass(frozen=True)
class Page:
    """What a person reads: the answer first, then tables, then notes. ``warnings`` (code, message) go to standard error, each once."""

    headline: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: Sequence[tuple[str, str]] = ()


def printable(text: str) -> str:
    """A text on one line: control characters of names and files are shown, not sent to the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _shown(page: Page) -> Page:
    """The page with nothing in it but what prints."""
    tables = [
        Table(t.columns, [[printable(cell) for cell in row] for row in t.rows], t.title and printable(t.title)) for t in page.tables
    ]
    return Page([printable(line) for line in page.headline], tables, [printable(note) for note in page.notes])


def terminal_width() -> int:
    """Columns to fill: the terminal's or $COLUMNS, 80 for pipes."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def colour_wanted(no_color: bool = False) -> bool:
    """Whether standard output takes colours: a terminal, unless NO_COLOR or TERM=dumb; FORCE_COLOR overrides."""
    if no_color or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _fitting(table: Table, width: int, gap: int = 2) -> tuple[list[int], list[str]]:
    """Indices of the columns that fit, and headers of those left out."""
    kept = list(range(len(table.columns)))
    left_out: list[str] = []

    def needed() -> int:
        return sum(_width(table, i) for i in kept) + gap * (len(kept) - 1)

    while needed() > width:
        removable = [i for i in kept if table.columns[i].priority > 0]
        if not removable:
            break
        worst = max(removable, key=lambda i: (table.columns[i].priority, i))
        kept.remove(worst)
        left_out.append(table.columns[worst].header)
    return kept, left_out


def _width(table: Table, index: int) -> int:
    return max([len(table.columns[index].header), *(len(row[index]) for row in table.rows)])


def plain(page: Page, width: int | None = None, *, bold: bool = False) -> str:
    """Aligned text without boxes; ``bold`` marks headlines and headers for terminals."""
    page, width = _shown(page), width or terminal_width()
    start, stop = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    lines: list[str] = []
    for number, text in enumerate(page.headline):
        wrapped = textwrap.wrap(text, width) or [""]
        lines += [f"{start}{line}{stop}" if number == 0 else line for line in wrapped]
    for table in page.tables:
        kept, left_out = _fitting(table, width)
        widths = _wrapped_widths(table, kept, width)
        if lines:
            lines.append("")
        if table.title:
            lines += [f"{start}{line}{stop}" for line in textwrap.wrap(table.title, width)]
        if any(c.header for c in table.columns):
            lines += [start + line + stop for line in _row([c.header for c in table.columns], table, kept, widths)]
        for row in table.rows:
            lines += _row(row, table, kept, widths)
        if left_out:
            lines += textwrap.wrap(f"(not shown at {width} columns: {', '.join(reversed(left_out))})", width)
    if page.notes:
        lines.append("")
        for note in page.notes:
            lines += textwrap.wrap(note, width, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _wrapped_widths(table: Table, kept: list[int], width: int) -> dict[int, int]:
    """Column widths; where the columns kept are still too wide together, the widest text column gives way and wraps."""
    widths = {i: _width(table, i) for i in kept}
    excess = sum(widths.values()) + 2 * (len(kept) - 1) - width
    textual = [i for i in kept if not (table.columns[i].right or table.columns[i].whole)]
    if excess > 0 and textual:
        widest = max(textual, key=lambda i: widths[i])
        widths[widest] = max(12, widths[widest] - excess)
    return widths


def _row(cells: list[str], table: Table, kept: list[int], widths: dict[int, int]) -> list[str]:
    """The lines of one row."""
    split = {i: textwrap.wrap(cells[i], widths[i]) if len(cells[i]) > widths[i] else [cells[i]] for i in kept}
    height = max(len(v) for v in split.values())
    lines = []
    for level in range(height):
        parts = []
        for i in kept:
            text = split[i][level] if level < len(split[i]) else ""
            parts.append(text.rjust(widths[i]) if table.columns[i].right else text.ljust(widths[i]))
        lines.append("  ".join(parts).rstrip())
    return lines


def markdown(page: Page) -> str:
    """GitHub-flavoured Markdown with every column."""
    page = _shown(page)
    lines: list[str] = []
    for text in page.headline:
        lines += [text, ""]
    for table in page.tables:
        if table.title:
            lines += [f"**{table.title}**", ""]
        lines.append("| " + " | ".join(c.header or " " for c in table.columns) + " |")
        lines.append("|" + "|".join("---:" if c.right else "---" for c in table.columns) + "|")
        lines += ["| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in row) + " |" for row in table.rows]
        lines.append("")
    lines += [f"- {note}" for note in page.notes]
    return "\n".join(lines).rstrip() + "\n"


def csv_text(rows: list[dict[str, object]]) -> str:
    """Records as CSV: the union of their keys as columns, unrounded values."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({k: ("" if v is None else v) for k, v in row.items()} for row in rows)
    return text.getvalue()


def flatten(value: object, prefix: str = "") -> dict[str, object]:
    """Nested records as one flat row with dotted keys."""
    if isinstance(value, dict):
        flat: dict[str, object] = {}
        for key, inner in value.items():
            flat |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
        return flat
    if isinstance(value, list):
        named = all(isinstance(v, dict) and "name" in v for v in value)
        if value and named:  # rows with names become columns
            return flatten({str(v["name"]): {k: x for k, x in v.items() if k != "name"} for v in value}, prefix)
        return {prefix: ";".join(str(v) for v in value)}
    return {prefix: value}
