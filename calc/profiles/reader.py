"""YAML text → plain data with the place of every node → strict structs; every fault at once with file:line:column.

PyYAML's event stream is used rather than its constructors: plain scalars follow YAML 1.2 (``no`` and ``12:30:45`` are text, ``3e12``
is a number), duplicate keys, anchors, aliases, tags and merges are refused, and size and depth are bounded, so that no file
can make the reader slow, large or wrong.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from calc.errors import ProfileError, did_you_mean

MAX_FILE_BYTES = 4 << 20
MAX_IMPORT_BYTES = 100 << 20
MAX_DEPTH = 24
MAX_NODES = 200_000
MAX_FAULTS = 40
_IS_IT = "is this a profile?"
_KEYS_OF = "`roofcast schema KIND` prints the keys and what they take; KIND is model, hardware, efficiency or scenario"
_PLAIN = "these files are plain YAML: mappings, lists and values"
_MAX_SHOWN = 80  # characters of a value in a message

Key = str | int
Place = tuple[Key, ...]
T = TypeVar("T")
CrossCheck = Callable[[T], list[tuple[Place, str]]]

_INT = re.compile(r"[-+]?[0-9]+$")
_HEX = re.compile(r"0x[0-9a-fA-F]+$|0o[0-7]+$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_WORDS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)


@dataclass(frozen=True)
class Document:
    """Plain data of one file and where each node stands (line and column from 1; ``key`` places are those of the key)."""

    data: Any
    places: dict[Place, tuple[int, int]]
    name: str

    def at(self, place: Place) -> str:
        """``file:line:column`` of a node, or of its nearest ancestor that stands in the file."""
        while place not in self.places and place:
            place = place[:-1]
        line, column = self.places.get(place, (1, 1))
        return f"{self.name}:{line}:{column}"


def open_file(path: Path, limit: int = MAX_FILE_BYTES, hint: str | None = None, *, pipes: bool = False) -> BinaryIO:
    """A regular file of at most ``limit`` bytes, opened; with ``pipes`` also a pipe, whose reader keeps the limit. ``hint`` says what
    the file should be. Raises ProfileError."""
    try:
        kind = path.stat()
        if stat.S_ISDIR(kind.st_mode):
            raise ProfileError(f"{path}: is a folder, not a file", "name the file inside it")
        if not stat.S_ISREG(kind.st_mode) and not (pipes and stat.S_ISFIFO(kind.st_mode)):
            raise ProfileError(f"{path}: is not a regular file", "copy what it gives into a file and name that")
        if kind.st_size > limit:
            raise ProfileError(f"{path}: {kind.st_size:,} bytes; at most {limit:,} are read", hint or _IS_IT)
        return path.open("rb")
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file", _near(path) or "check the spelling and the folder") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise ProfileError(f"{path}: cannot be read: {why}", hint or "check the path and its permissions") from None


def _near(path: Path) -> str | None:
    """Files beside the missing one whose names are like it."""
    try:
        return did_you_mean(path.name, islice((p.name for p in path.parent.iterdir()), MAX_NODES))
    except OSError:
        return None


def read_bytes(path: Path, limit: int = MAX_FILE_BYTES, hint: str | None = None) -> bytes:
    """The content of a regular file of at most ``limit`` bytes. Raises ProfileError."""
    with open_file(path, limit, hint) as stream:
        try:
            content = stream.read(limit + 1)
        except OSError as error:
            raise ProfileError(f"{path}: cannot be read: {error.strerror or error}", hint or _IS_IT) from error
    if len(content) > limit:  # it grew, or its size is not known beforehand (/proc)
        raise ProfileError(f"{path}: more than {limit:,} bytes; no more are read", hint or _IS_IT)
    return content


def sha256(content: bytes) -> str:
    """Hex digest that identifies a profile's content."""
    return hashlib.sha256(content).hexdigest()


def parse_yaml(content: bytes, name: str) -> Document:
    """Parse one YAML document into plain data with places.

    Raises ProfileError (exit code 3) naming file, line and column.
    """
    import yaml

    def fail(mark: Any, message: str, hint: str = _PLAIN) -> ProfileError:
        return ProfileError(f"{name}:{mark.line + 1}:{mark.column + 1}: {message}", hint)

    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProfileError(f"{name}:{line}:1: not UTF-8 text", "is this a YAML file?") from error
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(fail)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.feed(event, yaml)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ProfileError(f"{place}: {error.problem or 'not valid YAML'}", _PLAIN) from error
    except yaml.YAMLError as error:
        raise ProfileError(f"{name}:1:1: not valid YAML: {str(error).splitlines()[0]}", _PLAIN) from error
    except RecursionError as error:
        raise ProfileError(f"{name}:1:1: nested deeper than {MAX_DEPTH} levels", _PLAIN) from error
    return Document(builder.root, builder.places, name)


class _Builder:
    """Builds plain data from YAML events with a stack of its own: depth costs no recursion."""

    def __init__(self, fail: Callable[..., ProfileError]) -> None:
        self.fail = fail
        self.root: Any = None
        self.places: dict[Place, tuple[int, int]] = {}
        self.stack: list[tuple[Any, Place]] = []  # open containers
        self.keys: list[Key | None] = []  # the pending key of each open mapping
        self.nodes = 0
        self.documents = 0

    def feed(self, event: Any, yaml: Any) -> None:
        mark = event.start_mark
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self.fail(mark, "a second document starts here", "one file holds one profile")
        elif isinstance(event, yaml.AliasEvent):
            raise self.fail(mark, f"alias *{event.anchor} is not allowed", "write the value out")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self.stack.pop()
            self.keys.pop()
        elif isinstance(event, (yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._node(event, mark, yaml)

    def _node(self, event: Any, mark: Any, yaml: Any) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.fail(mark, f"more than {MAX_NODES:,} values")
        if event.anchor:
            raise self.fail(mark, f"anchor &{event.anchor} is not allowed", "write the value out where it is used")
        if event.tag and event.tag != "!":
            raise self.fail(mark, f"tag {event.tag} is not allowed", "profiles hold plain values only")
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style is None or event.style == ""
            self._place(plain_scalar(event.value) if plain else event.value, mark, is_scalar=True)
            return
        if len(self.stack) >= MAX_DEPTH:
            raise self.fail(mark, f"nested deeper than {MAX_DEPTH} levels")
        container: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        place = self._place(container, mark, is_scalar=False)
        self.stack.append((container, place))
        self.keys.append(None)

    def _place(self, value: Any, mark: Any, *, is_scalar: bool) -> Place:
        here = (mark.line + 1, mark.column + 1)
        if not self.stack:
            self.root = value
            self.places[()] = here
            return ()
        container, place = self.stack[-1]
        if isinstance(container, list):
            container.append(value)
            child: Place = (*place, len(container) - 1)
            self.places[child] = here
            return child
        key = self.keys[-1]
        if key is None:
            if not is_scalar or not isinstance(value, (str, int)) or isinstance(value, bool):
                raise self.fail(mark, f"a key must be a word, not {_shown(value)}")
            key = str(value)
            if key == "<<":
                raise self.fail(mark, "merge keys are not allowed", "write the values out")
            if key in container:
                first = self.places[(*place, key)][0]
                raise self.fail(mark, f"key {_shown(key)} stands twice; the first is on line {first}", "keep one of them")
            container[key] = None
            self.places[(*place, key)] = here
            self.keys[-1] = key
            return (*place, key)
        container[key] = value
        self.keys[-1] = None
        return (*place, key)


def plain_scalar(text: str) -> Any:
    """What an unquoted scalar means under YAML 1.2: null, a boolean, a number or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text) if len(text) <= 40 else float(text) if len(text) <= 300 else text
    if _HEX.match(text):
        return int(text, 0) if len(text) <= 40 else text
    if _FLOAT.match(text):
        return float(text)
    return text


def convert(document: Document, schema: type[T], cross_check: CrossCheck[T] | None = None) -> T:
    """Plain data → struct of ``schema``; raises ProfileError with every fault at its place."""
    faults: list[str] = []
    data = document.data
    if not isinstance(data, dict):
        kind = "is empty" if data is None else f"holds a {type(data).__name__}"
        raise ProfileError(f"{document.at(())}: the file {kind}; a mapping of keys was expected", _KEYS_OF)
    try:
        result = msgspec.convert(data, schema)
    except msgspec.ValidationError as error:
        faults = _all_faults(document, schema, str(error))
        raise _as_error(faults) from error
    if cross_check:
        faults = [f"{document.at(place)}: {message}" for place, message in cross_check(result)]
    if faults:
        raise _as_error(faults)
    return result


def _as_error(faults: list[str]) -> ProfileError:
    more = f" (and {len(faults) - 1} more fault{'s' if len(faults) > 2 else ''})" if len(faults) > 1 else ""
    hint = "\n".join(faults[1:MAX_FAULTS]) or _KEYS_OF
    return ProfileError(faults[0] + more, hint, faults)


def _all_faults(document: Document, schema: type[Any], message: str) -> list[str]:
    """Convert again and again with the faulty node set aside until nothing is left to say.

    msgspec stops at the first fault. A node that was set aside may make its parent incomplete; that echo is not a fault of the file,
    so the parent is set aside silently in turn.
    """
    import copy

    rest = _Rest(copy.deepcopy(document.data))
    faults: list[str] = []
    while len(faults) < MAX_FAULTS:
        text, here = _split_path(message, rest.data, schema)
        place = rest.original(here)
        unknown = re.match(r"Object contains unknown field `(.*)`", text)
        missing = re.match(r"Object missing required field `(.*)`", text)
        if unknown:
            known = _vocabulary(schema, "fields")
            near = "it belongs elsewhere in the file" if unknown[1] in known else did_you_mean(unknown[1], known)
            faults.append(f"{document.at((*place, unknown[1]))}: unknown key {_shown(unknown[1])}" + (f"; {near}" if near else ""))
            here = (*here, unknown[1])
        elif not missing:
            faults.append(f"{document.at(place)}: {_dotted(place)}{_plainly(text, rest.data, here, schema)}")
        else:
            absent = _missing_keys(schema, here, rest.data) or [missing[1]]
            gone = [k for k in absent if (*place, k) not in rest.aside]
            faults += [f"{document.at(place)}: {_dotted(place)}key {k!r} is missing" for k in gone]
        if not here:
            break
        rest.set_aside(here)
        try:
            msgspec.convert(rest.data, schema)
            break
        except msgspec.ValidationError as error:
            message = str(error)
    return faults


class _Rest:
    """What remains of the data while faulty nodes are set aside; elements of a list keep the index they have in the file."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.aside: set[Place] = set()
        self.indices: dict[int, list[int]] = {}  # id of a shortened list → index in the file of each element left

    def original(self, place: Place) -> Place:
        node, found = self.data, []
        for key in place:
            found.append(self.indices[id(node)][key] if isinstance(key, int) and id(node) in self.indices else key)
            node = _look_up(node, (key,))
        return tuple(found)

    def set_aside(self, place: Place) -> None:
        self.aside.add(self.original(place))
        parent, key = _look_up(self.data, place[:-1]), place[-1]
        if isinstance(parent, dict):
            parent.pop(key, None)
        elif isinstance(parent, list) and isinstance(key, int) and key < len(parent):
            self.indices.setdefault(id(parent), list(range(len(parent)))).pop(key)
            parent.pop(key)


def _missing_keys(schema: type[Any], place: Place, data: Any) -> list[str]:
    """All required keys that the mapping at a place lacks: its struct is found by walking the schema along the place."""
    from msgspec import inspect

    kind: Any = inspect.type_info(schema)
    node = data
    for key in place:
        kind, node = _child(_struct_for(kind, node), key), _look_up(node, (key,))
    struct = _struct_for(kind, node)
    if not isinstance(struct, inspect.StructType) or not isinstance(node, dict):
        return []
    return [f.encode_name for f in struct.fields if f.required and f.encode_name not in node]


def _struct_for(kind: Any, node: Any) -> Any:
    """The member of a union that a node means: by its tag, else the only container."""
    from msgspec import inspect

    if not isinstance(kind, inspect.UnionType):
        return kind
    structs = [k for k in kind.types if isinstance(k, inspect.StructType)]
    for struct in structs:
        if struct.tag_field and isinstance(node, dict) and node.get(struct.tag_field) == struct.tag:
            return struct
    if isinstance(node, dict) and len(structs) == 1:
        return structs[0]
    wanted = inspect.ListType if isinstance(node, list) else inspect.DictType
    return next((k for k in kind.types if isinstance(k, wanted)), None)


def _child(kind: Any, key: Key) -> Any:
    from msgspec import inspect

    if isinstance(kind, inspect.StructType):
        return next((f.type for f in kind.fields if f.encode_name == key), None)
    if isinstance(kind, inspect.ListType):
        return kind.item_type
    return kind.value_type if isinstance(kind, inspect.DictType) else None


def _dotted(place: Place) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".") + ": " if place else ""


def _plainly(text: str, data: Any, place: Place, schema: type[Any]) -> str:
    value = _look_up(data, place)
    if text.startswith(("Invalid value", "Invalid enum value")):
        near = did_you_mean(str(value), _vocabulary(schema, "values"))
        return f"unknown value {_shown(value)}" + (f"; {near}" if near else "")
    said = text[0].lower() + text[1:]
    return said + ("" if isinstance(value, (dict, list)) or "got" not in text else f" ({_shown(value)})")


def _shown(value: Any) -> str:
    """A value in a message, cut where nobody would read it to the end."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text):,} characters)"


def _look_up(data: Any, place: Place) -> Any:
    for key in place:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _split_path(message: str, data: Any, schema: type[Any]) -> tuple[str, Place]:
    """``text - at `$.a[0].b``` → text and place; a mapping value (``[...]``) is found by trying each key alone."""
    text, _, path = message.partition(" - at `")
    path = path.rstrip("`")
    place: list[Key] = []
    for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        if name:
            place.append(name)
        elif index != "...":
            place.append(int(index))
        else:
            place.append(_guilty_key(message, data, tuple(place), schema))
    return text, tuple(place)


def _guilty_key(message: str, data: Any, place: Place, schema: type[Any]) -> str:
    import copy

    mapping = _look_up(data, place)
    for key in mapping if isinstance(mapping, dict) else ():
        trial = copy.deepcopy(data)
        container = _look_up(trial, place)
        for other in list(container):
            if other != key:
                del container[other]
        try:
            msgspec.convert(trial, schema)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return str(key)
    return next(iter(mapping), "") if isinstance(mapping, dict) else ""


def _vocabulary(schema: type[Any], what: str) -> set[str]:
    """All field names, or all literal values and union tags, that a schema knows."""
    from msgspec import inspect

    words: set[str] = set()
    seen: set[Any] = set()

    def walk(kind: Any) -> None:
        if isinstance(kind, inspect.StructType):
            if kind.cls in seen:
                return
            seen.add(kind.cls)
            if what == "values" and kind.tag is not None:
                words.add(str(kind.tag))
            if what == "fields" and kind.tag_field:
                words.add(kind.tag_field)
            for field in kind.fields:
                if what == "fields":
                    words.add(field.encode_name)
                walk(field.type)
        elif isinstance(kind, inspect.UnionType):
            for member in kind.types:
                walk(member)
        elif isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
            walk(kind.item_type)
        elif isinstance(kind, inspect.DictType):
            walk(kind.key_type)
            walk(kind.value_type)
        elif isinstance(kind, inspect.LiteralType) and what == "values":
            words.update(str(v) for v in kind.values)

    walk(inspect.type_info(schema))
    return words
