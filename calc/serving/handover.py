"""Where else the cache of a request can come from or go: to a decode machine, or back from the host's memory."""

from __future__ import annotations

from dataclasses import dataclass

from calc.operators import work
from calc.serving import disaggregation, offload
from calc.serving.deployment import Deployment
from calc.serving.phase import evaluate
from calc.serving.request import Workload, mean_step


@dataclass(frozen=True)
class Handover:
    """``prefill_per_decode`` replicas keep decode replicas at the workload's batch busy, and carry ``requests_per_s`` per decode
    replica (expected times). ``transfer`` and ``restore`` are None where the profile knows no such link."""

    prefill_per_decode: float
    requests_per_s: float
    transfer: disaggregation.Transfer | None
    restore: offload.Restore | None


def handover(deployment: Deployment, workload: Workload) -> Handover:
    """Disaggregation and cache offload for one workload. The deployment must fit and have rates."""
    batch, output = workload.batch_size, workload.output_len
    prefill = float(evaluate(deployment, work.prefill(1, workload.input_len, workload.cached_len)).time_s.expected or 0.0)
    step = float(mean_step(deployment, workload).expected or 0.0)
    ratio = disaggregation.ratio(prefill, step, batch, output)
    rate = disaggregation.request_rate(ratio, 1, prefill, step, batch, output)
    return Handover(
        float(ratio),
        float(rate),
        disaggregation.transfer(deployment, workload.input_len, prefill),
        offload.restore(deployment, workload.input_len),
    )
