"""One step of a deployment as people ask about it: totals by operand, intensities, bound, time, utilisation, operator by operator."""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, divide, minimum
from calc.operators.operator import Operator
from calc.operators.step import step_operators
from calc.operators.work import Work
from calc.serving.deployment import Deployment
from calc.timing.step_time import NO_TIME, OperatorTime, Range, StepTime, rate, step_time
from calc.timing.totals import step_totals


@dataclass(frozen=True)
class Totals:
    """Sums over the operators of a step and over all ranks of a replica (bytes and FLOP)."""

    flops: Number
    vector_flops: Number
    weight_bytes: Number
    activation_bytes: Number
    kv_read_bytes: Number
    kv_write_bytes: Number
    state_bytes: Number
    network_bytes: Number
    weight_flops: Number  # FLOP of operators that hold weights

    @property
    def bytes(self) -> Number:
        """Bytes through device memory under the fusion policy; network apart."""
        return self.weight_bytes + self.activation_bytes + self.kv_read_bytes + self.kv_write_bytes + self.state_bytes


@dataclass(frozen=True)
class Phase:
    """A step with its totals and, where speed is answered, its time. ``tokens`` counts prompt tokens in prefill, output tokens in
    decode."""

    work: Work
    tokens: Number
    totals: Totals
    ranks: int
    fusion_policy: str
    operators: tuple[Operator, ...]
    timed: StepTime | None
    ridge_point: float | None
    peak_flops_per_s: float | None
    bandwidth_bytes_per_s: float | None

    @property
    def arithmetic_intensity(self) -> Number:
        """FLOP per byte with all bytes of the fusion policy."""
        return divide(self.totals.flops, self.totals.bytes)

    @property
    def arithmetic_intensity_weights_only(self) -> Number:
        """FLOP of the operators that hold weights, per weight byte: the number of tokens for 16-bit weights."""
        return divide(self.totals.weight_flops, self.totals.weight_bytes)

    @property
    def arithmetic_intensity_weights_and_kv(self) -> Number:
        """FLOP per byte of weights and KV read."""
        return divide(self.totals.flops, self.totals.weight_bytes + self.totals.kv_read_bytes)

    @property
    def time_s(self) -> Range:
        """Time of the step."""
        return self.timed.time_s if self.timed else NO_TIME

    @property
    def tokens_per_s(self) -> Range:
        """Tokens per second; ``floor`` holds the ceiling of the rate."""
        return rate(self.tokens, self.time_s)

    @property
    def bound(self) -> str | None:
        """The resource with the largest share of the floor."""
        return self.timed.bound if self.timed else None

    @property
    def compute_utilization(self) -> Number | None:
        """Share of the peak that the expected time leaves in use (each operator against the peak of its own type)."""
        if self.timed is None or self.timed.time_s.expected is None:
            return None
        busy: Number = 0.0
        for item in self.timed.operators:
            busy = busy + item.floor.compute_s * item.operator.count * item.operator.ranks
        return divide(busy, self.timed.time_s.expected * self.ranks)

    @property
    def bandwidth_utilization(self) -> Number | None:
        """Share of the memory bandwidth that the expected time leaves in use, all bytes of the fusion policy counted; 1 where these are
        more than memory can move in that time, so that part of the activations stays in cache."""
        if self.timed is None or self.timed.time_s.expected is None or not self.bandwidth_bytes_per_s:
            return None
        share = divide(self.totals.bytes, self.timed.time_s.expected * self.bandwidth_bytes_per_s * self.ranks)
        return minimum(share, 1.0)

    def share(self, item: OperatorTime) -> Number:
        """Share of the step's expected time that all calls of an operator take."""
        if self.timed is None or self.timed.time_s.expected is None or item.time_s.expected is None:
            return 0.0
        return divide(item.time_s.expected * item.operator.count, self.timed.time_s.expected)


def evaluate(deployment: Deployment, work: Work, *, answer_speed: bool = True) -> Phase:
    """Operators, totals and times of one step. ``answer_speed`` False (the deployment does not fit) leaves out every time."""
    operators = step_operators(deployment.model.profile, deployment.sharding, deployment.numbers, work, deployment.fusion)
    timed = None
    if answer_speed and deployment.has_rates:
        timed = step_time(operators, deployment.ceilings, deployment.efficiency, work)
    tokens = work.tokens if work.phase == "prefill" else work.sequences
    dtype = _main_dtype(operators)
    return Phase(
        work,
        tokens,
        _totals(operators),
        deployment.sharding.ranks,
        deployment.fusion.name,
        tuple(operators),
        timed,
        deployment.ceilings.ridge_point(dtype),
        deployment.ceilings.peak(dtype),
        deployment.ceilings.bandwidth,
    )


def timed_step(deployment: Deployment, work: Work) -> StepTime:
    """Times of a whole step alone, for many points at once; the same numbers as those of ``evaluate``. The deployment must have
    rates."""
    operators = step_operators(deployment.model.profile, deployment.sharding, deployment.numbers, work, deployment.fusion)
    return step_totals(operators, deployment.ceilings, deployment.efficiency, work)


def _totals(operators: list[Operator]) -> Totals:
    sums: dict[str, Number] = dict.fromkeys(Totals.__dataclass_fields__, 0)
    for operator in operators:
        times = operator.count * operator.ranks
        for name in sums:
            if name != "weight_flops":
                sums[name] = sums[name] + getattr(operator, name) * times
        if operator.op_class in ("gemm", "experts"):
            sums["weight_flops"] = sums["weight_flops"] + operator.flops * times
    return Totals(**sums)


def _main_dtype(operators: list[Operator]) -> str:
    """The compute type of the weight-bearing operator with most weight bytes: its peak gives the ridge point."""
    best, most = operators[0].compute_dtype if operators else "bf16", -1.0
    for operator in operators:
        if operator.op_class in ("gemm", "experts") and operator.name != "lm_head":
            held = operator.weight_bytes * operator.count
            size = float(held) if isinstance(held, (int, float)) else float(held.max())
            if size > most:
                best, most = operator.compute_dtype, size
    return best
