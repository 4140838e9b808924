"""What ``roofcast check`` found, for people (text) and for machines (json, github, sarif, junit)."""

# ruff: noqa: D102 (the members of the protocols are described where they are defined)

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from calc.report import ci
from calc.report.table import printable, terminal_width

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


#: A space that no line breaks at: what is searched for stays on one line.
_TOGETHER = "\u00a0"


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
        place = f"{f.file}:{f.line}:{f.column}: {f.rule} {f.severity}:".replace(" ", _TOGETHER)
        lines.append(f"{place} {f.subject}: {f.message}")
        lines += [f"    {line}" for line in _details(f)]
    count = len(report.findings)
    severities = Counter(f.severity for f in report.findings)
    summary = f"{report.files} file{'s' * (report.files != 1)} checked"
    told = ", ".join(f"{n} {severity}{'s' * (n != 1)}" for severity, n in sorted(severities.items()))
    silenced = f", {report.ignored} ignored with a reason" if report.ignored else ""
    lines.append(f"{summary}: {told if count else 'no findings'}{silenced}")
    width = terminal_width()
    shown = (_TOGETHER.join(map(printable, line.split(_TOGETHER))) for line in lines)
    return "".join(f"{part}\n" for line in shown for part in _wrapped(line, width))


def _wrapped(line: str, width: int) -> list[str]:
    """A line on as many as it takes; what follows stands indented, and places and names stay whole."""
    start = len(line) - len(line.lstrip())
    after = " " * (start + 4)
    found = textwrap.wrap(line, width, subsequent_indent=after, break_long_words=False, break_on_hyphens=False) or [line]
    return [part.replace(_TOGETHER, " ") for part in found]


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


def as_json(report: Report, inputs: dict[str, Any]) -> str:
    """The JSON envelope ``roofcast.check/1``."""
    from calc.report.records import dumps, envelope

    return dumps(envelope("check", inputs, [], report.results(), ()))


def github(report: Report) -> str:
    """Workflow commands: GitHub shows them on the lines of a pull request."""
    return ci.github(
        ci.Annotation(f.severity, f.file, f.line, f.column, f"{f.rule} {f.subject}", _one_text(f)) for f in report.findings
    )


def _one_text(f: Finding) -> str:
    return "\n".join([f.message, *_details(f)])


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
    by_file: dict[str, list[ci.Failure]] = {path: [] for path in report.paths}
    for f in report.findings:
        whole = f"{f.file}:{f.line}:{f.column}: {f.rule} {f.severity}: {f.subject}: {_one_text(f)}"
        by_file.setdefault(f.file, []).append(ci.Failure(f.rule, f"{f.line}:{f.column} {f.message}", whole))
    return ci.junit("roofcast check", [ci.Case("roofcast.check", path, found) for path, found in by_file.items()])
