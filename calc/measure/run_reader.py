"""Run files as input of fit and report: foreign, truncated, future or edited ones are refused with the place."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from calc.errors import ProfileError
from calc.measure import run_file
from calc.measure.statistics import log_interval, median

#: Times, rates and amounts; beyond these bounds nothing was measured, and sums and ratios of what lies within stay finite.
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e30)]
Interval = tuple[Positive, Positive]
Shape = dict[str, NotNegative]
_AGAIN = "a run file is used as measured; measure again"
_SLACK = 1e-9


class _Note(msgspec.Struct):
    code: str
    message: str


class _Round(msgspec.Struct):
    index: int
    samples_s: list[Positive]
    preempted_s: list[Positive]
    median_s: Positive
    quiet: bool
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    labels: dict[str, float] = {}


class _Timed(msgspec.Struct, kw_only=True):
    id: str
    shape: Shape
    parameters: dict[str, Any]
    parts: list[tuple[str, Annotated[int, msgspec.Meta(ge=1)]]]
    dtype: str
    flops: NotNegative
    bytes: NotNegative
    rounds: list[_Round]
    time_s: Positive | None
    interval_s: Interval | None
    minimum_s: Positive | None
    labels: list[str]
    warnings: list[_Note]
    status: Literal["ok", "noisy", "unreliable", "failed"]
    kernel: str | None
    launches: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    failure: str | None = None


class _Case(_Timed, kw_only=True):
    operation: str
    phase: Literal["prefill", "decode"]
    op_class: str = msgspec.field(name="class")
    calls_per_step: Annotated[int, msgspec.Meta(ge=0)]


class _Ceiling(_Timed, kw_only=True):
    name: str
    chosen: bool
    value: Positive | None
    best: Positive | None
    value_interval: Interval | None
    unit: str | None


class _Bytes(msgspec.Struct):
    """Traffic of an operator by what is moved."""

    weight: NotNegative
    activation: NotNegative
    kv_read: NotNegative
    kv_write: NotNegative
    state: NotNegative
    compulsory: NotNegative


class _Operator(msgspec.Struct, kw_only=True):
    phase: Literal["prefill", "decode"]
    operation: str
    op_class: str
    count: Annotated[int, msgspec.Meta(ge=1)]
    shape: Shape
    case_id: str | None
    compute_dtype: str
    weight_format: str
    flops: NotNegative
    bytes: NotNegative
    bytes_by_kind: _Bytes
    predicted_s: Positive | None
    datasheet_s: NotNegative | None
    launches: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    layers: str | None = None
    note: str | None = None


class _Datasheet(msgspec.Struct, kw_only=True):
    id: str
    name: str
    peak_flops_per_s: dict[str, Positive]
    bandwidth_bytes_per_s: Positive


class _Link(msgspec.Struct, kw_only=True):
    id: str
    kind: str
    bytes: Annotated[int, msgspec.Meta(gt=0)]
    bytes_are: str
    status: str
    time_s: Positive | None
    busbw_bytes_per_s: Positive | None = None


class _Links(msgspec.Struct, kw_only=True):
    backend: str
    ranks: int
    cases: list[_Link]


class _Device(msgspec.Struct, kw_only=True):
    name: str | None = None
    sm_count: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None


class _Environment(msgspec.Struct, kw_only=True):
    device: _Device = msgspec.field(default_factory=_Device)
    started: str | None = None


class _Model(msgspec.Struct, kw_only=True):
    id: str
    name: str


class _Run(msgspec.Struct, kw_only=True):
    complete: bool
    model: _Model
    environment: _Environment
    settings: dict[str, Any]
    ceilings: list[_Ceiling]
    cases: list[_Case]
    operators: list[_Operator]
    digest: str
    hardware: _Datasheet | None = None
    collectives: _Links | None = None
    not_measured: list[str] = []
    noisy: list[str] = []
    warnings: list[_Note] = []


def load(path: Path) -> tuple[dict[str, Any], str]:
    """A run file as data, with its hash. Raises ProfileError for what is no run file of a known schema, lacks a part, or was edited."""
    raw = run_file.content(path)
    run = run_file.parsed(raw, path)
    if "operators" not in run:
        raise ProfileError(f"{path}: operators: missing, this run was written by an earlier version", _AGAIN)
    try:
        parsed = msgspec.convert(run, _Run)
    except msgspec.ValidationError as fault:
        raise ProfileError(f"{path}: {_place(str(fault))}", _AGAIN) from None
    for group in ("ceilings", "cases"):
        for index, one in enumerate(getattr(parsed, group)):
            wrong = _contradiction(one)
            if isinstance(one, _Ceiling) and one.chosen and None in (one.unit, one.value):
                wrong = "value: a chosen ceiling has a value and a unit"
            if wrong:
                raise ProfileError(f"{path}: {group}[{index}].{wrong}", _AGAIN)
    ids = {c.id for c in parsed.cases}
    for index, operator in enumerate(parsed.operators):
        if operator.case_id is not None and operator.case_id not in ids:
            raise ProfileError(f"{path}: operators[{index}].case_id: no case {operator.case_id!r}", _AGAIN)
    try:
        own = run_file.digest(run)
    except ValueError:  # a number like 1e999
        raise ProfileError(f"{path}: a number is too large", _AGAIN) from None
    if parsed.digest != own:
        raise ProfileError(f"{path}: digest: the file was edited after it was written", _AGAIN)
    return run, hashlib.sha256(raw).hexdigest()


def _place(fault: str) -> str:
    """msgspec's ``message - at `$.place` `` as ``place: message``."""
    found = re.fullmatch(r"(.*) - at `\$\.?(.*)`", fault, re.DOTALL)
    return f"{found[2]}: {found[1]}" if found else fault


def _contradiction(one: _Timed) -> str | None:
    """A place and what is wrong there; None for a case whose parts agree."""
    if not (one.flops > 0 or one.bytes > 0):
        return "bytes: neither FLOP nor bytes"
    for index, taken in enumerate(one.rounds):
        samples = taken.samples_s if taken.quiet else taken.samples_s + taken.preempted_s
        if not samples or not math.isclose(median(samples), taken.median_s, rel_tol=_SLACK):
            return f"rounds[{index}].median_s: not the median of its samples"
    if (one.time_s is None) != (one.status == "failed"):
        return "time_s: a failed case has none, and no other lacks one"
    if one.time_s is None:
        return None
    if not any(math.isclose(one.time_s, value, rel_tol=_SLACK) for value in _values(one)):
        return "time_s: not the geometric mean of its rounds"
    if one.interval_s and not one.interval_s[0] <= one.time_s <= one.interval_s[1]:
        return "interval_s: does not hold the time"
    return None


def _values(one: _Timed) -> list[float]:
    """The case's value from its quiet rounds, or from all samples of all rounds where the run was contended."""
    if not one.rounds:
        return []
    quiet = [r.median_s for r in one.rounds if r.quiet]
    found = [log_interval(quiet)[0]] if quiet else [log_interval([r.median_s for r in one.rounds])[0]]
    return [*found, log_interval([median(r.samples_s + r.preempted_s) for r in one.rounds])[0]]
