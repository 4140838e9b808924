"""The host's memory as a second storey: weights that stream in every step, and caches that are restored rather than computed again."""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, divide
from calc.formula import formula
from calc.memory.budget import is_unified
from calc.operators import work
from calc.profiles.hardware import HardwareProfile
from calc.serving.deployment import Deployment
from calc.serving.disaggregation import rank_cache_bytes
from calc.serving.phase import evaluate
from calc.timing.step_time import Range


@dataclass(frozen=True)
class Restore:
    """A cache of ``tokens`` kept in host memory: ``restore_s`` over the host link against ``recompute_s``, the prefill of the same
    tokens. Restoring wins on any link faster than ``break_even_bytes_per_s``."""

    tokens: int
    bytes_per_rank: float
    bandwidth_bytes_per_s: float
    restore_s: float
    recompute_s: Range
    break_even_bytes_per_s: float


def host_link(hardware: HardwareProfile) -> float | None:
    """Bytes per second between one device and its host, in one direction; None where the profile does not say, or both share one
    memory."""
    if is_unified(hardware):
        return None
    wires = hardware.interconnect
    found = wires.host_link_gb_per_s_per_direction or wires.pcie_gb_per_s_per_direction
    return found * 1e9 if found else None


@formula("offloaded_bytes / link")
def host_stream_s(offloaded_bytes: Number, link: float) -> Number:
    """Seconds that bytes in host memory need to reach the device: a step that streams weights takes no less, a cache is back by then."""
    return offloaded_bytes / link


@formula("boundaries * tokens * row_bytes / link + layer_bytes / host_bandwidth")
def host_layers_s(
    layer_bytes: Number, tokens: Number, row_bytes: float, *, host_bandwidth: float, link: float, boundaries: int = 1
) -> Number:
    """Layers computed on the host: their ``layer_bytes`` (weights and cache) through host memory, and ``tokens`` rows of activations of
    ``row_bytes`` over the link at every boundary between host and device."""
    return boundaries * tokens * row_bytes / link + layer_bytes / host_bandwidth


@formula("peak * bytes_per_weight / (2 * link)")
def streaming_pays_tokens(peak: float, link: float, bytes_per_weight: float = 2.0) -> float:
    """Tokens in a step from which streamed weights cost no time: computing with a weight (2 FLOP a token) takes as long as fetching
    it."""
    return peak * bytes_per_weight / (2 * link)


def restore(deployment: Deployment, tokens: int) -> Restore | None:
    """Restore or recompute, for one sequence. None where the host link is not known. The deployment must have rates."""
    link = host_link(deployment.hardware.profile)
    if link is None:
        return None

    size = rank_cache_bytes(deployment, tokens)
    recompute = evaluate(deployment, work.prefill(1, tokens)).time_s
    return Restore(tokens, size, link, float(host_stream_s(size, link)), recompute, float(divide(size, recompute.expected or 0.0)))
