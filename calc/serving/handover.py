"""Where else the cache of a request can come from or go: to a decode machine, or back from the host's memory."""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import divide
from calc.operators import work
from calc.serving import disaggregation
from calc.serving.deployment import Deployment
from calc.serving.offload import REACHED, by_part, host_link, host_stream_s
from calc.serving.phase import evaluate
from calc.serving.request import Workload, mean_step
from calc.timing.step_time import Range


@dataclass(frozen=True)
class Restore:
    """A cache of ``tokens`` kept in host memory: ``restore_s`` over the host link against ``recompute_s``, the prefill of the same
    tokens. At the expected times restoring wins on any link faster than ``break_even_bytes_per_s``."""

    tokens: int
    bytes_per_rank: float
    bandwidth_bytes_per_s: float
    restore_s: Range
    recompute_s: Range
    break_even_bytes_per_s: float


@dataclass(frozen=True)
class Handover:
    """``prefill_per_decode`` replicas keep decode replicas at the workload's batch busy, and carry ``requests_per_s`` per decode
    replica (expected times; None where prefill makes the only token). ``transfer`` and ``restore`` are None where the profile knows no
    such link."""

    prefill_per_decode: float | None
    requests_per_s: float | None
    transfer: disaggregation.Transfer | None
    restore: Restore | None


def handover(deployment: Deployment, workload: Workload) -> Handover:
    """Disaggregation and cache offload for one workload. The deployment must fit and have rates."""
    batch, steps = workload.batch_size, workload.output_len - 1
    prefill = float(evaluate(deployment, work.prefill(1, workload.input_len, workload.cached_len)).time_s.expected or 0.0)
    ratio = rate = None
    if steps:
        step = float(mean_step(deployment, workload).expected or 0.0)
        ratio = float(disaggregation.ratio(prefill, step, batch, steps))
        rate = float(disaggregation.request_rate(ratio, 1, prefill, step, batch, steps))
    return Handover(
        ratio,
        rate,
        disaggregation.transfer(deployment, workload.input_len, prefill),
        restore(deployment, workload.input_len),
    )


def restore(deployment: Deployment, tokens: int) -> Restore | None:
    """Restore or recompute, for one sequence. None where the host link is not known. The deployment must have rates."""
    link = host_link(deployment.hardware.profile)
    if link is None:
        return None
    size = deployment.question().rank_cache_bytes(tokens)
    back = Range(**by_part(float(host_stream_s(size, link))), evidence="datasheet; expected: the share of PCIe that copies reach")
    again = evaluate(deployment, work.prefill(1, tokens)).time_s
    even = divide(size, REACHED * (again.expected or 0.0))
    return Restore(tokens, size, link, back, again, float(even))
