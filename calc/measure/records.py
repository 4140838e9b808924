"""Result records of a measurement: plain, frozen, free of torch. Times in seconds, rates per second, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.statistics import median

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know: a code for scripts and a sentence that says what was seen and what helps."""

    code: str
    message: str


#: Undisturbed samples that a round can stand on.
FEWEST_QUIET = 3


@dataclass(frozen=True, slots=True)
class Round:
    """One visit to a case: raw samples (seconds per call) in the order they came, and why sampling stopped.

    ``preempted_s`` are samples during which other processes had the processor; they are kept apart. ``dropped`` counts samples left
    out because the device was unwell. Clock, power, temperature and energy are None where nobody watched; ``energy_j`` was used by
    ``calls`` calls in ``elapsed_s`` seconds. ``labels`` are shares of the looks that found the device power_limited or idle.
    """

    index: int
    samples_s: tuple[float, ...]
    stop: str
    preempted_s: tuple[float, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    calls: int = 0
    elapsed_s: float = 0.0
    labels: dict[str, float] = field(default_factory=dict)

    @property
    def quiet(self) -> bool:
        """Whether the round can stand on undisturbed samples."""
        return len(self.samples_s) >= FEWEST_QUIET or (bool(self.samples_s) and not self.preempted_s)

    def used_s(self, *, contended: bool = False) -> tuple[float, ...]:
        """Samples that give the value: the undisturbed ones where they suffice, all of them in a contended run."""
        return self.samples_s if self.quiet and not contended else self.samples_s + self.preempted_s

    @property
    def median_s(self) -> float:
        """Median of the samples in use."""
        return median(self.used_s())


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case with its rounds. ``time_s`` is the geometric mean of the round medians, ``interval_s`` their 95 % t-interval (None
    below three rounds). ``status`` is ok, noisy, unreliable or failed; a failed case has no time and says why in ``failure``.
    ``labels`` says what held in most looks at the device: power_limited. ``cycles`` is time x clock: a difference between two runs
    that vanishes there was the clock. ``energy_per_call_j`` is None below half a second of watching."""

    case: Case
    status: str
    time_s: float | None = None
    interval_s: Interval | None = None
    minimum_s: float | None = None
    quartiles_s: Interval | None = None
    p95_s: float | None = None
    sample_interval_s: Interval | None = None  # order-statistic interval of the median within the last round
    rounds: tuple[Round, ...] = ()
    round_values_s: dict[int, float] = field(default_factory=dict)  # by index: the rounds that gave the value
    timer: str | None = None
    repeats_per_sample: int | None = None
    operand_copies: int | None = None
    cache: str | None = None
    launch: str | None = None
    kernel: str | None = None
    launches: int = 1
    labels: tuple[str, ...] = ()
    cycles: float | None = None
    energy_per_call_j: float | None = None
    warnings: tuple[Notice, ...] = ()
    failure: str | None = None

    @property
    def rate_flops_per_s(self) -> float | None:
        """Tensor FLOP per second reached; None where the case has none or failed."""
        return self.case.flops / self.time_s if self.time_s and self.case.flops else None

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Bytes per second reached, each operand counted once."""
        return self.case.bytes / self.time_s if self.time_s and self.case.bytes else None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A rate that the device was measured to reach: ``value`` from medians with its interval, ``best`` from the fastest sample, and
    the kernel that gave it. For launch costs the values are seconds."""

    name: str  # matmul, matmul_burst, matmul_fp8, read, copy, host_to_device, launch, ...: ``ceilings``
    dtype: str
    unit: str  # flop/s, byte/s, s
    value: float
    best: float
    interval: Interval | None
    case_id: str
    status: str


@dataclass(frozen=True, slots=True)
class Row:
    """Measured against predicted for one operator of the list. ``error`` = predicted / measured - 1: positive means that roofcast
    promised slower than it is. Times are those of one call on one rank; a step holds ``count`` of them."""

    phase: str
    operation: str
    op_class: str
    layers: str
    count: int
    shape: dict[str, Any]
    case_id: str | None
    status: str  # ok, noisy, unreliable, failed, not measured
    verdict: str  # agrees, fast, slow, unclear, unreliable, failed, not measured
    bound: str | None
    flops: float
    bytes: float
    measured_s: float | None
    interval_s: Interval | None
    predicted_s: float | None
    predicted_interval_s: Interval | None
    floor_s: float | None
    datasheet_s: float | None
    error: float | None
    share: float | None  # of the measured time of the phase
    flops_per_s: float | None
    bytes_per_s: float | None
    note: str | None = None
    compute_dtype: str = ""
    weight_format: str = ""
    launches: int = 1
    bytes_by_kind: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """The sum over the measured operators of a phase, weighted by their calls. ``bound`` is the resource with the largest share of
    the predicted time. What is not in the sum is named in ``not_measured``; ``unreliable`` names cases counted but not trusted."""

    phase: str
    operators: int
    measured_s: float | None
    interval_s: Interval | None
    predicted_s: float | None
    datasheet_s: float | None
    error: float | None
    datasheet_error: float | None
    bound: str | None
    bound_share: float | None
    flops: float
    bytes: float
    flops_per_s: float | None
    bytes_per_s: float | None
    arithmetic_intensity: float | None
    ridge_point: float | None
    bias: float | None  # geometric mean of predicted / measured over reliable cases
    median_abs_log_error: float | None
    worst_case_id: str | None
    not_measured: tuple[str, ...] = ()
    unreliable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """Everything a run gave. ``output`` is the run file written, if any; ``interrupted`` says that Ctrl-C ended it early: what was
    measured is here and in the file, and the command should exit with 130. ``noisy`` says why the run as a whole is noisy."""

    model_id: str
    hardware_id: str | None
    environment: dict[str, Any]
    settings: dict[str, Any]
    monitor: dict[str, Any]
    ceilings: tuple[Ceiling, ...]
    ceiling_cases: tuple[CaseResult, ...]
    cases: tuple[CaseResult, ...]
    rows: tuple[Row, ...]
    phases: tuple[PhaseSummary, ...]
    not_measured: tuple[str, ...]
    warnings: tuple[Notice, ...]
    noisy: tuple[str, ...] = ()
    interrupted: bool = False
    output: str | None = None
    duration_s: float = 0.0
