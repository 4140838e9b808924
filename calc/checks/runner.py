"""Runs the rules over files: each file is read and parsed once; one wrong figure makes one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calc.checks import ignores
from calc.checks.finding import Finding, Problem
from calc.checks.registry import Rule, checks_of, explain, rules, selection
from calc.checks.subject import Fault, Subject, read
from calc.errors import ProfileError
from calc.profiles import catalog

__all__ = ["CheckReport", "explain", "rules", "run_checks"]


@dataclass(frozen=True)
class CheckReport:
    """What a run found, sorted by file and line; ``files`` counts the profiles looked at, ``ignored`` the findings silenced."""

    findings: tuple[Finding, ...]
    files: int
    paths: tuple[str, ...]
    ignored: int

    @property
    def passed(self) -> bool:
        """No finding at all: exit code 0."""
        return not self.findings

    def results(self) -> dict[str, Any]:
        """``results`` of the JSON envelope."""
        return {"findings": [f.to_dict() for f in self.findings], "files": self.files, "ignored": self.ignored}


@dataclass
class _State:
    """One file in the run: its comments, findings, and figures that rules have refused."""

    subject: Subject
    findings: list[Finding] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # figure → rule

    def add(self, rule: Rule, problem: Problem) -> None:
        line, column = self.subject.position(problem.place)
        values = {name: getattr(problem, name) for name in ("message", "expected", "found", "ratio", "cause", "remedy")}
        severity = problem.severity or rule.severity
        self.findings.append(Finding(rule.id, severity, self.subject.name, line, column, self.subject.id, **values))

    def stands(self, rule: Rule, problem: Problem) -> bool:
        """Whether the figures of a problem are ones that no other rule has refused."""
        return not any(
            by != rule.id and _overlap(figure, refused)
            for figure in (*problem.refused, *problem.rests_on)
            for refused, by in self.refused.items()
        )


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def run_checks(paths: Sequence[Path] | None = None, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> CheckReport:
    """Check files and folders (None: all bundled profiles).

    ``select`` and ``ignore`` name rules or families (C, M, E, S, I). In a folder, files that are no profiles are passed over. Raises
    ProfileError when a path cannot be read.
    """
    counts = selection(select, ignore)
    states = []
    for path, named in _files(paths):
        subject = read(path)
        if subject.kind == "unknown" and not named and not subject.faults:
            continue
        if subject.kind == "unknown" and not subject.faults:
            subject.faults = [
                Fault(1, 1, "neither a model, a hardware, an efficiency nor a scenario file: none of their keys stands here")
            ]
        states.append(_State(subject))
    for state in states:
        _check_one(state)
    _check_library(states, bundled=paths is None)
    return _report(states, counts)


def _files(paths: Sequence[Path] | None) -> Iterator[tuple[Path, bool]]:
    """Files to check, each once, and whether the caller named them one by one."""
    if paths is None:
        paths = [catalog.bundled_folder("hardware"), catalog.bundled_folder("model")]
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            inside = [p for p in catalog.profile_files(path) if not any(part.startswith(".") for part in p.relative_to(path).parts)]
            found = [(p, False) for p in inside]
        elif path.exists():
            found = [(path, True)]
        else:
            raise ProfileError(f"{path}: no such file or folder", "name profiles, or folders that hold them")
        for file, named in found:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file, named


def _check_one(state: _State) -> None:
    subject = state.subject
    for fault in subject.faults:
        state.findings.append(
            Finding(
                "S1",
                "error",
                subject.name,
                fault.line,
                fault.column,
                subject.id,
                fault.text,
                remedy="`roofcast schema` prints what is allowed",
            )
        )
    if subject.faults or subject.kind == "scenario":
        return
    _run(state, checks_of("file"), subject)
    if subject.kind == "hardware":
        from calc.checks.hardware_rules.device import Device

        _run(state, checks_of("hardware"), Device(subject))
    elif subject.kind in ("model", "efficiency"):
        _run(state, checks_of("model" if subject.kind == "model" else "efficiency"), subject)


def _run(state: _State, checks: Iterable[tuple[Rule, Callable[[Any], Iterable[Any]]]], target: Any) -> None:
    for rule, check in checks:
        for problem in [p for p in check(target) if state.stands(rule, p)]:
            state.add(rule, problem)
            for figure in problem.refused:
                state.refused.setdefault(figure, rule.id)


def _check_library(states: list[_State], *, bundled: bool) -> None:
    from calc.checks.collection_rules import Library

    by_path = {id(s.subject): s for s in states}
    library = Library([s.subject for s in states if s.subject.profile is not None], {} if bundled else _bundled_names(states))
    for rule, check in checks_of("library"):
        for subject, problem in check(library):
            state = by_path[id(subject)]
            if state.stands(rule, problem):
                state.add(rule, problem)


def _bundled_names(states: list[_State]) -> dict[str, dict[str, str]]:
    """Names of bundled profiles whose ids are not among the files checked: a new part must not take over another's name."""
    names: dict[str, dict[str, str]] = {}
    kinds: tuple[catalog.Kind, ...] = ("hardware", "model")
    for kind in kinds:
        checked = {s.subject.id for s in states if s.subject.kind == kind}
        if not checked:
            continue
        folder = catalog.bundled_folder(kind).resolve()
        names[kind] = {
            catalog.fold(name): entry.id
            for entry in catalog.entries(kind)
            if entry.id not in checked and folder in entry.path.resolve().parents
            for name in (entry.id, *entry.names)
        }
    return names


def _report(states: list[_State], counts: Callable[[str], bool]) -> CheckReport:
    kept: list[Finding] = []
    ignored = 0
    for state in states:
        comments = ignores.parse(state.subject.text)
        found = [f for f in state.findings if counts(f.rule)]
        left = ignores.apply(found, comments)
        ignored += len(found) - len(left)
        if not state.subject.faults:
            left += [c for c in ignores.complaints(state.subject.name, state.subject.id, comments, counts) if counts(c.rule)]
        kept += left
    kept.sort(key=lambda f: (f.file, f.line, f.column, f.rule))
    return CheckReport(tuple(kept), len(states), tuple(s.subject.name for s in states), ignored)
