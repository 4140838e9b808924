"""Weights and layers left in the host's memory: weights that cross the link in every step, layers that the host computes itself.

Layers run one after another, each where it lies. With a ``share`` of the step's work on the host, t = (1 - share) t_device +
max(share t_device, t_host), which is written as what the host adds to t_device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calc.arrays import Number, divide, maximum, minimum, where
from calc.errors import UsageError
from calc.formula import formula
from calc.memory import host
from calc.memory.budget import is_unified
from calc.memory.weights import stage_bytes
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import Work
from calc.profiles.hardware import HardwareProfile
from calc.serving.deployment import Deployment
from calc.timing import pipeline
from calc.timing.roofline import Bounds
from calc.timing.step_time import OperatorTime, Range, StepTime

#: Share of a PCIe link's rate that copies reach: 25 of 32 GB/s (generation 4), 50 of 64 (generation 5).
REACHED = 25 / 32
#: llama.cpp copies the weights of host layers to the device for products of so many rows, and computes smaller ones on the host
#: (ggml-cuda.cu, the minimum batch size of offload_op).
STREAMED_ROWS = 32
#: llama.cpp's activations are fp32.
_ROW_BYTES = 4
_PARTS = Range.PARTS


@dataclass(frozen=True)
class HostPart:
    """What the host takes of a step: ``seconds`` by end of the range, for ``share`` of the step that the device then does not do.
    ``on_link`` is 1 where they pass on the link to the device, 0 where in the host's memory (elementwise)."""

    name: str
    share: Number
    seconds: dict[str, Number]
    on_link: Number


def host_link(hardware: HardwareProfile) -> float | None:
    """Bytes per second between one device and its host, in one direction; None where the profile does not say, or both share one
    memory."""
    return None if is_unified(hardware) else hardware.interconnect.host_link_bytes_per_s


@formula("offloaded_bytes / link")
def host_stream_s(offloaded_bytes: Number, link: float) -> Number:
    """Seconds that bytes in host memory need to reach the device: a step that streams weights takes no less, a cache is back by then."""
    return offloaded_bytes / link


@formula("boundaries * tokens * row_bytes / link + layer_bytes / host_bandwidth")
def host_layers_s(
    layer_bytes: Number, tokens: Number, row_bytes: float, *, host_bandwidth: float, link: float, boundaries: int = 1
) -> Number:
    """Layers computed on the host: their ``layer_bytes`` (weights and cache) through host memory, and ``tokens`` rows of activations of
    ``row_bytes`` over the link at every boundary between host and device. The host's products are taken to hide behind its memory."""
    return boundaries * tokens * row_bytes / link + layer_bytes / host_bandwidth


@formula("max(0, host_s - share * step_s)")
def added_s(host_s: Number, share: Number, step_s: Number) -> Number:
    """What the host adds to a step of ``step_s`` whose ``share`` it takes over; nothing where it is the faster one."""
    return maximum(0.0, host_s - share * step_s)


@formula("peak * bytes_per_weight / (2 * link)")
def streaming_pays_tokens(peak: float, link: float, bytes_per_weight: float = 2.0) -> float:
    """Tokens in a step from which streamed weights cost no time: computing with a weight (2 FLOP a token) takes as long as fetching
    it."""
    return peak * bytes_per_weight / (2 * link)


def with_host(deployment: Deployment, operators: Sequence[Operator], work: Work, timed: StepTime) -> StepTime:
    """A step with what the host adds to it, as an operator of its own after the others; ``work`` is that of one rank."""
    part = host_part(deployment, operators, work)
    old = timed.time_s
    if part is None or old.expected is None or old.floor is None:
        return timed
    # The link may be busy all the time at best, the host only for its own layers.
    least = added_s(part.seconds["floor"], where(part.on_link == 1, 1.0, part.share), old.floor)
    added = {name: added_s(part.seconds[name], part.share, getattr(old, name)) for name in _PARTS[1:]}
    times = _ordered(old + Range(least, added["low"], added["expected"], added["high"], old.evidence))
    operator = Operator(part.name, "host", "host", 1, deployment.sharding.ranks, {}, deployment.numbers.compute)
    bounds = Bounds(0.0, least * (1 - part.on_link), least * part.on_link)
    by_resource = {"memory": bounds.memory_s, "network": bounds.network_s}
    share_s = timed.share_s | {name: timed.share_s[name] + seconds for name, seconds in by_resource.items()}
    listed = (*timed.operators, OperatorTime(operator, bounds, _own(added, least, old.evidence))) if timed.operators else ()
    terms = None if timed.terms_s is None else timed.terms_s | {"host": added["expected"]}
    return replace(timed, operators=listed, time_s=times, share_s=share_s, terms_s=terms)


def _own(added: dict[str, Number], least: Number, evidence: str) -> Range:
    """The range of the host alone around what it is expected to add. A slower device has more to hide it behind, so that the ends of the
    step are not the sums of its operators' ends."""
    expected = added["expected"]
    low = minimum(added["low"], expected)
    return Range(minimum(least, low), low, expected, maximum(added["high"], expected), evidence)


def _ordered(times: Range) -> Range:
    """Ends that would be equal, in order despite rounding."""
    assert times.floor is not None and times.low is not None and times.expected is not None and times.high is not None  # noqa: PT018
    low = maximum(times.floor, times.low)
    expected = maximum(low, times.expected)
    return Range(times.floor, low, expected, maximum(expected, times.high), times.evidence)


def host_part(deployment: Deployment, operators: Sequence[Operator], work: Work) -> HostPart | None:
    """What the host takes of a step; None where nothing is left to it. Raises UsageError where a rate that it needs is not known."""
    options = deployment.memory
    if options.cpu_offload_bytes:
        return _streamed(deployment, operators, work)
    if host.layers_on_host(len(deployment.model.profile.layers()), options.gpu_layers):
        return _host_layers(deployment, operators, work)
    return None


def _streamed(deployment: Deployment, operators: Sequence[Operator], work: Work) -> HostPart:
    """Weights that every pass reads over the link: the same share of all layers, of a mixture's experts those that tokens come to."""
    link = _known_link(deployment)
    sharding = deployment.sharding
    held = sum(
        host.layer_bytes(stage_bytes(deployment.model.profile, sharding, deployment.numbers, stage))
        for stage in range(sharding.pipeline)
    )
    share = min(1.0, deployment.memory.cpu_offload_bytes * sharding.pipeline / held)
    kinds = deployment.model.profile.layer_kinds
    read = _bytes(operators, dict.fromkeys(kinds, share), ("weight_bytes",))
    seconds = host_stream_s(read * _passes(deployment, work), link)
    return HostPart("host_weights", divide(read, _all_weights(operators)), by_part(seconds), 1)


def _host_layers(deployment: Deployment, operators: Sequence[Operator], work: Work) -> HostPart:
    """The first layers on the host, whole however the others are cut: small steps run there at the bandwidth of its memory; in large
    ones their weights cross the link."""
    link, bandwidth = _known_link(deployment), _host_bandwidth(deployment)
    model, on_device = deployment.model.profile, deployment.memory.gpu_layers
    names = model.layers()
    first = names[: host.layers_on_host(len(names), on_device)]
    counts = model.layer_counts()
    shares = {name: first.count(name) / counts[name] for name in counts}
    if on_device == 0:
        shares["model"] = 1.0  # embedding and output matrix too
    if deployment.sharding.tensor > 1:  # one host: no rank's slice, but the layer
        operators = step_operators(model, Sharding(), deployment.numbers, work, deployment.fusion)
    weights = _bytes(operators, shares, ("weight_bytes",))
    cache = _bytes(operators, shares, ("kv_read_bytes", "kv_write_bytes", "state_bytes"))
    crossings = 1 if len(first) < len(names) else 0
    row = _ROW_BYTES * model.hidden_size
    small = host_layers_s(weights + cache, work.tokens, row, host_bandwidth=bandwidth, link=link, boundaries=crossings)
    large = host_stream_s(weights * _passes(deployment, work), link)
    rows = minimum(work.tokens, deployment.setting.micro_batch)
    is_large = rows >= STREAMED_ROWS
    seconds = {name: where(is_large, large / (REACHED if name in _PARTS[2:] else 1.0), small) for name in _PARTS}
    return HostPart("host_layers", divide(weights, _all_weights(operators)), seconds, where(is_large, 1, 0))


def by_part(link_s: Number) -> dict[str, Number]:
    """Seconds over the link by end of the range: its rate at best, what copies reach otherwise."""
    return {name: link_s / (REACHED if name in _PARTS[2:] else 1.0) for name in _PARTS}


def _passes(deployment: Deployment, work: Work) -> Number:
    """Passes of the model that the tokens of a step take: weights cross once in each."""
    return 1 if work.phase == "decode" else pipeline.prompt_passes(work.tokens, deployment.setting.micro_batch)


def _bytes(operators: Sequence[Operator], shares: dict[str, float], names: tuple[str, ...]) -> Number:
    """Bytes of all calls on one rank, of each kind of layer the share that is on the host."""
    total: Number = 0.0
    for operator in operators:
        share = shares.get(operator.layers, 0.0)
        if share:
            total = total + sum(getattr(operator, n) for n in names) * (operator.count * share)
    return total


def _all_weights(operators: Sequence[Operator]) -> Number:
    total: Number = 0.0
    for operator in operators:
        total = total + operator.weight_bytes * operator.count
    return total


def _known_link(deployment: Deployment) -> float:
    hardware = deployment.hardware.profile
    link = host_link(hardware)
    if link is not None:
        return link
    if is_unified(hardware):
        raise UsageError(f"{hardware.id} shares one memory with its host", "leave nothing to the host: it frees no memory")
    raise UsageError(
        f"the link between {hardware.id} and its host is not known",
        "state interconnect.pcie_gb_per_s_per_direction in a profile of your own",
    )


def _host_bandwidth(deployment: Deployment) -> float:
    found = deployment.memory.host_bandwidth_bytes_per_s
    if found is None:
        raise UsageError(
            "the bandwidth of the host's memory is not known, in which layers beyond --n-gpu-layers run",
            "give --host-memory-bandwidth: two channels of DDR5-5600 move 89.6GB at best",
        )
    return found
