"""The rules: each one sentence, one function, one id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any, Literal

from calc.checks.finding import Severity
from calc.errors import UnknownNameError, UsageError, did_you_mean

Scope = Literal["file", "hardware", "model", "efficiency", "library"]
Check = Callable[[Any], Iterable[Any]]

#: The order in which rules of one subject run: the most exact first, so that bands stay silent about figures already refused.
STAGES = ("identity", "units", "rates", "memory", "links", "bands", "provenance", "library")
Stage = Literal["identity", "units", "rates", "memory", "links", "bands", "provenance", "library"]


@dataclass(frozen=True)
class Rule:
    """A rule with what ``--rules`` and ``--explain`` print. ``check`` is None for findings that the runner makes itself;
    ``across_files`` is the half of a rule that needs several files."""

    id: str
    severity: Severity
    scope: Scope
    stage: Stage
    sentence: str
    arithmetic: str
    example: str
    check: Check | None = None
    across_files: Check | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Sorts C2 before C10."""
        return self.id.rstrip("0123456789"), int("".join(c for c in self.id if c.isdigit()) or 0)


_RULES: dict[str, Rule] = {}


def rule(
    identifier: str, severity: Severity, scope: Scope, stage: Stage, *, sentence: str, arithmetic: str, example: str
) -> Callable[[Check], Check]:
    """Register a check: a function from a subject (library rules: the library) to problems."""

    def register(check: Check) -> Check:
        _add(Rule(identifier, severity, scope, stage, sentence, arithmetic, example, check))
        return check

    return register


def across_files(identifier: str) -> Callable[[Check], Check]:
    """Give a registered rule its second half: a check of the library."""

    def register(check: Check) -> Check:
        _RULES[identifier] = replace(_RULES[identifier], across_files=check)
        return check

    return register


def declare(identifier: str, severity: Severity, *, sentence: str, arithmetic: str, example: str) -> None:
    """Register a rule that the runner applies itself (schema faults, ignore comments)."""
    _add(Rule(identifier, severity, "file", "identity", sentence, arithmetic, example))


def _add(new: Rule) -> None:
    if new.id in _RULES:
        raise ValueError(f"rule {new.id} is registered twice")
    _RULES[new.id] = new


def load() -> None:
    """Import every module that registers rules."""
    from calc.checks import collection_rules, efficiency_rules, file_rules, hardware_rules, model_rules  # noqa: F401


def rules() -> list[Rule]:
    """All rules by id: what ``roofcast check --rules`` lists."""
    load()
    return sorted(_RULES.values(), key=lambda r: r.key)


def checks_of(scope: Scope) -> Iterator[tuple[Rule, Check]]:
    """Rules of a scope with their checks, in the order in which they run."""
    for found in sorted(rules(), key=lambda r: (STAGES.index(r.stage), r.key)):
        check = found.check if found.scope == scope else found.across_files if scope == "library" else None
        if check:
            yield found, check


def find(identifier: str) -> Rule:
    """A rule by id, any case. Raises UnknownNameError."""
    load()
    found = _RULES.get(identifier.strip().upper())
    if found is None:
        near = did_you_mean(identifier.upper(), _RULES)
        raise UnknownNameError(f"unknown rule {identifier!r}", near or "`roofcast check --rules` lists all")
    return found


def explain(identifier: str) -> str:
    """The rule, its arithmetic and a worked example: what ``roofcast check --explain`` prints."""
    found = find(identifier)
    text = (f"{found.id} ({found.severity}): {found.sentence}", found.arithmetic, f"Example: {found.example}")
    return "\n\n".join(fill(part, 100, break_long_words=False, break_on_hyphens=False) for part in text) + "\n"


def selection(select: Iterable[str], ignore: Iterable[str]) -> Callable[[str], bool]:
    """Whether a rule counts under ``--select`` and ``--ignore``: an id, or a letter for its whole family (C, M, S, E, I)."""
    load()
    wanted, unwanted = ([w.strip().upper() for w in words if w.strip()] for words in (select, ignore))
    families = {r.key[0] for r in _RULES.values()}
    for word in (*wanted, *unwanted):
        if word not in families and word not in _RULES:
            near = did_you_mean(word, _RULES)
            raise UsageError(f"unknown rule {word!r}", near or "`roofcast check --rules` lists all")

    def counts(identifier: str) -> bool:
        family = identifier.rstrip("0123456789")
        chosen = not wanted or identifier in wanted or family in wanted
        return chosen and identifier not in unwanted and family not in unwanted

    return counts
