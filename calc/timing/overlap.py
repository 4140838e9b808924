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


def overlapped(timed: StepTime, overlap: Overlap, silent: StepTime, sent: StepTime) -> StepTime:
    """A step whose messages overlap with compute, kind of layer by kind of layer. Operators keep their own times, which then add up to
    more than the step by ``hidden_s``. ``silent`` is the step without any message, ``sent`` its messages alone; all list their operators.

    What can be hidden follows from the expected times: messages are what the step takes beyond the silent one. The high end loses as
    much. The low end is the larger of the low ends of both, so that neither a faster device nor a faster link slows it.
    """
    old, alone = timed.time_s, silent.time_s
    if overlap.is_none or not any(item.operator.collective for item in timed.operators):
        return timed
    if old.floor is None or old.low is None or old.expected is None or old.high is None:
        return timed
    if alone.expected is None:
        return timed
    compute, network = _by_layers(silent), _by_layers(timed, messages=True)
    share = divide(old.expected - alone.expected, sum(network.values()))
    hideable: Number = 0.0
    for layers, seconds in network.items():
        hideable = hideable + minimum(seconds * share, compute.get(layers, 0.0))
    floor = old.floor - _hidden_at_floor(timed, overlap.best)
    # Layers may be expected to hide more than they do at the floor.
    expected = maximum(old.expected - overlap.share * hideable, floor)
    high = maximum(old.high - overlap.share * hideable, expected)
    fastest, quickest = _by_layers(silent, "low"), _by_layers(sent, "low", messages=True)
    all_hidden: Number = 0.0
    for layers in fastest | quickest:
        all_hidden = all_hidden + maximum(fastest.get(layers, 0.0), quickest.get(layers, 0.0))
    low = old.low - overlap.best * maximum(old.low - all_hidden, 0.0)
    low = minimum(maximum(low, floor), expected)
    times = Range(floor, low, expected, high, old.evidence)
    hidden = {part: getattr(old, part) - getattr(times, part) for part in Range.PARTS}
    terms = dict(timed.terms_s or {})
    if "collective" in terms:
        terms["collective"] = terms["collective"] - hidden["expected"]
    return replace(timed, time_s=times, terms_s=terms or None, hidden_s=hidden, share_s=_shares(timed, overlap.best))


def by_layers(calls: Iterable[tuple[Operator, Number]]) -> list[tuple[Number, Number]]:
    """(compute, network) seconds of each kind of layer, from the seconds of one call of each operator."""
    sums: dict[str, list[Number]] = {}
    for operator, seconds in calls:
        both = sums.setdefault(operator.layers, [0.0, 0.0])
        at = 0 if operator.collective is None else 1
        both[at] = both[at] + seconds * operator.count
    return [(compute, network) for compute, network in sums.values()]


def _by_layers(timed: StepTime, part: str = "expected", *, messages: bool = False) -> dict[str, Number]:
    """Seconds of the messages, or of all else, by kind of layer at one end of the range."""
    sums: dict[str, Number] = {}
    for item in timed.operators:
        operator, seconds = item.operator, getattr(item.time_s, part)
        if seconds is not None and (operator.collective is not None) == messages:
            sums[operator.layers] = sums.get(operator.layers, 0.0) + seconds * operator.count
    return sums


def _floors(timed: StepTime) -> list[tuple[Number, Number]]:
    return by_layers((item.operator, item.time_s.floor) for item in timed.operators if item.time_s.floor is not None)


def _hidden_at_floor(timed: StepTime, share: float) -> Number:
    hidden: Number = 0.0
    for compute, network in _floors(timed):
        hidden = hidden + (compute + network - overlapped_s(compute, network, share))
    return hidden


def _shares(timed: StepTime, best: float) -> dict[str, Number]:
    """The floor by resource without what is hidden: of each kind of layer the shorter of compute and network."""
    behind_compute: Number = 0.0
    behind_network: Number = 0.0
    for compute, network in _floors(timed):
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
