"""A file under check: read and parsed once, with the place of every value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from calc.errors import ProfileError
from calc.profiles import reader
from calc.profiles.reader import Document, Place

Kind = Literal["hardware", "model", "efficiency", "scenario", "unknown"]

#: Top-level keys that tell what a file is; the kind with most of them wins, so a missing key does not hide the file.
_KEYS: dict[Kind, frozenset[str]] = {
    "hardware": frozenset(
        {"peak_dense_tflops", "memory_capacity_gb", "memory_bandwidth_gb_per_s", "unit_of_account", "interconnect"}
    ),
    "model": frozenset({"layer_kinds", "stack", "hidden_size", "vocab_size", "storage"}),
    "efficiency": frozenset({"factors", "evidence", "origin"}),
    "scenario": frozenset({"scenarios"}),
}
_FAULT = re.compile(r"(?P<file>.*?):(?P<line>\d+):(?P<column>\d+): (?P<text>.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Fault:
    """A schema or YAML fault with its position."""

    line: int
    column: int
    text: str


@dataclass
class Subject:
    """One file: its kind, plain data and, where the schema accepts it, the profile."""

    path: Path
    name: str  # as shown
    kind: Kind
    text: str
    document: Document | None = None
    profile: Any = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The id of the profile, else the file's stem."""
        data = self.document.data if self.document else None
        given = data.get("id") if isinstance(data, dict) else None
        return given if isinstance(given, str) else self.path.stem

    def position(self, place: Place) -> tuple[int, int]:
        """Line and column of a node, or of its nearest ancestor in the file."""
        places = self.document.places if self.document else {}
        while place and place not in places:
            place = place[:-1]
        return places.get(place, (1, 1))


def kind_of(data: Any) -> Kind:
    """What a file is, by its top-level keys."""
    keys = set(data) if isinstance(data, dict) else set()
    best: Kind = max(_KEYS, key=lambda kind: len(keys & _KEYS[kind]))
    return best if keys & _KEYS[best] else "unknown"


def read(path: Path) -> Subject:
    """Read one file. Raises ProfileError when it cannot be read at all; what is wrong inside becomes faults."""
    content = reader.read_bytes(path)
    name = _shown(path)
    subject = Subject(path, name, "unknown", content.decode("utf-8-sig", errors="replace"))
    try:
        subject.document = reader.parse_yaml(content, name)
        subject.kind = kind_of(subject.document.data)
        _convert(subject)
    except ProfileError as error:
        subject.faults = [_fault(text) for text in error.faults or (error.message,)]
    return subject


def _convert(subject: Subject) -> None:
    document = subject.document
    if document is None:
        return
    if subject.kind == "hardware":
        from calc.profiles import hardware

        subject.profile = reader.convert(document, hardware.HardwareProfile, hardware.faults)
    elif subject.kind == "model":
        from calc.profiles import model, model_faults

        subject.profile = reader.convert(document, model.ModelProfile, model_faults.faults)
    elif subject.kind == "efficiency":
        from calc.profiles import efficiency

        subject.profile = reader.convert(document, efficiency.EfficiencyProfile, efficiency.faults)
    elif subject.kind == "scenario":
        from calc.profiles import scenario

        subject.profile = reader.convert(document, scenario.ScenarioFile, scenario.faults)


def _fault(text: str) -> Fault:
    found = _FAULT.match(text)
    return Fault(int(found["line"]), int(found["column"]), found["text"]) if found else Fault(1, 1, text)


def _shown(path: Path) -> str:
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.as_posix()
