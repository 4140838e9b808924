"""The schema of an efficiency file: what share of the datasheet ceilings real kernels reach, with its evidence."""

from __future__ import annotations

from typing import Annotated

import msgspec

from calc.profiles.schema import Identifier, Source, Strict, Text

Share = Annotated[float, msgspec.Meta(gt=0, le=4)]  # above 1 is kept and flagged: the datasheet or a count is wrong


class Spread(Strict, kw_only=True):
    """A value with the interval that holds 80 % of what was observed, and how many observations there are."""

    low: Share
    expected: Share
    high: Share
    n: Annotated[int, msgspec.Meta(ge=0)]


class Factor(Strict, kw_only=True):
    """Efficiencies for operators of ``operator_classes`` (empty: all). ``compute`` is the reached share of the dense peak,
    ``bandwidth`` of the memory bandwidth, ``link`` of a link's rate in one direction."""

    operator_classes: list[Text] = []
    formats: list[Text] = []
    compute: Spread
    bandwidth: Spread
    link: Spread | None = None
    launch_s: float = 0.0  # added per operator call


class EfficiencyProfile(Strict, kw_only=True):
    """Factors with their origin and where they hold."""

    id: Identifier
    schema_version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    evidence: Text  # default, fitted, measured here
    origin: Text  # how the values came about; a script in benchmarks/ or a run file
    engines: list[Text] = []  # empty: any
    device_classes: list[Text] = []
    hardware: Text | None = None  # id of the one profile it was fitted on
    factors: Annotated[list[Factor], msgspec.Meta(min_length=1)]
    sources: list[Source] = []


def faults(profile: EfficiencyProfile) -> list[tuple[tuple[str | int, ...], str]]:
    """Spreads must be ordered."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for i, factor in enumerate(profile.factors):
        for name in ("compute", "bandwidth", "link"):
            spread = getattr(factor, name)
            if spread is not None and not spread.low <= spread.expected <= spread.high:
                found.append((("factors", i, name), "low, expected and high must not descend"))
    return found
