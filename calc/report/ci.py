"""What build servers read: GitHub's workflow commands and JUnit XML, from any text, however it is spelt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Annotation:
    """A message at a place of a file; ``severity`` is error, warning or notice."""

    severity: str
    file: str
    line: int
    column: int
    title: str
    text: str


@dataclass(frozen=True)
class Failure:
    """Why a test case failed."""

    kind: str
    message: str
    text: str


@dataclass(frozen=True)
class Case:
    """A test case; it passed where it has no failures."""

    group: str
    name: str
    failures: Sequence[Failure] = ()


def github(annotations: Iterable[Annotation]) -> str:
    """Workflow commands: GitHub shows them on the lines of a pull request."""
    lines = []
    for a in annotations:
        where = f"file={_property(a.file)},line={a.line},col={a.column},title={_property(a.title)}"
        lines.append(f"::{a.severity} {where}::{_data(a.text)}\n")
    return "".join(lines)


# Escapes of github.com/actions/toolkit, packages/core/src/command.ts.
def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def junit(suite: str, cases: Sequence[Case]) -> str:
    """JUnit XML of one suite."""
    import xml.etree.ElementTree as ET

    failed = sum(bool(case.failures) for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "time": "0"}
    root = ET.Element("testsuites", {"name": suite, **counts})
    inner = ET.SubElement(root, "testsuite", {"name": suite, **counts, "skipped": "0"})
    for case in cases:
        element = ET.SubElement(inner, "testcase", {"classname": _xml(case.group), "name": _xml(case.name), "time": "0"})
        for f in case.failures:
            failure = ET.SubElement(element, "failure", {"type": _xml(f.kind), "message": _xml(f.message)})
            failure.text = _xml(f.text)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _xml(value: str) -> str:
    """``value`` without the characters that XML 1.0 cannot hold."""
    return "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000" else "?" for c in value
    )
