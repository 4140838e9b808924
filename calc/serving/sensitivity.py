"""What would help: how a step's time changes if one thing were twice as good, everything else as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from calc.arrays import divide
from calc.numerics import CacheFormat
from calc.operators.work import Work
from calc.profiles.efficiency import Latency
from calc.serving.deployment import Deployment
from calc.serving.phase import evaluate
from calc.timing.calibrated import Calibrated
from calc.timing.efficiency import Efficiency
from calc.timing.network import Link
from calc.timing.step_time import OVERHEADS, Range


@dataclass(frozen=True)
class Change:
    """``time_s`` of the step if ``what`` were twice as good; ``saved`` is the share of the expected time that goes away."""

    what: str
    time_s: Range
    saved: float


def sensitivity(deployment: Deployment, work: Work, time_s: Range) -> tuple[Change, ...]:
    """Changes of a step that takes ``time_s`` now, the most helpful first. Kernels keep their share of the ceilings."""
    found = []
    for what, better in _better(deployment):
        time = evaluate(better, work).time_s
        saved = 0.0
        if time.expected is not None and time_s.expected is not None:
            saved = float(1 - divide(time.expected, time_s.expected))
        found.append(Change(what, time, saved))
    return tuple(sorted(found, key=lambda change: -change.saved))


def _better(deployment: Deployment) -> list[tuple[str, Deployment]]:
    """The deployments to compare with; a link only where ranks talk over one."""
    ceilings = deployment.ceilings
    bandwidth = ceilings.bandwidth * 2 if ceilings.bandwidth else None
    read = {dtype: rate * 2 for dtype, rate in ceilings.read_bandwidth.items()}
    peaks = {dtype: peak * 2 for dtype, peak in ceilings.peaks.items()}
    found = [
        ("bandwidth", replace(deployment, ceilings=replace(ceilings, bandwidth=bandwidth, read_bandwidth=read))),
        ("compute", replace(deployment, ceilings=replace(ceilings, peaks=peaks))),
    ]
    if ceilings.link or any(ceilings.links.values()):
        links = {kind: _twice(wires) for kind, wires in ceilings.links.items()}
        found.append(("link", replace(deployment, ceilings=replace(ceilings, link=_twice(ceilings.link), links=links))))
    found.append(("launch", replace(deployment, efficiency=_launched_faster(deployment.efficiency))))
    numbers = replace(deployment.numbers, keys=halved(deployment.numbers.keys), values=halved(deployment.numbers.values))
    found.append(("kv_cache_format", replace(deployment, numbers=numbers)))
    return found


def _twice(wires: Link | None) -> Link | None:
    """A link of twice the rate, inside hosts and between them."""
    return wires and replace(wires, bandwidth=2 * wires.bandwidth, local_bandwidth=2 * wires.local_bandwidth)


def _launched_faster(model: Efficiency | Calibrated) -> Efficiency | Calibrated:
    """Half the fixed time of launches and layers."""
    if isinstance(model, Calibrated):
        scale = dict(model.scale) | {term: model.scale.get(term, 1.0) / 2 for term in OVERHEADS}
        return Calibrated(model.effects, model.setting, scale)
    factors = [structs.replace(f, launch_s=_half(f.launch_s)) for f in model.profile.factors]
    return replace(model, profile=structs.replace(model.profile, factors=factors))


def _half(time: Latency) -> Latency:
    return Latency(low=time.low / 2, expected=time.expected / 2, high=time.high / 2, n=time.n)


def halved(cache: CacheFormat) -> CacheFormat:
    """A cache format of half the bytes, scales included."""
    return _Halved(
        f"half of {cache.name}", cache.element_bits, cache.block, cache.block_bytes, cache.vector_bytes_extra, cache.packed
    )


class _Halved(CacheFormat):
    """A format that stores each vector in half the bytes."""

    __slots__ = ()

    def vector_bytes(self, width: int) -> float:
        """Half the bytes of the format it was made of."""
        return CacheFormat.vector_bytes(self, width) / 2
