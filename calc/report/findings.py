"""What ``roofcast check`` found, for people (text) and for machines (json, github, sarif, junit)."""

# ruff: noqa: D102 (the members of the protocols are described where they are defined)

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

FORMATS = ("text", "json", "github", "sarif", "junit")
_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Finding(Protocol):
    """The fields of a finding that are shown."""

    @property
    def rule(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...
    @property
    def subject(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def expected(self) -> float | int | str | None: ...
    @property
    def found(self) -> float | int | str | None: ...
    @property
    def ratio(self) -> float | None: ...
    @property
    def cause(self) -> str | None: ...
    @property
    def remedy(self) -> str | None: ...
    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        ...


class Report(Protocol):
    """What a run found."""

    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def files(self) -> int: ...
    @property
    def paths(self) -> Sequence[str]: ...
    @property
    def ignored(self) -> int: ...
    def results(self) -> dict[str, Any]:
        """Plain data."""
        ...


class Rule(Protocol):
    """What is shown of a rule."""

    @property
    def id(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def arithmetic(self) -> str: ...
    @property
    def example(self) -> str: ...


def render(wanted: str, report: Report, rules: Sequence[Rule], inputs: dict[str, Any] | None = None) -> str:
    """The report in one of FORMATS."""
    makers: dict[str, Callable[[], str]] = {
        "text": lambda: text(report),
        "json": lambda: as_json(report, inputs or {}),
        "github": lambda: github(report),
        "sarif": lambda: sarif(report, rules),
        "junit": lambda: junit(report),
    }
    return makers[wanted]()


def rule_list(rules: Sequence[Rule]) -> str:
    """One line per rule: what ``--rules`` prints."""
    return "".join(f"{r.id:<4}{r.severity:<9}{r.sentence}\n" for r in rules)


def text(report: Report) -> str:
    """One paragraph per finding and a closing line; control characters of file contents are shown, not sent to the terminal."""
    lines = []
    for f in report.findings:
        lines.append(f"{f.file}:{f.line}:{f.column}: {f.rule} {f.severity}: {f.subject}: {f.message}")
        lines += [f"    {line}" for line in _details(f)]
    count = len(report.findings)
    severities = Counter(f.severity for f in report.findings)
    summary = f"{report.files} file{'s' * (report.files != 1)} checked"
    told = ", ".join(f"{n} {severity}{'s' * (n != 1)}" for severity, n in sorted(severities.items()))
    silenced = f", {report.ignored} ignored with a reason" if report.ignored else ""
    lines.append(f"{summary}: {told if count else 'no findings'}{silenced}")
    return "".join(_printable(line) + "\n" for line in lines)


def _details(f: Finding) -> list[str]:
    lines = []
    values = [f"{name} {_value(v)}" for name, v in (("expected", f.expected), ("found", f.found)) if v is not None]
    if f.ratio is not None:
        values.append(f"ratio {f.ratio:.4g}")
    if values:
        lines.append(", ".join(values))
    if f.cause:
        lines.append(f"likely cause: {f.cause}")
    if f.remedy:
        lines.append(f"remedy: {f.remedy}")
    return lines


def _value(value: float | int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def as_json(report: Report, inputs: dict[str, Any]) -> str:
    """The JSON envelope ``roofcast.check/1``."""
    from calc.report.records import dumps, envelope

    return dumps(envelope("check", inputs, [], report.results(), ()))


def github(report: Report) -> str:
    """Workflow commands: GitHub shows them on the lines of a pull request."""
    lines = []
    for f in report.findings:
        where = f"file={_property(f.file)},line={f.line},col={f.column},title={_property(f'{f.rule} {f.subject}')}"
        lines.append(f"::{f.severity} {where}::{_data(_one_text(f))}\n")
    return "".join(lines)


def _one_text(f: Finding) -> str:
    return "\n".join([f.message, *_details(f)])


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(report: Report, rules: Sequence[Rule]) -> str:
    """SARIF 2.1.0: one run, all rules described, one result per finding."""
    from calc.version import VERSION

    index = {r.id: i for i, r in enumerate(rules)}
    driver = {
        "name": "roofcast",
        "version": VERSION,
        "rules": [
            {
                "id": r.id,
                "shortDescription": {"text": r.sentence},
                "fullDescription": {"text": r.arithmetic},
                "help": {"text": f"{r.arithmetic}\n\nExample: {r.example}"},
                "defaultConfiguration": {"level": r.severity},
            }
            for r in rules
        ],
    }
    results = [
        {
            "ruleId": f.rule,
            "ruleIndex": index[f.rule],
            "level": f.severity,
            "message": {"text": f"{f.subject}: {_one_text(f)}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(f.file)},
                        "region": {"startLine": f.line, "startColumn": f.column},
                    }
                }
            ],
            "properties": {"expected": f.expected, "found": f.found, "ratio": f.ratio},
        }
        for f in report.findings
    ]
    log = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _uri(path: str) -> str:
    from urllib.parse import quote

    return ("file://" if path.startswith("/") else "") + quote(path)


def junit(report: Report) -> str:
    """JUnit XML: one test case per file, one failure per finding."""
    import xml.etree.ElementTree as ET

    by_file: dict[str, list[Finding]] = {path: [] for path in report.paths}
    for f in report.findings:
        by_file.setdefault(f.file, []).append(f)
    failed = sum(bool(found) for found in by_file.values())
    counts = {"tests": str(len(by_file)), "failures": str(failed), "errors": "0", "time": "0"}
    root = ET.Element("testsuites", {"name": "roofcast check", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "roofcast check", **counts, "skipped": "0"})
    for path, found in by_file.items():
        case = ET.SubElement(suite, "testcase", {"classname": "roofcast.check", "name": _xml(path), "time": "0"})
        for f in found:
            failure = ET.SubElement(case, "failure", {"type": f.rule, "message": _xml(f"{f.line}:{f.column} {f.message}")})
            failure.text = _xml(f"{f.file}:{f.line}:{f.column}: {f.rule} {f.severity}: {f.subject}: {_one_text(f)}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _xml(value: str) -> str:
    """``value`` without the characters that XML 1.0 cannot hold."""
    return "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000" else "?" for c in value
    )
