"""Judges scenarios: every expectation against the results of estimate and capacity on that deployment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from calc import units
from calc.errors import ProfileError, RoofcastError, UsageError, did_you_mean
from calc.profiles.reader import Document
from calc.profiles.scenario import Amount, Bounds, Scenario, ScenarioFile

_RANGE_KEYS = ("floor", "low", "expected", "high", "ceiling")


@dataclass(frozen=True)
class Verdict:
    """One expectation: what was wanted, what was found (None: not answered), and where it stands in the file. ``limit`` is one of its
    limits as written: people read what was found in its unit."""

    scenario: str
    key: str
    path: str
    wanted: str
    limit: str
    found: Any
    holds: bool
    place: str
    line: int


def judge(scenario: Scenario, index: int, document: Document, results: dict[str, Any]) -> list[Verdict]:
    """Hold every expectation of a scenario against its results. An expectation on a key that the results lack, or on a name that two
    keys carry, raises ProfileError: it never passes silently."""
    verdicts = []
    for key, bound in scenario.expect.items():
        at = ("scenarios", index, "expect", key)
        place = document.at(at)
        path, value = _resolve(key, results, place)
        limits = bound if isinstance(bound, Bounds) else Bounds(equals=bound)
        try:
            holds, wanted = _compare(path, value, limits)
        except UsageError as error:
            raise ProfileError(f"{place}: {error.message}", error.hint) from error
        limit = next(str(v) for v in (limits.at_most, limits.at_least, limits.equals) if v is not None)
        verdicts.append(Verdict(scenario.name, key, path, wanted, limit, value, holds, place, int(place.rsplit(":", 2)[1])))
    return verdicts


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf and every range by dotted path; lists have no names."""
    found: dict[str, Any] = {}
    if isinstance(value, dict):
        if path and "expected" in value and "evidence" in value:
            found[path] = value["expected"]
        for key, inner in value.items():
            found |= _leaves(inner, f"{path}.{key}" if path else str(key))
    elif not isinstance(value, list) and path:
        found[path] = value
    return found


def _resolve(key: str, results: dict[str, Any], place: str) -> tuple[str, Any]:
    leaves = _leaves(results)
    if key in leaves:
        return key, leaves[key]
    if key == "fits":  # the verdict on the workload; capacity.fits is about max_model_len
        return "memory.fits", leaves["memory.fits"]
    matches = {p: v for p, v in leaves.items() if p.endswith("." + key)}
    if not matches:
        names = {p.rsplit(".", 1)[-1] for p in leaves} - set(_RANGE_KEYS)
        raise ProfileError(
            f"{place}: no result is called {key!r}", did_you_mean(key, names | set(leaves)) or "`roofcast schema result` lists all"
        )
    if len({repr(v) for v in matches.values()}) > 1:
        raise ProfileError(f"{place}: {key!r} names several results", "write one of: " + ", ".join(sorted(matches)))
    return next(iter(matches.items()))


def parse(amount: Amount | bool, key: str) -> Any:
    """A limit as a number in the unit of its key: ``40ms`` of a key ending in _s is 0.04."""
    if isinstance(amount, (bool, int, float)):
        return amount
    name = key.rsplit(".", 1)[-1] if key.rsplit(".", 1)[-1] not in _RANGE_KEYS else key.rsplit(".", 2)[-2]
    parser: Callable[[str], Any]
    if name.endswith("tokens_per_s"):
        parser = units.parse_rate
    elif name.endswith("_s"):
        parser = units.parse_seconds
    elif "bytes" in name:
        parser = units.parse_bytes
    elif "share" in name or "utilization" in name:
        parser = units.parse_fraction
    elif "tokens" in name or "context" in name or "batch" in name:
        parser = units.parse_count
    else:
        try:
            return float(amount)
        except ValueError:
            return amount
    return parser(amount)


def limit_faults(content: ScenarioFile) -> list[tuple[tuple[str | int, ...], str]]:
    """Limits that no result can meet: below zero where nothing is, and those that exclude each other."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for index, scenario in enumerate(content.scenarios):
        for key, bounds in scenario.expect.items():
            place = ("scenarios", index, "expect", key)
            if not isinstance(bounds, Bounds):
                continue
            given = {name: getattr(bounds, name) for name in ("at_least", "equals", "at_most") if getattr(bounds, name) is not None}
            try:
                limits = {name: parse(limit, key) for name, limit in given.items()}
            except UsageError as error:
                found.append((place, error.message))
                continue
            numbers = [(name, v) for name, v in limits.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
            found += [
                ((*place, name), f"{given[name]}: no time, count or size is below 0")
                for name, value in numbers
                if value < 0 and name != "at_least" and _is_amount(key)
            ]
            found += [
                ((*place, high), f"{high} {given[high]} and {low} {given[low]} exclude each other")
                for (low, least), (high, most) in pairwise(numbers)
                if least > most and not (bounds.within is not None and "equals" in (low, high))
            ]
    return found


def _is_amount(key: str) -> bool:
    """Whether a result of this name is a time, a count or a size."""
    parts = key.split(".")
    name = parts[-2] if parts[-1] in _RANGE_KEYS and len(parts) > 1 else parts[-1]
    return name.endswith(("_s", "_tokens", "concurrency", "_bytes", "_per_gpu"))


def _compare(path: str, value: Any, limits: Bounds) -> tuple[bool, str]:
    wanted = []
    holds = True
    for name, limit in (("at_least", limits.at_least), ("at_most", limits.at_most), ("equals", limits.equals)):
        if limit is None:
            continue
        number = parse(limit, path)
        wanted.append(f"{name.replace('_', ' ')} {limit}")
        if value is None:
            holds = False
        elif name == "equals":
            if isinstance(value, bool) != isinstance(number, bool):
                raise UsageError(f"{path} is {str(value).lower()}, which {limit!r} cannot equal", f"{path}: {str(value).lower()}")
            share = 0.0 if limits.within is None else float(parse(limits.within, "share"))
            numeric = isinstance(value, (int, float)) and isinstance(number, (int, float)) and not isinstance(value, bool)
            holds &= abs(value - number) <= share * abs(number) if numeric else value == number
        elif not isinstance(value, (int, float)) or isinstance(value, bool) or not isinstance(number, (int, float)):
            raise UsageError(f"{path} is {value!r}: it has no order, use equals", f"{path}: {{equals: {value}}}")
        else:
            holds &= value >= number if name == "at_least" else value <= number
    return holds, ", ".join(wanted)


def as_error(scenario: Scenario, place: str, error: RoofcastError) -> ProfileError:
    """A scenario that cannot be answered, with its place in the file."""
    return ProfileError(f"{place}: scenario {scenario.name!r}: {error.message}", error.hint)
