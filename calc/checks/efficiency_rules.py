"""Rules over efficiency files."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.finding import Problem
from calc.checks.registry import rule
from calc.checks.subject import Subject
from calc.profiles.efficiency import EfficiencyProfile

_SHARES = ("compute", "bandwidth", "link")


@rule(
    "E1", "warning", "efficiency", "bands",
    sentence="No kernel reaches more than the ceiling: expected shares are at most 1.",
    arithmetic="expected <= 1 for compute, bandwidth and link; above it the datasheet or the count of bytes and operations is "
    "wrong.",
    example="bandwidth expected 1.08 fitted on a card whose profile carries a sibling's bandwidth.",
)  # fmt: skip
def above_one(subject: Subject) -> Iterator[Problem]:
    """E1."""
    profile: EfficiencyProfile = subject.profile
    for index, factor in enumerate(profile.factors):
        for name in _SHARES:
            expected = getattr(factor, name).expected
            if expected > 1:
                yield Problem(
                    ("factors", index, name, "expected"),
                    f"{name} reaches {expected:g} of its ceiling",
                    expected="<= 1",
                    found=expected,
                    ratio=expected,
                    cause="a ceiling that is too low, or operations counted twice",
                    remedy="check the hardware profile and the records that were fitted",
                )


@rule(
    "E2", "error", "efficiency", "provenance",
    sentence="What is fitted or measured says on how many observations it rests.",
    arithmetic="evidence fitted or measured here: n > 0 in some factor.",
    example="evidence: fitted beside n: 0 in every factor.",
)  # fmt: skip
def sample_size(subject: Subject) -> Iterator[Problem]:
    """E2."""
    profile: EfficiencyProfile = subject.profile
    sizes = [getattr(factor, name).n for factor in profile.factors for name in _SHARES]
    if profile.evidence != "default" and not any(sizes):
        yield Problem(
            ("evidence",),
            f"evidence {profile.evidence!r} without an observation",
            expected="n > 0",
            found=0,
            cause="a default taken for a fit",
            remedy="state the sample size of each spread",
        )


@rule(
    "E3", "error", "efficiency", "provenance",
    sentence="A fit on measurements of others names them, with dates.",
    arithmetic="evidence fitted: at least one source, each with a date (arithmetic and unread ones excepted).",
    example="evidence: fitted without sources.",
)  # fmt: skip
def fitted_sources(subject: Subject) -> Iterator[Problem]:
    """E3."""
    profile: EfficiencyProfile = subject.profile
    if profile.evidence != "fitted":
        return
    if not profile.sources:
        yield Problem(("sources",), "fitted without sources", cause="not recorded", remedy="name the records that were fitted")
    for index, source in enumerate(profile.sources):
        if not source.date and source.access not in ("arithmetic", "unread", "reconstructed"):
            yield Problem(
                ("sources", index), "the source has no date", cause="not recorded", remedy="state its date, or when it was seen"
            )
