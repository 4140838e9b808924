"""A typed view of one object of a config: every key that is read is remembered, every wrong value is a fault that names it.

Keys have several spellings and classes have defaults: the first spelling that is present wins, null included (null is not
absent: ``sliding_window: null`` switches the class default off).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calc.errors import ProfileError, did_you_mean
from calc.profiles.importers.json_file import JsonDocument
from calc.profiles.model_faults import MAX_LAYERS

MAX_SIZE = 1 << 40
PROFILE_HINT = "describe the model in a profile YAML instead: `roofcast schema model` lists its fields"


class _Missing:
    """Nothing was given, which differs from null."""


MISSING = _Missing()
#: Class defaults that change no shape.
_QUIET = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "rotary_dim")


class Config:
    """Keys of one object. ``defaults`` are those of the class, used where a key is absent; sizes taken from them are remembered."""

    def __init__(self, document: JsonDocument, data: dict[str, Any], parent: Config | None = None, key: str = "") -> None:
        self.document = document
        self.data = data
        self.parent = parent
        self.path: tuple[str, ...] = (*parent.path, key) if parent else ()
        self.warnings: list[str] = parent.warnings if parent else []
        self.defaults: Mapping[str, Any] = {}
        self.used: set[str] = set()
        self.defaulted: dict[str, int] = {}
        self.sections: dict[str, Config] = {}

    # --- faults and warnings ------------------------------------------------------------------------------------------------

    def fault(self, key: str, message: str, hint: str | None = None) -> ProfileError:
        """An error at a key of this object."""
        dotted = ".".join((*self.path, key))
        return ProfileError(f"{self.document.at(*self.path, key)}: {dotted} {message}", hint)

    def unknown(self, key: str, value: object, known: object, what: str) -> ProfileError:
        """An error for a value that no law is known for, with the nearest known one."""
        words = [str(k) for k in known]  # type: ignore[attr-defined]
        near = did_you_mean(str(value)[:80], words)
        hint = f"{near} Else {PROFILE_HINT}" if near else PROFILE_HINT
        return self.fault(key, f"{str(value)[:80]!r} is an unknown {what}", hint)

    def warn(self, message: str) -> None:
        """A doubt that the reader of the numbers should know."""
        if message not in self.warnings:
            self.warnings.append(message)

    # --- values -------------------------------------------------------------------------------------------------------------

    def get(self, *keys: str) -> Any:
        """The value under the first spelling that is present, else the class default, else MISSING. Null is a value."""
        self.used.update(keys)
        found: Any = MISSING
        for key in keys:
            value = self.data.get(key, MISSING)
            if value is not MISSING and value is not None:
                return value
            if value is None:
                found = None
        if found is MISSING:
            for key in keys:
                if key in self.defaults:
                    found = self.defaults[key]
                    if isinstance(found, int) and not isinstance(found, bool) and key not in _QUIET:
                        self.defaulted[key] = found
                    break
        return found

    def ignore(self, *keys: str) -> None:
        """Keys that are understood and change no shape here."""
        self.used.update(keys)

    def has(self, *keys: str) -> bool:
        """Whether a spelling is present and not null; class defaults do not count."""
        self.used.update(keys)
        return any(self.data.get(key) is not None for key in keys)

    def integer(self, *keys: str, default: int | _Missing = MISSING, minimum: int = 1, maximum: int = MAX_SIZE) -> int:
        """A whole number. Without ``default`` the key must be there or the class have a default."""
        value = self.get(*keys)
        if value is MISSING or value is None:
            if isinstance(default, _Missing):
                raise self.fault(self._spelling(keys), "is missing" if value is MISSING else "is null", PROFILE_HINT)
            return default
        return self._integer(self._spelling(keys), value, minimum, maximum)

    def optional(self, *keys: str, minimum: int = 1, maximum: int = MAX_SIZE) -> int | None:
        """A whole number, or None where it is null or absent without a class default."""
        value = self.get(*keys)
        if value is MISSING or value is None:
            return None
        return self._integer(self._spelling(keys), value, minimum, maximum)

    def count(self, *keys: str, default: int = 0) -> int:
        """A whole number from 0."""
        return self.integer(*keys, default=default, minimum=0)

    def layers(self, *keys: str) -> int:
        """A number of layers, bounded before any list is built."""
        return self.integer(*keys, maximum=MAX_LAYERS)

    def number(self, *keys: str, default: float) -> float:
        """A finite number."""
        value = self.get(*keys)
        if value is MISSING or value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e18:
            raise self.fault(self._spelling(keys), f"must be a number, not {value!r:.60}")
        return float(value)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(*keys)
        if value is MISSING or value is None:
            return default
        if not isinstance(value, bool):
            raise self.fault(self._spelling(keys), f"must be true or false, not {value!r:.60}")
        return value

    def word(self, *keys: str, default: str | None = None) -> str | None:
        """A text."""
        value = self.get(*keys)
        if value is MISSING or value is None:
            return default
        if not isinstance(value, str):
            raise self.fault(self._spelling(keys), f"must be a text, not {value!r:.60}")
        return value

    # --- lists and objects --------------------------------------------------------------------------------------------------

    def items(self, *keys: str) -> list[Any] | None:
        """A list, or None."""
        value = self.get(*keys)
        if value is MISSING or value is None:
            return None
        if not isinstance(value, list):
            raise self.fault(self._spelling(keys), f"must be a list, not {value!r:.60}")
        return value

    def integers(self, *keys: str, minimum: int = 0, maximum: int = MAX_SIZE) -> list[int] | None:
        """A list of whole numbers, or None."""
        values = self.items(*keys)
        key = self._spelling(keys)
        return None if values is None else [self._integer(key, v, minimum, maximum) for v in values]

    def per_layer(self, *keys: str, count: int, default: int | _Missing = MISSING, minimum: int = 1) -> list[int]:
        """One whole number for each layer: a list of that length, or one number for all."""
        value = self.get(*keys)
        if not isinstance(value, list):
            return [self.integer(*keys, default=default, minimum=minimum)] * count
        self.check_length(self._spelling(keys), value, count)
        return [self._integer(self._spelling(keys), v, minimum, MAX_SIZE) for v in value[:count]]

    def check_length(self, key: str, values: list[Any] | str, count: int, *, beyond: int = 0) -> None:
        """A pattern must be as long as the stack; ``beyond`` further entries may describe next-token layers."""
        if not count <= len(values) <= count + beyond:
            raise self.fault(
                key, f"has {len(values):,} entries for {count:,} layers", "the pattern and the stack contradict each other"
            )

    def section(self, *keys: str) -> Config | None:
        """A nested object as a config of its own, or None."""
        value = self.get(*keys)
        if value is MISSING or value is None:
            return None
        key = self._spelling(keys)
        if not isinstance(value, dict):
            raise self.fault(key, f"must be an object, not {value!r:.60}")
        if key not in self.sections:
            self.sections[key] = Config(self.document, value, self, key)
        return self.sections[key]

    def _spelling(self, keys: tuple[str, ...]) -> str:
        return next((k for k in keys if self.data.get(k) is not None), next((k for k in keys if k in self.data), keys[0]))

    def _integer(self, key: str, value: Any, minimum: int, maximum: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) < MAX_SIZE:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(key, f"must be a whole number, not {value!r:.60}")
        if not minimum <= value <= maximum:
            bound = f"at least {minimum:,}" if value < minimum else f"at most {maximum:,}"
            raise self.fault(
                key, f"is {value:,}; {bound} is expected" if abs(value) < 1 << 70 else f"is out of range; {bound} is expected"
            )
        return value
