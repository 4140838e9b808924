"""Finds profiles by name, alias or path: project, user and bundled folders, with a generated index that is never trusted over a file.

Search order: explicit path, ``--profiles-dir``, ``ROOFCAST_PROFILES``, ``./model_profiles`` and ``./hardware_profiles``, the user folder,
bundled. Names match exactly after folding case and spaces; for models a second look ignores ``meta-`` and the words instruct, chat, it
and hf, and answers only when one profile remains.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from calc.errors import ProfileError, UnknownNameError, did_you_mean
from calc.profiles import reader, sources

Kind = Literal["model", "hardware"]
P = TypeVar("P")
INDEX_NAME = "index.json"
_MARKS = {"model": b"layer_kinds:", "hardware": b"peak_dense_tflops:"}


@dataclass(frozen=True)
class Loaded(Generic[P]):
    """A profile with where it came from; ``notices`` are for standard error."""

    profile: P
    kind: Kind
    name: str
    path: Path | None
    sha256: str
    notices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


@dataclass(frozen=True)
class Entry:
    """What a name resolves to. ``columns`` are the figures of list commands, empty where no index gave them."""

    id: str
    names: tuple[str, ...]  # id, display name, hub id and aliases
    path: Path
    sha256: str | None = None  # of the file the index was made from
    columns: dict[str, Any] = field(default_factory=dict)


def fold(name: str) -> str:
    """Case and runs of spaces do not matter in names."""
    return " ".join(name.split()).casefold()


def stem(name: str) -> str:
    """A model name without its organisation, ``meta-`` and the words that mark tuning or packaging."""
    words = fold(name).rpartition("/")[2].removeprefix("meta-")
    return re.sub(r"-(instruct|chat|it|hf)(?=-|$)", "", words)


def bundled_folder(kind: Kind) -> Path:
    """The folder that ships with roofcast: inside the package, else beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / f"{kind}_profiles"
    if inside.is_dir():
        return inside
    beside = package.parent / f"{kind}_profiles"
    if beside.is_dir() and (package.parent / "pyproject.toml").is_file():
        return beside
    raise ProfileError(f"the bundled {kind} profiles are missing from {package}", "reinstall roofcast")


def user_folder() -> Path:
    """Where a user keeps profiles of their own (``ROOFCAST_HOME`` redirects it)."""
    home = os.environ.get("ROOFCAST_HOME")
    if home:
        return Path(home)
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(base) if base else Path.home() / ".config") / "roofcast"
    except RuntimeError:  # no home folder at all
        return Path(".roofcast-no-home")


def folders(kind: Kind, profiles_dir: str | None = None) -> list[Path]:
    """Existing folders that may hold profiles of a kind, in search order, each once."""
    wanted: list[Path] = []
    for given in (profiles_dir, os.environ.get("ROOFCAST_PROFILES")):
        if given:
            base = Path(given)
            if not base.is_dir():
                raise ProfileError(f"{given}: no such folder of profiles", "name a folder that holds .yaml profiles")
            wanted.append(base / f"{kind}_profiles" if (base / f"{kind}_profiles").is_dir() else base)
    wanted += [Path(f"{kind}_profiles"), user_folder() / f"{kind}_profiles", bundled_folder(kind)]
    found: dict[Path, Path] = {}
    for folder in wanted:
        try:
            if folder.is_dir():
                found.setdefault(folder.resolve(), folder)
        except OSError:
            continue
    return list(found.values())


def profile_files(folder: Path) -> list[Path]:
    """YAML files below a folder, sorted."""
    return sorted(p for p in folder.rglob("*.y*ml") if p.suffix in (".yaml", ".yml") and p.is_file())


def _index(folder: Path) -> dict[str, Entry]:
    """Entries of a folder's index by path; empty where there is none or it makes no sense. Read anew only when the file changes."""
    file = folder.resolve() / INDEX_NAME
    try:
        state = file.stat()
        return _read_index(file, state.st_mtime_ns, state.st_size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@lru_cache(maxsize=16)
def _read_index(file: Path, modified_ns: int, size: int) -> dict[str, Entry]:
    rows = json.loads(file.read_bytes())["profiles"].items()
    return {
        path: Entry(str(v["id"]), tuple(map(str, v["names"])), file.parent / path, str(v["sha256"]), dict(v["columns"]))
        for path, v in rows
    }


def _entries(folder: Path, kind: Kind, verify: bool) -> list[Entry]:
    """The profiles of a folder. With ``verify`` each file is compared with the index; without, the index alone answers if present."""
    index = _index(folder)
    return list(index.values()) if index and not verify else list(_scan(folder, kind, index))


def _scan(folder: Path, kind: Kind, index: dict[str, Entry]) -> Iterator[Entry]:
    for path in profile_files(folder):
        known = index.get(path.relative_to(folder).as_posix())
        try:
            content = reader.read_bytes(path)
        except ProfileError:
            continue
        if known and known.sha256 == reader.sha256(content):
            yield known
        elif is_kind(content, kind):
            try:
                data = reader.parse_yaml(content, str(path)).data
            except ProfileError:
                data = {}
            data = data if isinstance(data, dict) else {}
            identifier = data["id"] if isinstance(data.get("id"), str) else path.stem
            yield Entry(identifier, tuple(dict.fromkeys((*names_of(identifier, data), path.stem))), path)


def is_kind(content: bytes, kind: Kind) -> bool:
    """Whether a file's text is that of a profile of a kind: by the key that only this kind has."""
    return b"\n" + _MARKS[kind] in b"\n" + content


def names_of(identifier: str, data: dict[str, Any]) -> tuple[str, ...]:
    """Every exact name of a profile: id, display name, Hub id, aliases."""
    aliases = data.get("aliases") or []
    words = [identifier, data.get("name"), data.get("hub_id"), *(aliases if isinstance(aliases, list) else [])]
    return tuple(dict.fromkeys(w for w in words if isinstance(w, str)))


def looks_like_path(text: str) -> bool:
    """Whether a MODEL or HARDWARE argument names a file or folder rather than a profile."""
    return (
        text.endswith((".yaml", ".yml", ".json", ".gguf"))
        or text.startswith((".", "/", "~", sources.HUB_PREFIX))
        or os.path.isdir(text)
    )


def count(folder: Path, kind: Kind) -> int:
    """How many profiles of a kind a folder holds."""
    return len(_entries(folder, kind, True))


def entries(kind: Kind, profiles_dir: str | None = None) -> list[Entry]:
    """All profiles of a kind, nearest folder first; a shadowed id appears once."""
    seen: dict[str, Entry] = {}
    for folder in folders(kind, profiles_dir):
        for entry in _entries(folder, kind, True):
            seen.setdefault(entry.id, entry)
    return sorted(seen.values(), key=lambda e: e.id)


def completions(incomplete: str, kind: Kind) -> list[str]:
    """Names for shell completion: ids first, then other names without spaces that begin with what was typed."""
    start = fold(incomplete)
    found: dict[str, None] = {}
    try:
        listed = [e for folder in folders(kind) for e in _entries(folder, kind, False)]
    except ProfileError:
        return []
    for name in [e.id for e in listed] + [n for e in listed for n in e.names]:
        if fold(name).startswith(start) and " " not in name:
            found.setdefault(name)
    return list(found)


def find(name: str, kind: Kind, profiles_dir: str | None = None) -> tuple[Entry, tuple[str, ...]]:
    """The entry that a name means, and notices (what it shadows). Raises UnknownNameError with the nearest names."""
    return _match(name, kind, profiles_dir, verify=False) or _find_in_files(name, kind, profiles_dir)


def _find_in_files(name: str, kind: Kind, profiles_dir: str | None) -> tuple[Entry, tuple[str, ...]]:
    """Like find, but every file is compared with the index first."""
    found = _match(name, kind, profiles_dir, verify=True)
    if found:
        return found
    entries_found = [e for folder in folders(kind, profiles_dir) for e in _entries(folder, kind, True)]
    ids = {e.id for e in entries_found} | ({stem(e.id) for e in entries_found} if kind == "model" else set())
    known = ids | {n for e in entries_found for n in e.names}
    listing = f"`roofcast {'models' if kind == 'model' else 'hardware'} list` shows all"
    near = _file_of(name) or (_several(name, profiles_dir) if kind == "hardware" else None)
    raise UnknownNameError(f"unknown {kind} {name!r}", near or did_you_mean(name, ids) or did_you_mean(name, known) or listing)


def _file_of(name: str) -> str | None:
    """A file of that name in the folder where one works: it is named as a path."""
    found = next((f for f in (f"{name}.yaml", f"{name}.yml") if "/" not in name and os.path.isfile(f)), None)
    return found and f"did you mean ./{found}?"


def _several(name: str, profiles_dir: str | None) -> str | None:
    """``2xH100``: the number of devices belongs to an option."""
    match = re.fullmatch(r"(\d+)\s*[x×*]\s*(\S.*)", name.strip(), re.IGNORECASE)
    if match is None:
        return None
    try:
        near = f"did you mean {find(match[2], 'hardware', profiles_dir)[0].id}?"
    except UnknownNameError as error:
        near = error.hint
    return f"{near.removesuffix('?')} with --gpus {match[1]}?" if near.endswith("?") else None


def _match(name: str, kind: Kind, profiles_dir: str | None, *, verify: bool) -> tuple[Entry, tuple[str, ...]] | None:
    wanted = fold(name)
    hits: list[Entry] = []
    for folder in folders(kind, profiles_dir):
        exact = [e for e in _entries(folder, kind, verify) if wanted in map(fold, e.names)]
        if len({e.id for e in exact}) > 1 and wanted not in {e.id for e in exact}:
            _ambiguous(name, kind, exact)
        hits += [e for e in exact if e.id == wanted] or exact[:1]
    if hits:
        return hits[0], _shadows(hits[0], kind, profiles_dir, verify=verify)
    if kind == "model":
        for folder in folders(kind, profiles_dir):
            near = {e.id: e for e in _entries(folder, kind, verify) if stem(name) in map(stem, e.names)}
            if len(near) == 1:
                return next(iter(near.values())), ()
            if near:
                _ambiguous(name, kind, list(near.values()))
    return None


def _ambiguous(name: str, kind: Kind, hits: list[Entry]) -> None:
    raise UnknownNameError(f"{kind} {name!r} is ambiguous", "one of: " + ", ".join(sorted(e.id for e in hits)))


def _shadows(chosen: Entry, kind: Kind, profiles_dir: str | None, *, verify: bool) -> tuple[str, ...]:
    """Say so when a later folder holds another profile of the same id; identical content is no shadow."""
    for folder in folders(kind, profiles_dir):
        for other in _entries(folder, kind, verify):
            if other.id != chosen.id or other.path.resolve() == chosen.path.resolve():
                continue
            if reader.read_bytes(other.path) != reader.read_bytes(chosen.path):
                return (f"{chosen.path} shadows the profile {other.id} in {other.path.parent}",)
    return ()


def schema_of(kind: Kind) -> tuple[type[Any], Any]:
    """The struct and the cross-field check of a kind."""
    if kind == "model":
        from calc.profiles import model, model_faults

        return model.ModelProfile, model_faults.faults
    from calc.profiles import hardware

    return hardware.HardwareProfile, hardware.faults


def load_file(path: Path, kind: Kind) -> Loaded[Any]:
    """Read one profile file. Raises ProfileError with every fault."""
    content = reader.read_bytes(path)
    schema, cross_check = schema_of(kind)
    document = reader.parse_yaml(content, str(path))
    profile = reader.convert(document, schema, cross_check)
    return Loaded(profile, kind, profile.id, path, reader.sha256(content))


def _load_source(name: str) -> Loaded[Any]:
    """A model from the files it was published with; the digest is that of the config, or of a GGUF header."""
    found = sources.read_source(name)
    return Loaded(found.profile, "model", found.profile.id, found.path, found.sha256, found.warnings)


def load(name: str, kind: Kind, profiles_dir: str | None = None) -> Loaded[Any]:
    """A profile by path, name or alias."""
    if looks_like_path(name):
        return _load_source(name) if kind == "model" and sources.is_source(name) else load_file(Path(name).expanduser(), kind)
    entry, notices = find(name, kind, profiles_dir)
    if entry.sha256 is not None and not _is_current(entry):
        entry, notices = _find_in_files(name, kind, profiles_dir)
    loaded = load_file(entry.path, kind)
    return Loaded(loaded.profile, kind, loaded.name, loaded.path, loaded.sha256, notices)


def _is_current(entry: Entry) -> bool:
    try:
        return reader.sha256(entry.path.read_bytes()) == entry.sha256
    except OSError:
        return False
