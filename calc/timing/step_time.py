"""The time of a step: the sum over its operators, with the floor beneath and the spread around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from calc.arrays import Number, divide, is_plain, maximum, minimum, where
from calc.operators.operator import Operator
from calc.operators.work import Work
from calc.profiles.efficiency import Factor
from calc.timing import extrapolation, roofline
from calc.timing.calibrated import Calibrated, Expectation
from calc.timing.efficiency import Efficiency
from calc.timing.roofline import Ceilings
from calc.timing.sizes import elements, kernel, single
from calc.timing.terms import Mix


@dataclass(frozen=True, slots=True)
class Range:
    """A time in seconds: nothing beats ``floor``; ``low``, ``expected`` and ``high`` carry ``evidence``. None: not answered."""

    floor: Number | None
    low: Number | None
    expected: Number | None
    high: Number | None
    evidence: str
    PARTS: ClassVar[tuple[str, ...]] = ("floor", "low", "expected", "high")

    def __add__(self, other: Range) -> Range:
        return _combine(self, other, lambda a, b: a + b)

    def __mul__(self, factor: Number) -> Range:
        return _combine(self, self, lambda a, _: a * factor)


def _combine(one: Range, two: Range, how: Callable[[Number, Number], Number]) -> Range:
    def part(a: Number | None, b: Number | None) -> Number | None:
        return None if a is None or b is None else how(a, b)

    return Range(
        part(one.floor, two.floor),
        part(one.low, two.low),
        part(one.expected, two.expected),
        part(one.high, two.high),
        one.evidence,
    )


NO_TIME = Range(None, None, None, None, "not answered")


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The time of one call of an operator, and the seconds each resource alone would need at the floor."""

    operator: Operator
    floor: roofline.Bounds
    time_s: Range

    @property
    def bound(self) -> str:
        """What bounds the operator: its floor, or memory where only activations move."""
        return self.floor.bound


@dataclass(frozen=True, slots=True)
class StepTime:
    """Times of a step. ``floor_overlapped_s`` is the larger of total compute, memory and network time: a bound that assumes perfect
    overlap between operators, never reached where kinds of operators differ. ``share_s`` splits the floor by what bounds it.
    ``terms_s`` are the expected seconds by physical term, where a calibrated model gave them; ``overhead_s`` those of fixed costs.
    ``hidden_s`` by end of the range is what the operators' times add up to beyond the step: messages behind compute."""

    operators: tuple[OperatorTime, ...]
    time_s: Range
    floor_overlapped_s: Number
    share_s: dict[str, Number]
    terms_s: dict[str, Number] | None = None
    hidden_s: dict[str, Number] | None = None

    def times(self, factor: Number) -> StepTime:
        """The step and each of its operators, all ``factor`` times as long."""
        return StepTime(
            tuple(OperatorTime(o.operator, o.floor, o.time_s * factor) for o in self.operators),
            self.time_s * factor,
            self.floor_overlapped_s * factor,
            {k: v * factor for k, v in self.share_s.items()},
            {k: v * factor for k, v in self.terms_s.items()} if self.terms_s else self.terms_s,
            {k: v * factor for k, v in self.hidden_s.items()} if self.hidden_s else self.hidden_s,
        )

    @property
    def overhead_s(self) -> Number:
        """Expected seconds of launches, gaps and other costs that no resource bounds."""
        terms = self.terms_s or {}
        return sum((s for t, s in terms.items() if t in OVERHEADS), 0.0)

    @property
    def bound(self) -> str:
        """The resource with the largest share of the floor, or ``overhead`` where fixed costs take most of the expected time (plain
        numbers only)."""
        if overhead_rules(self):
            return "overhead"
        return max(self.share_s, key=lambda k: float(self.share_s[k]))


#: Terms of the calibrated model that count launches and other fixed costs of a layer or sequence.
OVERHEADS = ("decode.fixed", "decode.sequences", "prefill.fixed")
_OVERHEAD_RULES = 0.5


def overhead_rules(timed: StepTime) -> Any:
    """Whether fixed costs take most of the expected time; elementwise for arrays."""
    expected = timed.time_s.expected
    return expected is not None and timed.overhead_s > _OVERHEAD_RULES * expected


def operator_range(operator: Operator, ceilings: Ceilings, efficiency: Efficiency) -> OperatorTime:
    """Floor, low, expected and high time of one call."""
    bounds = roofline.floor(operator, ceilings)
    one = single(operator.op_class, operator.shape)
    factors = [
        efficiency.factor(
            operator.op_class, operator.weight_format, operator.compute_dtype, kernel(operator.op_class, operator.name, single=s)
        )
        for s in ((one,) if isinstance(one, bool) else (True, False))
    ]
    times = _times(operator, ceilings, bounds, factors[0])
    if factors[-1] is not factors[0]:
        times = [where(one, a, b) for a, b in zip(times, _times(operator, ceilings, bounds, factors[-1]), strict=True)]
    sure = extrapolation.evidence(operator, factors[0], efficiency)
    return OperatorTime(operator, bounds, Range(bounds.time_s, times[0], times[1], times[2], sure))


def _times(operator: Operator, ceilings: Ceilings, bounds: roofline.Bounds, factor: Factor) -> list[Number]:
    """Low, expected and high time of one call by a factor."""
    message = factor.message_s if operator.collective is not None else None
    times: list[Number] = []
    for share, fixed in (("high", "low"), ("expected", "expected"), ("low", "high")):
        parts = roofline.honest(
            operator,
            ceilings,
            getattr(factor.compute, share),
            getattr(factor.bandwidth, share),
            getattr(factor.link, share),
        )
        memory_s = parts.memory_s
        size = elements(operator.op_class, operator.shape)
        if factor.threads is not None and size is not None:
            memory_s = memory_s * roofline.slowdown(factor.threads.grain, factor.threads.enough, size)
        seconds = maximum(roofline.joined_s(parts.compute_s, memory_s, factor.knee), parts.network_s)
        seconds = seconds + getattr(factor.launch_s, fixed)
        if factor.correction:
            seconds = seconds * roofline.corrected(factor.corrections, operator.shape.get("m"))
        seconds = seconds + (getattr(message, fixed) if message else 0.0)
        times.append(maximum(seconds, bounds.time_s))
    return times


def step_time(
    operators: list[Operator],
    ceilings: Ceilings,
    efficiency: Efficiency | Calibrated,
    work: Work | None = None,
    *,
    stages_at_once: Number = 1.0,
) -> StepTime:
    """Sum over operators of the time of one call times the number of calls (kernels run one after another), over the pipeline stages
    that work at once. The calibrated model needs the ``work`` of one rank in the step and knows the stages from its setting."""
    if isinstance(efficiency, Calibrated):
        if work is None:
            raise ValueError("the calibrated model needs the work of the step")
        return _calibrated(operators, ceilings, efficiency, work)
    timed = tuple(operator_range(o, ceilings, efficiency) for o in operators)
    totals: list[Number] = [0.0, 0.0, 0.0, 0.0]
    for item in timed:
        times = item.time_s
        for i, seconds in enumerate((times.floor, times.low, times.expected, times.high)):
            totals[i] = totals[i] + seconds * item.operator.count  # type: ignore[operator]
    result = Range(totals[0], totals[1], totals[2], totals[3], efficiency.evidence)
    overlapped, share_s = _floors([(o.floor, o.operator.count) for o in timed])
    step = StepTime(timed, result, overlapped, share_s)
    return step if is_plain(stages_at_once) and stages_at_once == 1 else step.times(1 / stages_at_once)


def _floors(bounds: list[tuple[roofline.Bounds, int]], at_once: Number = 1.0) -> tuple[Number, dict[str, Number]]:
    """The overlapped floor, and the floor by what bounds each operator, with ``at_once`` pipeline stages at work."""
    alone: list[Number] = [0.0, 0.0, 0.0]
    share_s: dict[str, Number] = {"compute": 0.0, "memory": 0.0, "network": 0.0}
    for own, count in bounds:
        for i, seconds in enumerate((own.compute_s, own.memory_s, own.network_s)):
            alone[i] = alone[i] + seconds * count
        _add_share(share_s, own, count)
    return maximum(maximum(alone[0], alone[1]), alone[2]) / at_once, {k: v / at_once for k, v in share_s.items()}


def _calibrated(operators: list[Operator], ceilings: Ceilings, model: Calibrated, work: Work) -> StepTime:
    """The step as the calibrated model sees it. No expected time is closer to the floor than any record came. What the step takes
    beyond its floor is spread over the operators as their own terms exceed their floors, so that they sum to the step and none falls
    below its floor."""
    floors = [roofline.floor(o, ceilings) for o in operators]
    calls, expectation, parts = model.step(operators, ceilings, work)
    least = [own.time_s / parts.speedup for own in floors]
    floor: Number = 0.0
    for own_s, operator in zip(least, operators, strict=True):
        floor = floor + own_s * operator.count
    low, expected, high = step_range(expectation, floor, model, work, parts)
    excess = [maximum(seconds - own_s, 0.0) for seconds, own_s in zip(calls, least, strict=True)]
    beyond: Number = 0.0
    for more, operator in zip(excess, operators, strict=True):
        beyond = beyond + more * operator.count
    evidence = model.evidence(kind_of(work))
    timed = []
    for operator, own, own_s, more in zip(operators, floors, least, excess, strict=True):
        # Where no operator exceeds its floor, all stretch alike.
        share = where(beyond > 0, divide(more, beyond), divide(own_s, floor))
        times = [own_s + (value - floor) * share for value in (low, expected, high)]
        timed.append(OperatorTime(operator, own, Range(own_s, times[0], times[1], times[2], evidence)))
    overlapped, share_s = _floors([(own, o.count) for own, o in zip(floors, operators, strict=True)], parts.speedup)
    return StepTime(tuple(timed), Range(floor, low, expected, high, evidence), overlapped, share_s, dict(expectation.terms))


def step_range(expectation: Expectation, floor: Number, model: Calibrated, work: Work, parts: Mix) -> tuple[Number, Number, Number]:
    """Low, expected and high time of a step, none below the floor. A mixed step takes the wider range of its phases."""
    if work.phase != "mixed":
        low, expected, high = model.around(expectation, floor, kind_of(work))
    else:
        decode, prefill = (model.around(expectation, floor, kind) for kind in ("decode", "prefill"))
        low = decode[0] * (1 - parts.prompts) + minimum(decode[0], prefill[0]) * parts.prompts
        high = decode[2] * (1 - parts.prompts) + maximum(decode[2], prefill[2]) * parts.prompts
        expected = decode[1]
    ordered = floor <= low if is_plain(floor, low) else (floor <= low).all()  # type: ignore[union-attr]
    assert ordered, "the range of a step reaches below its floor"
    return low, expected, high


def kind_of(work: Work) -> str:
    """The kind of observation that bears on a step: a step with any prompt is judged as prefill."""
    return "decode" if work.phase == "decode" else "prefill"


def _add_share(share_s: dict[str, Number], bounds: roofline.Bounds, count: int) -> None:
    """Charge an operator's floor to the resource that rules it (elementwise for arrays)."""
    total = bounds.time_s * count
    network = where(bounds.network_s > maximum(bounds.compute_s, bounds.memory_s), 1, 0)
    compute = where(bounds.compute_s > bounds.memory_s, 1, 0) * (1 - network)
    share_s["network"] = share_s["network"] + total * network
    share_s["compute"] = share_s["compute"] + total * compute
    share_s["memory"] = share_s["memory"] + total * (1 - network - compute)


def rate(work: Number, time_s: Range) -> Range:
    """``work`` per second of a time range: the largest time gives the smallest rate (its floor, the rate's ceiling)."""
    if time_s.expected is None or time_s.floor is None or time_s.low is None or time_s.high is None:
        return Range(None, None, None, None, time_s.evidence)
    return Range(
        divide(work, time_s.floor),
        divide(work, time_s.high),
        divide(work, time_s.expected),
        divide(work, time_s.low),
        time_s.evidence,
    )
