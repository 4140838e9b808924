"""Model, hardware and efficiency profiles → YAML that a person would write: defaults left out, short lists on one line.

It loads back to an equal struct.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from calc.profiles.efficiency import EfficiencyProfile
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.profiles.reader import plain_scalar

SCHEMA_LINE = "# yaml-language-server: $schema=../../docs/reference/schema/model.schema.json"
EFFICIENCY_SCHEMA_LINE = SCHEMA_LINE.replace("model.schema", "efficiency.schema")
HARDWARE_SCHEMA_LINE = SCHEMA_LINE.replace("model.schema", "hardware.schema")
WIDTH = 132
_PLAIN = re.compile(r"[A-Za-z0-9_/(<~+][^\n\t\"]*")
_UNSAFE = re.compile(r": |:$| #|^[-?:] |[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]|^\s|\s$")
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_FLOW_UNSAFE = re.compile(r"[,\[\]{}:]")


def model_yaml(profile: ModelProfile) -> str:
    """The text of a profile file."""
    return "\n".join([SCHEMA_LINE, *_mapping(_without_defaults(profile), 0)]) + "\n"


def efficiency_yaml(profile: EfficiencyProfile) -> str:
    """The text of an efficiency file."""
    return "\n".join([EFFICIENCY_SCHEMA_LINE, *_mapping(_without_defaults(profile), 0)]) + "\n"


def hardware_yaml(profile: HardwareProfile) -> str:
    """The text of a hardware profile."""
    return "\n".join([HARDWARE_SCHEMA_LINE, *_mapping(_without_defaults(profile), 0)]) + "\n"


def _without_defaults(value: Any) -> Any:
    """Structs as dicts without the fields that hold their default, the tag first."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        found: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
        for field in msgspec.structs.fields(value):
            own = getattr(value, field.name)
            if own != _default(field):
                found[field.encode_name] = _without_defaults(own)
        return found
    if isinstance(value, (list, tuple)):
        return [_without_defaults(v) for v in value]
    if isinstance(value, dict):
        return {k: _without_defaults(v) for k, v in value.items()}
    return value


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _mapping(data: dict[str, Any], indent: int) -> Iterator[str]:
    for key, value in data.items():
        yield from _entry(f"{' ' * indent}{_scalar(key, flow=False)}:", value, indent)


def _entry(head: str, value: Any, indent: int) -> Iterator[str]:
    flow = None if isinstance(value, dict) and value and not indent else _flow(value)
    if flow is not None and (not isinstance(value, (list, dict)) or len(head) + 1 + len(flow) <= WIDTH):
        yield f"{head} {flow}"
    elif isinstance(value, dict):
        yield head
        yield from _mapping(value, indent + 2)
    else:
        yield head
        for item in value:
            yield from _item(item, indent + 2)


def _item(item: Any, indent: int) -> Iterator[str]:
    dash = " " * indent + "- "
    if isinstance(item, dict) and item:
        first, *rest = _mapping(item, indent + 2)
        yield dash + first.lstrip()
        yield from rest
    elif isinstance(item, list):
        raise TypeError("no profile field is a list of lists")
    else:
        yield dash + _scalar(item, flow=False)


def _flow(value: Any) -> str | None:
    """A value on one line: scalars, lists of short scalars, empty containers; None for what reads better as a block."""
    if isinstance(value, list):
        if any(isinstance(v, (dict, list)) or (isinstance(v, str) and len(v) > 60) for v in value):
            return None
        return "[" + ", ".join(_scalar(v, flow=True) for v in value) + "]"
    if isinstance(value, dict):
        short = len(value) <= 3 and all(isinstance(v, (int, float, str)) and len(str(v)) < 24 for v in value.values())
        return (
            "{" + ", ".join(f"{_scalar(k, flow=True)}: {_scalar(v, flow=True)}" for k, v in value.items()) + "}" if short else None
        )
    return _scalar(value, flow=False)


def _scalar(value: Any, *, flow: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    plain = _PLAIN.fullmatch(value) and not _UNSAFE.search(value) and isinstance(plain_scalar(value), str)
    if plain and not (flow and _FLOW_UNSAFE.search(value)):
        return value
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
