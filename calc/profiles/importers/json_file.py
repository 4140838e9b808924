"""Strict, bounded JSON: duplicate keys and NaN are refused, size, depth and number of values are limited, faults name file and line.

The bare token Infinity is read: configs carry it in ``time_step_limit``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calc.errors import ProfileError
from calc.profiles import reader

MAX_CONFIG_BYTES = 16 << 20
MAX_INDEX_BYTES = 100 << 20
MAX_VALUES = 4_000_000  # commas and brackets: bounds memory before anything is built

Path_ = tuple[str | int, ...]
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+|\n')


@dataclass(frozen=True)
class JsonDocument:
    """An object of one file with what is needed to say where a value stands."""

    data: dict[str, Any]
    name: str
    text: str = ""

    def at(self, *path: str | int) -> str:
        """``file:line`` of a value, or the file alone when it was never in a file."""
        if not self.text:
            return self.name
        lines = _lines(self.text)
        while path and path not in lines:
            path = path[:-1]
        return f"{self.name}:{lines.get(path, 1)}"


def read_json(path: Path, limit: int = MAX_CONFIG_BYTES) -> JsonDocument:
    """Read one JSON object from a regular file. Raises ProfileError (exit code 3)."""
    return parse_json(reader.read_bytes(path, limit), str(path))


def parse_json(content: bytes, name: str) -> JsonDocument:
    """Parse one JSON object. Raises ProfileError naming file and line."""
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ProfileError(f"{name}: more than {MAX_VALUES:,} values", "is this a config.json?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProfileError(f"{name}:{line}: not UTF-8 text", "is this a JSON file?") from error
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except _DuplicateKeyError as error:
        lines = _occurrences(text, error.key)
        where = f"{name}:{lines[-1]}" if lines else name
        first = lines[0] if lines else 1
        raise ProfileError(f"{where}: key {error.key!r} stands twice; the first is on line {first}", "keep one of them") from error
    except json.JSONDecodeError as error:
        raise ProfileError(f"{name}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}", "is the file cut off?") from error
    except RecursionError as error:
        raise ProfileError(f"{name}: nested too deeply", "is this a config.json?") from error
    except ValueError as error:  # NaN, or an integer of thousands of digits
        raise ProfileError(f"{name}: not valid JSON: {str(error).partition(';')[0]}", "JSON holds finite numbers") from error
    if not isinstance(data, dict):
        raise ProfileError(f"{name}:1: holds a {type(data).__name__}; an object of keys was expected", "is this a config.json?")
    return JsonDocument(data, name, text)


class _DuplicateKeyError(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return found


def _constant(token: str) -> float:
    if token == "NaN":
        raise ValueError("NaN is not a value")
    return float(token.replace("Infinity", "inf"))


def _occurrences(text: str, key: str) -> list[int]:
    """Lines of the first pair of equal keys within one object."""
    seen: dict[Path_, int] = {}
    for path, line in _walk(text):
        if path and path[-1] == key and path in seen:
            return [seen[path], line]
        seen.setdefault(path, line)
    return []


def _lines(text: str) -> dict[Path_, int]:
    """Line of every key and element. Only run to word a fault."""
    found: dict[Path_, int] = {}
    for path, line in _walk(text):
        found.setdefault(path, line)
    return found


def _walk(text: str) -> list[tuple[Path_, int]]:
    """(path, line) of every key and list element, from the tokens alone."""
    found: list[tuple[Path_, int]] = []
    path: list[str | int] = []
    line, previous = 1, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
            continue
        if token in "{[":
            if path and isinstance(path[-1], int) and previous != ":":
                found.append((tuple(path), line))
            path.append("" if token == "{" else 0)
        elif token in "}]":
            path = path[:-1]
        elif token == "," and path and isinstance(path[-1], int):
            path[-1] += 1
        elif token == ":" and path and previous.startswith('"'):
            path[-1] = json.loads(previous)
            found.append((tuple(path), line))
        elif path and isinstance(path[-1], int) and token not in ",:":
            found.append((tuple(path), line))
        previous = token
    return found
