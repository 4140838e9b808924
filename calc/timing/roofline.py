"""The roofline of one operator: the time below which no kernel can go, and what bounds it.

Williams, Waterman, Patterson 2009. An operator overlaps its own loads and arithmetic; operators run one after another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calc.arrays import Number, is_plain, maximum
from calc.operators.operator import Collective, Operator
from calc.profiles.hardware import HardwareProfile
from calc.timing import network, paths
from calc.units import TERA


@dataclass(frozen=True)
class Ceilings:
    """What one device can do at most: operations per second by compute dtype, bytes per second of memory and of the link in use.
    ``links`` by kind of collective stand in for ``link`` where it reaches further than tensor parallelism does.

    ``read_bandwidth`` by dtype may replace ``bandwidth`` for operators of that dtype where it was measured so. ``launch_s`` is added
    per call where it was measured. ``paths`` names the type that an engine's kernels really run in (see ``paths``).
    """

    name: str
    peaks: dict[str, float]
    bandwidth: float | None
    link: network.Link | None = None
    read_bandwidth: dict[str, float] = field(default_factory=dict)
    launch_s: float = 0.0
    paths: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, network.Link | None] = field(default_factory=dict)

    def peak(self, dtype: str) -> float | None:
        """Operations per second of a compute dtype, None where the device has no such path."""
        return self.peaks.get(dtype)

    def dtype_for(self, operator: Operator) -> str:
        """The type that the engine's kernels run an operator in."""
        return paths.dtype(operator.compute_dtype, operator.weight_format, self.paths)

    def peak_for(self, operator: Operator) -> float | None:
        """Operations per second of the path that runs an operator."""
        return self.peaks.get(self.dtype_for(operator))

    def bandwidth_for(self, dtype: str) -> float | None:
        """Bytes per second of memory for an operator of a dtype."""
        return self.read_bandwidth.get(dtype, self.bandwidth)

    def link_for(self, collective: Collective | None) -> network.Link | None:
        """The link that a collective goes over; None where no link is known."""
        return None if collective is None else self.links.get(collective.kind, self.link)

    def ridge_point(self, dtype: str) -> float | None:
        """FLOP per byte above which a kernel is compute-bound."""
        peak, bandwidth = self.peak(dtype), self.bandwidth
        return peak / bandwidth if peak and bandwidth else None


def datasheet(
    hardware: HardwareProfile, ranks: int = 1, kernel_paths: Mapping[str, str] | None = None, reach: Mapping[str, int] | None = None
) -> Ceilings:
    """Ceilings of a profile: dense peaks, datasheet bandwidth, the link that joins ``ranks`` devices; ``reach`` names the devices that
    a kind of collective spans where they are others."""
    peaks = {d: tflops * TERA for d, tflops in hardware.dense_peaks().items()}
    bandwidth = hardware.bandwidth_bytes_per_s
    links = {kind: network.link(hardware, span) for kind, span in (reach or {}).items()}
    return Ceilings(hardware.id, peaks, bandwidth, network.link(hardware, ranks), paths=kernel_paths or {}, links=links)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds that each resource alone would need for one call on one rank."""

    compute_s: Number
    memory_s: Number
    network_s: Number

    @property
    def time_s(self) -> Number:
        """The largest of the three."""
        return maximum(maximum(self.compute_s, self.memory_s), self.network_s)

    @property
    def bound(self) -> str:
        """Which resource rules (for plain numbers)."""
        if self.network_s > max(self.compute_s, self.memory_s):
            return "network"
        return "compute" if self.compute_s > self.memory_s else "memory"


def joined_s(compute_s: Number, memory_s: Number, knee: float | None) -> Number:
    """Seconds of loads and products that overlap in part: the p-norm, from their sum (p = 1) to the larger one (None)."""
    larger = maximum(maximum(compute_s, memory_s), 1e-30)
    if knee is None:
        return larger
    result: Number = larger * ((compute_s / larger) ** knee + (memory_s / larger) ** knee) ** (1 / knee)
    return result


def corrected(table: Sequence[tuple[float, float]], rows: Number | None) -> Number:
    """What a law's time is multiplied with at a number of rows: measured / law, joined in logarithms, 1 outside of the table."""
    if not table or rows is None:
        return 1.0
    if not is_plain(rows):
        import numpy as np  # arrays are numpy's already

        grid = np.log([m for m, _ in table])
        result: Number = np.exp(np.interp(np.log(rows), grid, np.log([f for _, f in table]), left=0.0, right=0.0))
        return result
    if not table[0][0] <= rows <= table[-1][0]:
        return 1.0
    above = next(i for i, (m, _) in enumerate(table) if m >= rows)
    (m0, f0), (m1, f1) = table[max(above - 1, 0)], table[above]
    share = math.log(rows / m0) / math.log(m1 / m0) if m1 > m0 else 0.0
    return math.exp(math.log(f0) + share * (math.log(f1) - math.log(f0)))


def slowdown(grain: float, enough: float, elements: Number) -> Number:
    """What the time of a call's bytes is multiplied with where it is spread over threads: each takes ``grain`` elements or more, and
    ``enough`` of them reach the bandwidth (``GRAIN_SIZE`` of PyTorch's aten/src/ATen/TensorIterator.h: 32,768 elements)."""
    result: Number = maximum(enough / maximum(elements / grain, 1.0), 1.0)
    return result


def floor(operator: Operator, ceilings: Ceilings) -> Bounds:
    """Bounds with only the bytes that must move whatever the kernels do (weights, KV, state, network). Activations and element-wise
    work cost nothing: they can be fused or stay in cache."""
    seconds = network.floor_s(operator.collective, ceilings.link_for(operator.collective))
    return _bounds(operator, ceilings, operator.compulsory_bytes, seconds)


def honest(operator: Operator, ceilings: Ceilings, compute: float = 1.0, bandwidth: float = 1.0, link: float = 1.0) -> Bounds:
    """Bounds with all bytes of the fusion policy, at given shares of the ceilings."""
    seconds = network.transfer_s(operator.collective, ceilings.link_for(operator.collective))
    bounds = _bounds(operator, ceilings, operator.bytes, seconds)
    return Bounds(bounds.compute_s / compute, bounds.memory_s / bandwidth, bounds.network_s / link)


def operator_time(operator: Operator, ceilings: Ceilings) -> Number:
    """Seconds of one call at the given ceilings: the roofline of all its bytes, plus the launch cost."""
    return honest(operator, ceilings).time_s + ceilings.launch_s


def _bounds(operator: Operator, ceilings: Ceilings, traffic: Number, network_s: Number) -> Bounds:
    peak = ceilings.peak_for(operator)
    bandwidth = ceilings.bandwidth_for(operator.compute_dtype)
    if peak is None or bandwidth is None:  # callers refuse such devices before any time is asked for
        raise ValueError(f"{ceilings.name} has no rate for {operator.compute_dtype}")
    return Bounds(operator.flops / peak, traffic / bandwidth, network_s)
