"""The rules by which start-up lines are read: patterns for figures, and two ways in which settings are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from calc.units import GIB, MIB

_UNITS = {
    "gib": GIB,
    "gb": GIB,
    "mib": MIB,
    "mb": MIB,
    "bytes": 1,
    "b": 1,
    "tokens": 1,
    "blocks": 1,
    "cells": 1,
    "slots": 1,
    "x": 1,
    "percent": 1,
    "share": 1,
}

#: A number as engines print it: with separators, decimals, a sign.
NUMBER = r"(-?\d[\d,]*(?:\.\d+)?)"
#: A size whose unit is printed; engines write GB and mean GiB.
SIZE = NUMBER + r" ?(?:GiB|GB)"


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure of a log: its name, value (bytes or what ``unit`` says), and where it stands."""

    name: str
    value: float
    unit: str
    line: int
    rank: int | None = None


@dataclass(frozen=True)
class Rule:
    """A pattern whose groups are figures: (name, unit as printed) each."""

    pattern: re.Pattern[str]
    names: tuple[tuple[str, str], ...]

    def read(self, line: str, number: int, rank: int | None) -> Iterator[Printed]:
        """Figures of one line."""
        for match in self.pattern.finditer(line):
            for (name, unit), text in zip(self.names, match.groups(), strict=True):
                if text is not None:
                    value = float(text.replace(",", "")) * _UNITS[unit]
                    shown = "bytes" if unit in ("gib", "gb", "mib", "mb", "b", "bytes") else unit
                    yield Printed(name, value, shown, number, rank)


def rule(pattern: str, *names: str) -> Rule:
    """``rule("took SIZE", "weights gib")``: one name with its printed unit for each group."""
    pairs = tuple((n.split()[0], n.split()[1]) for n in names)
    return Rule(re.compile(pattern, re.IGNORECASE), pairs)


@dataclass(frozen=True)
class Rules:
    """How the lines of one engine are read. One of ``words`` must stand in a line before anything is tried (speed); ``dumps`` mark
    lines that list settings as ``key=value``, ``commands`` lines that hold a command line."""

    words: tuple[bytes, ...]
    figures: tuple[Rule, ...]
    dumps: re.Pattern[str]
    dump_keys: dict[str, str]
    commands: re.Pattern[str]
    flags: dict[str, str]
    others: tuple[tuple[re.Pattern[str], str], ...]
    values: dict[str, dict[str, str]]
    example: str
    finish: Callable[[list[Printed]], list[Printed]] | None = None

    def settings(self, line: str) -> Iterator[tuple[str, str]]:
        """(option, value) pairs that a line gives."""
        if self.dumps.search(line):
            for key, option in self.dump_keys.items():
                match = re.search(rf"(?<![\w.]){key}['\"]?\s*[=:]\s*(?:'([^']*)'|\"([^\"]*)\"|([^,\s)}}\]]+))", line)
                if match:
                    yield from self._value(option, next(g for g in match.groups() if g is not None))
        if self.commands.search(line):
            for flag, option in self.flags.items():
                match = re.search(rf"(?:^|\s){re.escape(flag)}(?:[= ]+([^\s-]\S*))?(?=\s|$)", line)
                if match:
                    yield from self._value(option, match[1] or "True")
        for pattern, option in self.others:
            match = pattern.search(line)
            if match:
                yield from self._value(option, match[1] if match.groups() else "True")

    def _value(self, option: str, text: str) -> Iterator[tuple[str, str]]:
        text = text.strip("'\"").removeprefix("torch.")
        known = self.values.get(option, {})
        text = known.get(text.lower(), text)
        if text not in ("None", "none", "null", "False", "", "auto"):
            yield option, text
