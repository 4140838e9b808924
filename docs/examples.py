"""Examples of the documentation: finds them, runs them, compares what they show with what the program prints.

Three kinds of code block are alive:

- ``console``: every line that begins with ``$ roofcast`` is run; the lines below it, up to the next command, are what it must print.
  A line that is only ``…`` stands for any lines, a ``…`` within a line for any text. ``console exit=1`` expects that exit code of
  the last command of the block.
- ``python``: run as a script. A ``text`` block that follows directly is what it must print.
- any language with a file name after it (``yaml my-model.yaml``): written to the folder in which later examples of the page run.

Each page runs in an empty folder of its own, 80 columns wide, without colour and without a user's profiles.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GAP = "…"
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>[a-z]*)[ ]*(?P<rest>[^`]*)$")
_RUN = "from calc.commands import main; main()"
#: What every example runs with.
SETTINGS = {"COLUMNS": "80", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Block:
    """A fenced code block: 0-based numbers of its first and one past its last line of content."""

    language: str
    rest: str
    start: int
    end: int
    text: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """A command or script, and the lines ``start`` to ``end`` of its page that show what it prints."""

    page: Path
    arguments: tuple[str, ...]
    label: str
    exit_code: int
    start: int
    end: int
    shown: tuple[str, ...] | None  # None: only the exit code counts


@dataclass(frozen=True)
class File:
    """A block that becomes a file for later examples."""

    name: str
    text: str


def pages() -> list[Path]:
    """Every page that may hold examples."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    return sorted(p for p in found if p.is_file() and "reference" not in p.relative_to(ROOT).parts)


def blocks(lines: list[str]) -> Iterator[Block]:
    """Fenced code blocks of a page in order."""
    opened: re.Match[str] | None = None
    start = 0
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if opened is None and match:
            opened, start = match, number + 1
        elif opened is not None and match and match["fence"] == opened["fence"] and not match["language"] and not match["rest"]:
            yield Block(opened["language"], opened["rest"].strip(), start, number, tuple(lines[start:number]))
            opened = None


def examples(page: Path) -> list[Example | File]:
    """Examples and files of a page in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Example | File] = []
    every = list(blocks(lines))
    for index, block in enumerate(every):
        if block.language == "console":
            found += _commands(page, block)
        elif block.language == "python":
            following = every[index + 1] if index + 1 < len(every) else None
            shown = following if following and following.language == "text" and _adjacent(lines, block, following) else None
            code = "\n".join(block.text)
            place = (shown.start, shown.end, shown.text) if shown else (block.end, block.end, None)
            found.append(Example(page, ("-c", code), f"python at line {block.start}", 0, *place))
        elif block.rest and "." in block.rest and "=" not in block.rest:
            found.append(File(block.rest, "\n".join(block.text) + "\n"))
    return found


def _adjacent(lines: list[str], block: Block, following: Block) -> bool:
    return not any(line.strip() for line in lines[block.end + 1 : following.start - 1])


def _commands(page: Path, block: Block) -> Iterator[Example]:
    starts = [n for n, line in enumerate(block.text) if line.startswith("$ ")]
    asked = re.search(r"exit=(\d+)", block.rest)
    for position, first in enumerate(starts):
        stop = starts[position + 1] if position + 1 < len(starts) else len(block.text)
        last, command = first, block.text[first][2:]
        while command.endswith("\\"):
            last += 1
            command = command[:-1] + block.text[last]
        words = shlex.split(command)
        if words[0] != "roofcast":
            raise ValueError(f"{page}: a console block runs roofcast only, not {command!r}")
        exit_code = int(asked[1]) if asked and position == len(starts) - 1 else 0
        place = (block.start + last + 1, block.start + stop)
        yield Example(page, ("-c", _RUN, *words[1:]), command, exit_code, *place, block.text[last + 1 : stop])


def run(example: Example, folder: Path) -> tuple[int, list[str]]:
    """Exit code and printed lines (both streams) of an example, in a new interpreter."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ROOFCAST_", "COV_")) and k != "FORCE_COLOR"}
    environment |= SETTINGS | {"ROOFCAST_HOME": str(folder / ".none"), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *example.arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def matches(shown: tuple[str, ...] | None, printed: list[str]) -> bool:
    """Whether what a page shows is what was printed; ``…`` stands for anything."""
    if shown is None:
        return True
    parts = []
    for line in shown:
        if line.strip() == GAP:
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(piece) for piece in line.rstrip().split(GAP)) + "\n")
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in printed)) is not None


def faults(
    page: Path, folder: Path, run: Callable[[Example, Path], tuple[int, list[str]]] = run
) -> list[tuple[Example, str, list[str]]]:
    """Examples of a page that do not hold: (example, why, printed lines). Files are written to ``folder`` on the way."""
    found = []
    for item in examples(page):
        if isinstance(item, File):
            target = folder / item.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(item.text, encoding="utf-8")
            continue
        code, lines = run(item, folder)
        printed = [line.rstrip() for line in lines]
        if code != item.exit_code:
            found.append((item, f"exit code {code}, expected {item.exit_code}", printed))
        elif not matches(item.shown, printed):
            found.append((item, "prints something else", printed))
    return found


def refreshed(shown: tuple[str, ...], printed: list[str]) -> list[str] | None:
    """What a page should show now: all of it, or as many lines around a single ``…`` line as before. None: by hand."""
    gaps = [n for n, line in enumerate(shown) if GAP in line]
    if not gaps:
        return printed
    if len(gaps) == 1 and shown[gaps[0]].strip() == GAP:
        before, after = gaps[0], len(shown) - gaps[0] - 1
        head = printed[:before]
        while head and not head[-1]:
            head.pop()
        return [*head, GAP, *(printed[-after:] if after else [])]
    return None


def refresh(page: Path, folder: Path) -> list[str]:
    """Bring the outputs shown on a page up to date; what needs a hand is said."""
    lines = page.read_text(encoding="utf-8").splitlines()
    left = []
    for example, why, printed in reversed(faults(page, folder)):
        name = f"{page.relative_to(ROOT)}: {example.label}"
        new = refreshed(example.shown, printed) if example.shown is not None else None
        broken = any("this is a fault of roofcast" in line or line.startswith("Traceback") for line in printed)
        if new is None or broken or why != "prints something else":
            left.append(f"{name}: {why}")
        else:
            lines[example.start : example.end] = new
            print(f"refreshed: {name}")
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return left
