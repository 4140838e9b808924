"""The command line in a process of its own, as a shell would run it; a fork of a warm interpreter where that makes no difference."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.warm import Interpreter, cold, starts_alike

ROOT = Path(__file__).parents[2]
_CLEARED = (
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "TERM",
    "COLUMNS",
    "LINES",
    "ROOFCAST_PROFILES",
    "ROOFCAST_DEBUG",
)


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as strict JSON: NaN and Infinity are refused."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} in the output")

        return json.loads(self.stdout, parse_constant=refuse)


def environment(**changes: str) -> dict[str, str]:
    """A clean environment: no terminal settings, no profiles of the user's own."""
    base = {k: v for k, v in os.environ.items() if k not in _CLEARED}
    return base | {"ROOFCAST_HOME": os.devnull, "PYTHONPATH": str(ROOT)} | changes


@cache
def _warm() -> Interpreter:
    return Interpreter(environment(), ROOT)


def python(
    code: str,
    *arguments: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    merged: bool = False,
    fresh: bool = False,
) -> Outcome:
    """Run ``python -c code``: in a fork of the warm interpreter unless it is to be ``fresh`` or ``env`` changes how an interpreter
    starts; ``merged`` sends both streams to the first."""
    chosen, folder = environment(**(env or {})), cwd or ROOT
    warm = not fresh and starts_alike(chosen, _warm().environment)
    status, out, err = (_warm().run if warm else cold)(code, arguments, chosen, folder, merged)
    return Outcome(status, out.decode("utf-8"), err.decode("utf-8"))


def run(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, fresh: bool = False) -> Outcome:
    """Run ``roofcast`` with these arguments."""
    return python("from calc.commands import main; main()", *arguments, cwd=cwd, env=env, fresh=fresh)


def run_inside(capsys: Any, monkeypatch: Any, *arguments: str) -> Outcome:
    """Run ``roofcast`` within the test process: for many quick refusals; streams and exit code are those of ``main``."""
    from calc.commands import main

    for name in _CLEARED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOFCAST_HOME", os.devnull)
    monkeypatch.setattr(sys, "argv", ["roofcast", *arguments])
    capsys.readouterr()
    try:
        main()
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return Outcome(int(code or 0), out, err)


@cache
def answered(*arguments: str) -> Outcome:
    """Run once per test process and share the outcome; the command must have answered."""
    outcome = run(*arguments)
    assert outcome.code == 0, f"{' '.join(arguments)}: exit {outcome.code}: {outcome.stderr}"
    return outcome


def drained(reader: int) -> bytes:
    """All that comes from a terminal until it is closed."""
    chunks = []
    while True:
        try:
            chunk = os.read(reader, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(reader)
    return b"".join(chunks)
