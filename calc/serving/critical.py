"""Critical points of decode in closed form: where batching bends to compute-bound, where the cache takes over (Pope et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from calc.operators.operator import Operator
from calc.operators.step import step_operators
from calc.operators.work import decode
from calc.serving.deployment import Deployment

#: Context at which the slope of KV traffic is taken: beyond every window.
_FAR = 1 << 24


@dataclass(frozen=True)
class CriticalPoints:
    """``batch``: tokens from which the weight-bearing operators are compute-bound (weights alone in the denominator); None: never.
    ``context_kv_equals_weights``: sum of contexts over the batch at which the cache costs as many bytes as the weights.
    ``context_never_compute_bound``: mean context beyond which a decode step is memory-bound at every batch. None where the cache does
    not grow with the context."""

    batch: float | None
    context_kv_equals_weights: float | None
    context_never_compute_bound: float | None


def critical_points(deployment: Deployment) -> CriticalPoints | None:
    """Closed forms from the operator list of a decode step of one request (one on each data-parallel rank): weights read W, FLOP per
    token F, KV bytes per token kv.

    batch* = W P / (F BW) with F and W of the weight-bearing operators; context* = W / kv; context_inf = F BW / (P kv).
    """
    ceilings, requests = deployment.ceilings, deployment.sharding.data_ranks
    near, far = (
        step_operators(
            deployment.model.profile, deployment.sharding, deployment.numbers, decode(requests, context), deployment.fusion
        )
        for context in (_FAR, 2 * _FAR)
    )
    bandwidth = ceilings.bandwidth
    if bandwidth is None:
        return None
    weights_s = flops_s = 0.0
    weight_bytes = 0.0
    for operator in near:
        peak = ceilings.peak_for(operator)
        if peak is None:
            return None
        if operator.is_product:
            weights_s += float(operator.weight_bytes) * operator.count / bandwidth
            flops_s += float(operator.flops) * operator.count / peak
        weight_bytes += float(operator.weight_bytes) * operator.count
    slope = (_kv(far) - _kv(near)) / _FAR
    return CriticalPoints(
        batch=requests * weights_s / flops_s if flops_s else None,
        context_kv_equals_weights=requests * weight_bytes / slope if slope > 0 else None,
        context_never_compute_bound=flops_s * bandwidth / slope if slope > 0 else None,
    )


def _kv(operators: list[Operator]) -> float:
    return sum(float(o.kv_read_bytes) * o.count for o in operators)
