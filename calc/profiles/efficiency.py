"""The schemas of efficiency files: what share of the datasheet ceilings real kernels reach, with its evidence.

``EfficiencyProfile`` holds factors by operator class (a user's own measurement, or the documented default). ``EffectFile`` holds the
fitted effects of the calibrated model: a term of a step takes its size at datasheet rates times exp(sum of its effects).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

import msgspec

from calc.profiles.schema import Identifier, Positive, Source, Strict, Text

#: Below a millionth nothing is a kernel; above 1 is kept and flagged: the datasheet or a count is wrong.
Share = Annotated[float, msgspec.Meta(ge=1e-6, le=1000)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=10)]
#: A size of a call, or a count: no kernel works on a part of an element, and none on more than a device could hold.
Size = Annotated[float, msgspec.Meta(ge=1, le=1e15)]


class Spread(Strict, frozen=True, kw_only=True):
    """A reached share of a ceiling: the interval that holds 80 % of what was observed, and how many observations there are."""

    low: Share
    expected: Share
    high: Share
    n: Annotated[int, msgspec.Meta(ge=0)]


class Latency(Strict, frozen=True, kw_only=True):
    """A fixed time in seconds, best to worst."""

    low: Seconds
    expected: Seconds
    high: Seconds
    n: Annotated[int, msgspec.Meta(ge=0)]


class Errors(Strict, frozen=True, kw_only=True):
    """How far predictions are from measured times: |log(predicted / measured)| of ``n`` cases, and the geometric mean of the ratio."""

    n: Annotated[int, msgspec.Meta(ge=0)]
    median: float
    p90: float
    worst: float
    bias: float
    by_phase: dict[Text, Errors] = {}


class Correction(Strict, frozen=True, kw_only=True):
    """Where the law is off: measured / law at a number of rows. Joined in logarithms, 1 outside of the table."""

    rows: Size
    factor: Share


class Threads(Strict, frozen=True, kw_only=True):
    """How a host spreads a call that works row by row: each thread takes ``grain`` elements (rows times columns) or more, and
    ``enough`` threads reach the bandwidth."""

    grain: Size
    enough: Annotated[float, msgspec.Meta(ge=1, le=1e6)]


class Factor(Strict, frozen=True, kw_only=True):
    """Efficiencies of operators of ``operator_classes`` (empty: all others).

    ``compute`` is the reached share of the dense peak, ``bandwidth`` of the memory bandwidth, ``link`` of a link's rate in one
    direction; ``launch_s`` is added to every call, ``message_s`` to every collective. ``knee`` p joins loads and products,
    (compute^p + memory^p)^(1/p); without it the larger counts. ``box`` holds the least and largest of each size that the fit saw
    (see ``calc.timing.extrapolation``). ``flags`` names what is odd about the values.
    """

    operator_classes: list[Text] = []
    operations: list[Text] = []  # kernels of these classes that it holds for (calc.timing.sizes); empty: those no other names
    formats: list[Text] = []  # weight formats it holds for; empty: all
    compute_dtypes: list[Text] = []  # types it holds for; empty: all
    compute: Spread
    bandwidth: Spread
    link: Spread
    launch_s: Latency = Latency(low=0, expected=0, high=0, n=0)
    message_s: Latency = Latency(low=0, expected=0, high=0, n=0)
    knee: Annotated[float, msgspec.Meta(ge=1, le=64)] | None = None
    threads: Threads | None = None
    intervals: dict[Text, tuple[float, float]] = {}  # 95 % of the parameters over shapes drawn with replacement
    correction: list[Correction] = []  # by ascending rows
    box: dict[Text, tuple[float, float]] = {}
    cases: Annotated[int, msgspec.Meta(ge=0)] = 0
    fit_error: Errors | None = None
    held_out_error: Errors | None = None
    flags: list[Text] = []

    @property
    def corrections(self) -> list[tuple[float, float]]:
        """The table as pairs of rows and factor."""
        return [(c.rows, c.factor) for c in self.correction]


class RunOrigin(Strict, frozen=True, kw_only=True):
    """A run file that a fit used: its hash, and what it ran on."""

    sha256: Text
    model: Text
    device: Text
    started: Text
    seen_sha256: list[Text] = []  # short hashes of the ids of the cases that the fit saw


class Fit(Strict, frozen=True, kw_only=True):
    """Where fitted factors come from: runs, the ceilings that they are shares of, what was left out, and the errors over all classes."""

    date: Text
    runs: Annotated[list[RunOrigin], msgspec.Meta(min_length=1)]
    against: Literal["datasheet", "measured ceilings"]
    ceilings: dict[Text, Positive]  # bandwidth in byte/s, peaks by type in FLOP/s
    left_out: dict[Text, int] = {}  # cases by reason
    environment: dict[Text, Text | int | float | None] = {}
    fit_error: Errors | None = None
    held_out_error: Errors | None = None


class EfficiencyProfile(Strict, frozen=True, kw_only=True):
    """Factors with their origin and where they hold."""

    id: Identifier
    schema_version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    evidence: Literal["default", "fitted", "measured here"]
    origin: Text  # how the values came about: a script in benchmarks/ or a run file
    engines: list[Text] = []  # empty: any
    device_classes: list[Text] = []
    hardware: Text | None = None  # id of the one profile it was fitted on
    factors: Annotated[list[Factor], msgspec.Meta(min_length=1)]
    sources: list[Source] = []
    fit: Fit | None = None  # of a fit on run files


def faults(profile: EfficiencyProfile) -> list[tuple[tuple[str | int, ...], str]]:
    """Spreads must ascend, and exactly one factor must catch the classes that no other names."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for i, factor in enumerate(profile.factors):
        for name in ("compute", "bandwidth", "link", "launch_s", "message_s"):
            spread = getattr(factor, name)
            if not spread.low <= spread.expected <= spread.high:
                found.append((("factors", i, name), "low, expected and high must not descend"))
        if any(a.rows >= b.rows for a, b in pairwise(factor.correction)):
            found.append((("factors", i, "correction"), "rows must ascend"))
        if factor.operations and not factor.operator_classes:
            found.append((("factors", i, "operations"), "needs the operator_classes that they belong to"))
        for letter, (low, high) in factor.box.items():
            if not low <= high:
                found.append((("factors", i, "box", letter), "the least size must not exceed the largest"))
    if sum(not f.operator_classes for f in profile.factors) != 1:
        found.append((("factors",), "exactly one factor must have no operator_classes: it serves all classes not named"))
    return found


Effect = tuple[float, float, int]  # value in the exponent, standard deviation, observations that bear on it


class Level(Strict, frozen=True, kw_only=True):
    """One level of nested effects of a term: ``width`` is the spread between its groups (the deviation of an unseen one)."""

    width: Annotated[float, msgspec.Meta(ge=0, le=5)] = 0.0
    effects: dict[Text, Effect] = {}


class Term(Strict, frozen=True, kw_only=True):
    """Effects of a term (or of a whole phase): the value common to all, levels from wide to narrow, slopes by covariate."""

    base: Effect | None = None
    levels: dict[Text, Level] = {}
    slopes: dict[Text, Effect] = {}


class Calibration(Strict, frozen=True, kw_only=True):
    """How ranges follow from standard deviations: ``noise`` (relative) of a kind of row, and by evidence level the multiples of the
    deviation that hold 80 % of cross-validated errors, to the fast and to the slow side. ``best`` is the largest share of the floor
    that was reached (its 99th percentile): what is expected never exceeds it."""

    noise: float
    best: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    ranges: dict[Text, tuple[float, float]]
    rows: dict[Text, int] = {}  # observations by engine and class


class EffectFile(Strict, frozen=True, kw_only=True):
    """Fitted effects: those that all engines share (id ``shared``), or those of one engine."""

    id: Text
    schema_version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    origin: Text
    records_sha256: Text = ""
    terms: dict[Text, Term]
    kinds: dict[Text, Calibration] = {}
    noise: dict[Text, float] = {}  # further relative noise by condition
