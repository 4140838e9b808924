"""The time of a whole step without the times of its operators: what sweeps and plans evaluate by the million."""

from __future__ import annotations

from calc.arrays import Number, where
from calc.operators.operator import Operator
from calc.operators.work import Work
from calc.timing import roofline
from calc.timing.calibrated import Calibrated
from calc.timing.efficiency import Efficiency
from calc.timing.roofline import Ceilings
from calc.timing.step_time import Range, StepTime, kind_of, step_range, step_time
from calc.timing.terms import mix, step_sizes


def step_totals(
    operators: list[Operator], ceilings: Ceilings, efficiency: Efficiency | Calibrated, work: Work, *, stages_at_once: Number = 1.0
) -> StepTime:
    """``step_time`` with an empty list of operators, its overlapped floor 0: the same sums in the same order."""
    if not isinstance(efficiency, Calibrated):
        return step_time(operators, ceilings, efficiency, work, stages_at_once=stages_at_once)
    parts = mix(operators, efficiency.setting, work)
    floor: Number = 0.0
    share_s: dict[str, Number] = {"compute": 0.0, "memory": 0.0, "network": 0.0}
    for operator in operators:
        bounds = roofline.floor(operator, ceilings)
        own = bounds.time_s / parts.speedup * operator.count
        floor = floor + own
        if operator.collective is not None:
            share_s["network"] = share_s["network"] + own
        elif not (isinstance(operator.flops, int) and operator.flops == 0):
            computes = where(bounds.compute_s > bounds.memory_s, 1, 0)
            share_s["compute"] = share_s["compute"] + own * computes
            share_s["memory"] = share_s["memory"] + own * (1 - computes)
        else:
            share_s["memory"] = share_s["memory"] + own
    sizes = step_sizes(operators, ceilings, efficiency.setting, work)
    expectation = efficiency.expectation(sizes, noise=efficiency.noise(sizes, parts))
    low, expected, high = step_range(expectation, floor, efficiency, work, parts)
    evidence = efficiency.evidence(kind_of(work))
    return StepTime((), Range(floor, low, expected, high, evidence), 0.0, share_s, dict(expectation.terms))
