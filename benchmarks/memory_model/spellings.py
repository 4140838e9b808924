"""What the records call things, as the library knows them: exact spellings from a table, never the nearest name.

An unknown spelling is answered with None; the caller falls back to what the record says about geometry and memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from calc.errors import RoofcastError
from calc.profiles import catalog
from calc.profiles.catalog import Kind, fold
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile

RECORDS = Path(__file__).parents[1] / "records"


@dataclass(frozen=True)
class Flag:
    """Words of a command line that set an option; ``value`` None takes the first group of the pattern."""

    engine: str | None
    pattern: str
    option: str
    value: Any = None


@cache
def table() -> Mapping[str, Any]:
    """The table of spellings."""
    import yaml

    loaded = yaml.safe_load((RECORDS / "spellings.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def model(text: str | None) -> ModelProfile | None:
    """The profile that a record's model means. Of alternatives ("A / B") all that are known must be one profile."""
    if text is None:
        return None
    found = {p.id: p for part in re.split(r" / ", text.split(" - ")[0]) if (p := _model(part)) is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _model(name: str) -> ModelProfile | None:
    name = re.split(r" \(| \+ |, ", name)[0].strip()
    for spelling in _without_packaging(name):
        known = table()["models"].get(spelling)
        if known == "unlisted":
            return None
        profile = _profile(known or spelling, "model")
        if profile is not None:
            return profile  # type: ignore[no-any-return]
    return None


def _without_packaging(name: str) -> list[str]:
    """The name as it stands, then without its organisation, then without words that say how weights are packed or tuned."""
    spellings = [name, fold(name), fold(name).rpartition("/")[2]]
    short = spellings[-1]
    while True:
        shorter = next((short[: -len(w)] for w in table()["packaging"] if short.endswith(w)), short)
        shorter = shorter.rstrip(" -_")
        if shorter == short:
            return list(dict.fromkeys(spellings))
        short = shorter
        spellings.append(short)


@cache
def _profile(name: str, kind: Kind) -> Any:
    try:
        return catalog.load(name, kind).profile
    except RoofcastError:
        return None


def devices(text: str | None) -> list[HardwareProfile] | None:
    """The devices that a record names ("A + B" are two); None where a spelling is not known."""
    if text is None:
        return None
    found = [_device(part) for part in text.split(" + ")]
    return None if any(d is None for d in found) else [d for d in found if d is not None]


def _device(name: str) -> HardwareProfile | None:
    short = re.split(r" \(|, ", name)[0].strip()
    for spelling in _without_maker(fold(short)):
        known = table()["devices"].get(spelling)
        if known == "unlisted":
            return None
        found: HardwareProfile | None = _profile(known or spelling, "hardware")
        if found is not None:
            return found
    return None


def _without_maker(name: str) -> list[str]:
    """The name, then without the words in front that say who made the part, one after another."""
    spellings = [name]
    while True:
        shorter = next((name.removeprefix(w) for w in table()["makers"] if name.startswith(w)), name)
        if shorter == name:
            return spellings
        name = shorter
        spellings.append(name)


def weight_format(quantization: str | None, weight_dtype: str | None) -> str | None:
    """The format of ``--quantization`` that a record's words mean: "as stored" is an empty text, unknown is None."""
    known = table()["quantization"]
    for text in (quantization, weight_dtype):
        if text is not None:
            word = fold(re.split(r" \(", text)[0])
            if word in known:
                return str(known[word])
    return None


def cache_formats(kv_dtype: str | None) -> tuple[str, str]:
    """Formats of keys and values ("auto" where nothing is said)."""
    known = table()["kv_dtype"]
    if kv_dtype is None:
        return "auto", "auto"
    both = re.match(r"K (\S+), V (\S+)", kv_dtype)
    if both:
        keys, values = (known.get(fold(w), fold(w)) for w in both.groups())
        return str(keys), str(keys if values == "none" else values)
    word = fold(re.split(r"[ ,]", kv_dtype)[0])
    form = str(known.get(word, word))
    return form, form


def flags(engine: str, text: str) -> dict[str, Any]:
    """Options that the words of a command line set; earlier rows of the table win."""
    found: dict[str, Any] = {}
    for row in table()["flags"]:
        if row.get("engine") not in (None, engine) or row["option"] in found:
            continue
        match = re.search(row["pattern"], text, re.IGNORECASE)
        if match:
            value = row.get("value")
            found[row["option"]] = match[1] if value is None else value
    return found
