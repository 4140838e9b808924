"""One step of a deployment as people ask about it: totals by operand, intensities, bound, time, utilisation, operator by operator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from calc.arrays import Number, divide, is_plain, minimum
from calc.operators.operator import Operator
from calc.operators.step import step_operators
from calc.operators.work import Work, prefill
from calc.serving.deployment import Deployment
from calc.serving.flow import Flow, flow
from calc.serving.offload import with_host
from calc.timing.overlap import overlapped
from calc.timing.roofline import Ceilings
from calc.timing.step_time import NO_TIME, OperatorTime, Range, StepTime, rate, step_time
from calc.timing.totals import step_totals

#: Tokens with which every expert is read.
_WHOLE = 4096


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
    decode. ``operators`` are those of the mean rank, which sum to the step, their calls those of all micro-batches; ``timed`` is about
    one micro-batch on the rank with most requests."""

    work: Work
    tokens: Number
    totals: Totals
    ranks: int
    fusion_policy: str
    operators: tuple[Operator, ...] = field(repr=False)
    flow: Flow
    timed: StepTime | None = field(repr=False)
    is_cut: bool  # into pipeline stages or data-parallel ranks
    ceilings: Ceilings
    main_dtype: str  # of the products with most weight bytes: its peak gives the ridge point

    @property
    def ridge_point(self) -> float | None:
        """FLOP per byte from which those products are compute-bound."""
        return self.ceilings.ridge_point(self.main_dtype)

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
        for mean, item in zip(self.operators, self.timed.operators, strict=True):
            share = 1 if mean.flops is item.operator.flops else divide(mean.flops, item.operator.flops)
            busy = busy + item.floor.compute_s * share * mean.count * mean.ranks
        return divide(busy, self.timed.time_s.expected * self.ranks)

    @property
    def bandwidth_utilization(self) -> Number | None:
        """Share of the memory bandwidth that the expected time leaves in use, all bytes of the fusion policy counted; 1 where these are
        more than memory can move in that time, so that part of the activations stays in cache."""
        bandwidth = self.ceilings.bandwidth
        if self.timed is None or self.timed.time_s.expected is None or not bandwidth:
            return None
        share = divide(self.totals.bytes, self.timed.time_s.expected * bandwidth * self.ranks)
        return minimum(share, 1.0)

    def share(self, item: OperatorTime) -> Number:
        """Share of the step's expected time that all calls of an operator take."""
        if self.timed is None or self.timed.time_s.expected is None or item.time_s.expected is None:
            return 0.0
        return divide(item.time_s.expected * item.operator.count, self.timed.time_s.expected)


def evaluate(deployment: Deployment, work: Work, *, answer_speed: bool = True) -> Phase:
    """Operators, totals and times of one step. ``answer_speed`` False (the deployment does not fit) leaves out every time."""
    found = flow(deployment, work)
    fullest = _operators(deployment, found.fullest)
    timed = _timed(deployment, fullest, found) if answer_speed and deployment.has_rates else None
    operators = _mean_operators(deployment, fullest, found)
    if timed is not None:  # what the host adds comes after what the model does
        operators = [*operators, *(item.operator for item in timed.operators[len(fullest) :])]
    tokens = work.tokens if work.phase == "prefill" else work.sequences
    return Phase(
        work,
        tokens,
        _totals(operators),
        deployment.sharding.ranks,
        deployment.fusion.name,
        tuple(operators),
        found,
        timed,
        deployment.sharding.is_wide or deployment.sharding.pipeline > 1,
        deployment.ceilings,
        _main_dtype(operators, deployment.ceilings),
    )


def main_dtype(deployment: Deployment) -> str:
    """The type that the products with most weight bytes run in, in a step that reads all weights: what a deployment computes in."""
    return _main_dtype(_operators(deployment, prefill(1, _WHOLE)), deployment.ceilings)


def timed_step(deployment: Deployment, work: Work) -> StepTime:
    """Times of a whole step alone, for many points at once; the same numbers as those of ``evaluate``. The deployment must have
    rates."""
    found = flow(deployment, work)
    operators = _operators(deployment, found.fullest)
    if not deployment.overlap.is_none:
        return replace(_timed(deployment, operators, found), operators=())
    at_once = found.stages_at_once
    timed = step_totals(operators, deployment.ceilings, deployment.efficiency, found.rank, stages_at_once=at_once)
    return _stretched(with_host(deployment, operators, found.rank, timed), found.stretch)


def _operators(deployment: Deployment, work: Work, *, evenly: bool = False) -> list[Operator]:
    model, sharding, numbers = deployment.model.profile, deployment.sharding, deployment.numbers
    return step_operators(model, sharding, numbers, work, deployment.fusion, evenly=evenly)


def _mean_operators(deployment: Deployment, fullest: list[Operator], found: Flow) -> list[Operator]:
    """Operators of the mean rank in the mean micro-batch, called by all micro-batches: their sums are those of the step."""
    parts = found.micro_batches
    if not deployment.sharding.is_wide and is_plain(parts) and parts == 1:
        return fullest
    mean = _operators(deployment, found.mean, evenly=True)
    return [replace(operator, count=operator.count * parts) for operator in mean]  # type: ignore[arg-type]


def _timed(deployment: Deployment, operators: list[Operator], found: Flow) -> StepTime:
    at_once = found.stages_at_once
    timed = step_time(operators, deployment.ceilings, deployment.efficiency, found.rank, stages_at_once=at_once)
    if not deployment.overlap.is_none:
        silent, messages = ([o for o in operators if (o.collective is not None) == sent] for sent in (False, True))
        alone, sent = (
            step_time(part, deployment.ceilings, deployment.efficiency, found.rank, stages_at_once=at_once)
            for part in (silent, messages)
        )
        timed = overlapped(timed, deployment.overlap, alone, sent)
    return _stretched(with_host(deployment, operators, found.rank, timed), found.stretch)


def _stretched(timed: StepTime, stretch: Number) -> StepTime:
    return timed if is_plain(stretch) and stretch == 1 else timed.times(stretch)


def _totals(operators: list[Operator]) -> Totals:
    sums: dict[str, Number] = dict.fromkeys(Totals.__dataclass_fields__, 0)
    for operator in operators:
        times = operator.count * operator.ranks
        for name in sums:
            if name != "weight_flops":
                sums[name] = sums[name] + getattr(operator, name) * times
        if operator.is_product:
            sums["weight_flops"] = sums["weight_flops"] + operator.flops * times
    return Totals(**sums)


def _main_dtype(operators: list[Operator], ceilings: Ceilings) -> str:
    """The type that the products with most weight bytes run in, the head apart."""
    best, most = operators[0].compute_dtype if operators else "bf16", -1.0
    for operator in operators:
        if operator.is_product and operator.name != "lm_head":
            held = operator.weight_bytes * operator.count
            size = float(held) if isinstance(held, (int, float)) else float(held.max())
            if size > most:
                best, most = ceilings.dtype_for(operator), size
    return best
