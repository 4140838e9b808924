"""Prefill and decode on different machines: how many of each, and what it costs to hand the KV cache over.

DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677 (transfer layer by layer behind the prefill that makes the next ones).
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, maximum, minimum
from calc.errors import UsageError
from calc.formula import formula
from calc.serving.deployment import Deployment
from calc.serving.load import batching

#: Engines that hand caches from prefill to decode replicas: docs.vllm.ai (disaggregated prefilling), docs.sglang.io (PD disaggregation),
#: nvidia.github.io/TensorRT-LLM (disaggregated serving). ``ideal`` stands for any.
SENDING = ("vllm", "sglang", "tensorrt-llm", "ideal")


def check_sends(engines: set[str]) -> None:
    """Refuse where none of the engines hands caches over. Raises UsageError."""
    if not engines & set(SENDING):
        names = " and ".join(sorted(engines))
        raise UsageError(f"{names} cannot send caches to decode replicas", "engines that can: " + ", ".join(SENDING))


@dataclass(frozen=True)
class Transfer:
    """The cache of a prompt on its way from a prefill to a decode machine: ``bytes_per_rank`` over the link of each rank, ``time_s``
    of all of it, and what of that the first token waits for when each layer is sent as soon as it is made (``exposed_s``)."""

    bytes_per_rank: float
    bandwidth_bytes_per_s: float
    time_s: float
    exposed_s: float


@formula("cache_bytes / bandwidth")
def transfer_s(cache_bytes: Number, bandwidth: float) -> Number:
    """Seconds to send a cache over a link of ``bandwidth`` bytes per second in one direction."""
    return cache_bytes / bandwidth


@formula("transfer / layers + max(0, (layers - 1) / layers * (transfer - prefill))")
def exposed_s(transfer: Number, prefill: Number, layers: int) -> Number:
    """What remains of the transfer after the prefill when layers are sent one by one: the last layer where sending keeps up with
    computing; else the link, busy from the end of the first layer on, is behind by what it lost on the others."""
    return transfer / layers + maximum(0.0, (layers - 1) / layers * (transfer - prefill))


@formula("min(prefill_machines / prefill_s, decode_machines * batch / (decode_steps * decode_s))")
def request_rate(
    prefill_machines: Number, decode_machines: Number, prefill_s: Number, decode_s: Number, batch: Number, decode_steps: Number
) -> Number:
    """Requests per second: what prefill makes or what decode finishes, whichever is less. ``prefill_s`` of one prompt, ``decode_s`` of
    a step of ``batch`` requests, ``decode_steps`` (above 0) of each: prefill made its first token."""
    return minimum(prefill_machines / prefill_s, decode_machines * batching.request_rate(batch, decode_steps, decode_s))


@formula("prefill_s * batch / (decode_steps * decode_s)")
def ratio(prefill_s: Number, decode_s: Number, batch: Number, decode_steps: Number) -> Number:
    """Prefill machines per decode machine at which both are busy all the time; ``decode_steps`` (above 0) of a request."""
    return prefill_s * batching.request_rate(batch, decode_steps, decode_s)


def transfer(deployment: Deployment, tokens: int, prefill_s: float) -> Transfer | None:
    """Hand-over of a prompt of ``tokens`` whose prefill takes ``prefill_s``; each device has a network link of its own. None where the
    profile knows none."""
    bandwidth = deployment.hardware.profile.interconnect.scale_out_bytes_per_s
    if not bandwidth:
        return None
    size = deployment.question().rank_cache_bytes(tokens)  # what ranks hold in common is sent once to each
    whole = float(transfer_s(size, bandwidth))
    layers = deployment.model.profile.num_hidden_layers
    return Transfer(size, bandwidth, whole, float(exposed_s(whole, prefill_s, layers)))
