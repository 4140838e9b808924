"""Messages behind compute: what of a step's network time is hidden when a layer's messages and its kernels run at once.

Two halves of a batch take turns (two-batch overlap: SGLang ``--enable-two-batch-overlap``, vLLM ``--enable-dbo``, DeepSeek-V3 arXiv
2412.19437 section 3.4), or kernels send while they compute. By default nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from calc.arrays import Number, divide, maximum, minimum
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.timing.step_time import Range, StepTime

#: Engines that can run two halves of a batch in turn while tokens travel to experts.
TWO_BATCH_ENGINES = ("vllm", "sglang", "tensorrt-llm", "deepseek")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Share of the shorter of a layer's compute and network time that is hidden behind the longer: what to plan with, and the best that
    the engine could do (floor and low end)."""

    share: float = 0.0
    best: float = 0.0

    @property
    def is_none(self) -> bool:
        """Whether nothing is ever hidden."""
        return self.share == 0 and self.best == 0


def possible(sharding: Sharding, engine: str, share: float = 0.0) -> Overlap:
    """The share asked for, and at best all of it where an engine can run two halves of a batch in turn while tokens travel to
    experts."""
    return Overlap(share, 1.0 if sharding.is_wide and engine in TWO_BATCH_ENGINES else share)


def overlapped_s(compute_s: Number, network_s: Number, overlap: float) -> Number:
    """Compute and network with a share ``overlap`` of the shorter hidden behind the longer: 0 is the sum, 1 the larger."""
    return compute_s + network_s - overlap * minimum(compute_s, network_s)


def overlapped(timed: StepTime, overlap: Overlap, silent: Range) -> StepTime:
    """A step whose messages overlap with compute, kind of layer by kind of layer. Operators keep their own times, which then add up to
    more than the step by ``hidden_s``. ``timed`` lists its operators; ``silent`` is the time of the step without any message.

    What is hidden of the expected time follows from its own parts. The low end takes the share of it that the step without messages
    has: how sure messages are is then no matter, and a faster link never slows it.
    """
    old = timed.time_s
    if silent.low is None or silent.expected is None:
        return timed
    if overlap.is_none or old.floor is None or old.low is None or old.expected is None or old.high is None:
        return timed
    hidden = {
        "floor": _hidden_s(timed, "floor", overlap.best),
        "expected": _hidden_s(timed, "expected", overlap.share),
        "high": _hidden_s(timed, "high", overlap.share),
    }
    floor, expected, high = old.floor - hidden["floor"], old.expected - hidden["expected"], old.high - hidden["high"]
    all_hidden = (old.expected - _hidden_s(timed, "expected", 1.0)) * divide(silent.low, silent.expected)
    low = minimum(maximum((1 - overlap.best) * old.low + overlap.best * all_hidden, floor), expected)
    hidden["low"] = old.low - low
    terms = dict(timed.terms_s or {})
    if "collective" in terms:
        terms["collective"] = terms["collective"] - hidden["expected"]
    times = Range(floor, low, expected, high, old.evidence)
    return replace(timed, time_s=times, terms_s=terms or None, hidden_s=hidden, share_s=_shares(timed, overlap.best))


def by_layers(calls: Iterable[tuple[Operator, Number]]) -> list[tuple[Number, Number]]:
    """(compute, network) seconds of each kind of layer, from the seconds of one call of each operator."""
    sums: dict[str, list[Number]] = {}
    for operator, seconds in calls:
        both = sums.setdefault(operator.layers, [0.0, 0.0])
        at = 0 if operator.collective is None else 1
        both[at] = both[at] + seconds * operator.count
    return [(compute, network) for compute, network in sums.values()]


def _by_layers(timed: StepTime, part: str) -> list[tuple[Number, Number]]:
    return by_layers((item.operator, getattr(item.time_s, part)) for item in timed.operators)


def _hidden_s(timed: StepTime, part: str, share: float) -> Number:
    hidden: Number = 0.0
    for compute, network in _by_layers(timed, part):
        hidden = hidden + (compute + network - overlapped_s(compute, network, share))
    return hidden


def _shares(timed: StepTime, best: float) -> dict[str, Number]:
    """The floor by resource without what is hidden: of each kind of layer the shorter of compute and network."""
    behind_compute: Number = 0.0
    behind_network: Number = 0.0
    for compute, network in _by_layers(timed, "floor"):
        is_shorter = (network <= compute) * 1.0
        hidden = compute + network - overlapped_s(compute, network, best)
        behind_compute = behind_compute + hidden * is_shorter
        behind_network = behind_network + hidden * (1 - is_shorter)
    shares = timed.share_s
    kept = 1 - divide(behind_network, shares["compute"] + shares["memory"])
    return {
        "compute": shares["compute"] * kept,
        "memory": shares["memory"] * kept,
        "network": shares["network"] - behind_compute,
    }
