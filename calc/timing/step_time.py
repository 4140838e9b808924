"""The time of a step: the sum over its operators, with the floor beneath and the spread around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calc.arrays import Number, divide, maximum, where
from calc.operators.operator import Operator
from calc.timing import roofline
from calc.timing.efficiency import Efficiency
from calc.timing.roofline import Ceilings


@dataclass(frozen=True, slots=True)
class Range:
    """A time in seconds: nothing beats ``floor``; ``low``, ``expected`` and ``high`` carry ``evidence``. None: not answered."""

    floor: Number | None
    low: Number | None
    expected: Number | None
    high: Number | None
    evidence: str

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
    overlap between operators, never reached where kinds of operators differ. ``share_s`` splits the floor by what bounds it."""

    operators: tuple[OperatorTime, ...]
    time_s: Range
    floor_overlapped_s: Number
    share_s: dict[str, Number]

    @property
    def bound(self) -> str:
        """The resource with the largest share of the floor (plain numbers only)."""
        return max(self.share_s, key=lambda k: float(self.share_s[k]))


def operator_range(operator: Operator, ceilings: Ceilings, efficiency: Efficiency) -> OperatorTime:
    """Floor, low, expected and high time of one call."""
    bounds = roofline.floor(operator, ceilings)
    factor = efficiency.factor(operator.op_class, operator.weight_format)
    message = factor.message_s if operator.collective is not None else None
    times: list[Number] = []
    for share, fixed in (("high", "low"), ("expected", "expected"), ("low", "high")):
        seconds = roofline.honest(
            operator,
            ceilings,
            getattr(factor.compute, share),
            getattr(factor.bandwidth, share),
            getattr(factor.link, share),
        ).time_s
        seconds = seconds + getattr(factor.launch_s, fixed) + (getattr(message, fixed) if message else 0.0)
        times.append(maximum(seconds, bounds.time_s))
    return OperatorTime(operator, bounds, Range(bounds.time_s, times[0], times[1], times[2], efficiency.evidence))


def step_time(operators: list[Operator], ceilings: Ceilings, efficiency: Efficiency) -> StepTime:
    """Sum over operators of the time of one call times the number of calls (kernels run one after another)."""
    timed = tuple(operator_range(o, ceilings, efficiency) for o in operators)
    totals: list[Number] = [0.0, 0.0, 0.0, 0.0]
    alone: list[Number] = [0.0, 0.0, 0.0]
    share_s: dict[str, Number] = {"compute": 0.0, "memory": 0.0, "network": 0.0}
    for item in timed:
        count = item.operator.count
        times = item.time_s
        for i, seconds in enumerate((times.floor, times.low, times.expected, times.high)):
            totals[i] = totals[i] + seconds * count  # type: ignore[operator]
        for i, seconds in enumerate((item.floor.compute_s, item.floor.memory_s, item.floor.network_s)):
            alone[i] = alone[i] + seconds * count
        _add_share(share_s, item.floor, count)
    result = Range(totals[0], totals[1], totals[2], totals[3], efficiency.evidence)
    return StepTime(timed, result, maximum(maximum(alone[0], alone[1]), alone[2]), share_s)


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
