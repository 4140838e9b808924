"""Ignore comments: ``# roofcast: ignore[C7] reason`` on a line, or on lines of its own above it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from calc.checks.finding import Finding
from calc.checks.registry import rules

_COMMENT = re.compile(r"(?:^|\s)#\s*roofcast:\s*(?P<rest>.*)$")
_IGNORE = re.compile(r"ignore\[(?P<rules>[^\]]*)\]\s*(?P<reason>.*)$")
_CANNOT_BE_IGNORED = {"S1", "I1", "I2"}


@dataclass
class Ignore:
    """One comment: where it stands, which line it covers, for which rules and why."""

    line: int
    column: int
    covers: int
    rules: tuple[str, ...]
    reason: str
    fault: str | None = None
    used: set[str] = field(default_factory=set)


def parse(text: str) -> list[Ignore]:
    """The ignore comments of a file."""
    if "roofcast:" not in text:
        return []
    lines = text.splitlines()
    known = {r.id for r in rules()} - _CANNOT_BE_IGNORED
    found = []
    for number, line in enumerate(lines, start=1):
        comment = _COMMENT.search(line)
        if not comment:
            continue
        alone = line.lstrip().startswith("#")
        covers = _next_line(lines, number) if alone else number
        found.append(_parse_one(comment["rest"], number, line.index("#", comment.start()) + 1, covers, known))
    return found


def _next_line(lines: list[str], number: int) -> int:
    for later in range(number, len(lines)):
        if lines[later].strip() and not lines[later].lstrip().startswith("#"):
            return later + 1
    return number


def _parse_one(rest: str, line: int, column: int, covers: int, known: set[str]) -> Ignore:
    matched = _IGNORE.match(rest)
    if not matched:
        return Ignore(line, column, covers, (), "", "not understood; write `# roofcast: ignore[C7] reason`")
    names = tuple(n.strip().upper() for n in matched["rules"].split(",") if n.strip())
    reason = matched["reason"].strip()
    unknown = [n for n in names if n not in known]
    fault = None
    if not names:
        fault = "names no rule"
    elif unknown:
        fault = f"{unknown[0]} is no rule that can be ignored"
    elif not reason:
        fault = "gives no reason"
    return Ignore(line, column, covers, names, reason, fault)


def apply(found: list[Finding], comments: list[Ignore]) -> list[Finding]:
    """Findings that no comment covers; comments that cover one are marked as used. A comment without a reason covers nothing."""
    left = []
    for finding in found:
        covering = [c for c in comments if c.fault is None and c.covers == finding.line and finding.rule in c.rules]
        for comment in covering:
            comment.used.add(finding.rule)
        if not covering:
            left.append(finding)
    return left


def complaints(file: str, subject: str, comments: list[Ignore], ran: Callable[[str], bool]) -> list[Finding]:
    """Findings about the comments themselves: faulty ones (I1), ones that cover nothing (I2)."""
    found = []
    for comment in comments:
        if comment.fault:
            found.append(
                Finding(
                    "I1",
                    "error",
                    file,
                    comment.line,
                    comment.column,
                    subject,
                    f"ignore comment {comment.fault}",
                    remedy="# roofcast: ignore[RULE] reason",
                )
            )
            continue
        unused = [r for r in comment.rules if r not in comment.used and ran(r)]
        if unused:
            found.append(
                Finding(
                    "I2",
                    "warning",
                    file,
                    comment.line,
                    comment.column,
                    subject,
                    f"nothing to ignore for {', '.join(unused)}",
                    cause="the figure was mended, or the comment stands on another line",
                    remedy="remove the comment",
                )
            )
    return found
