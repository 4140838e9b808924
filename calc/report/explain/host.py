"""What the host adds to a step, where layers or weights are left to it."""

from __future__ import annotations

from calc.formula import formula_of
from calc.report.explain import places
from calc.report.explain.step import Step, Value
from calc.serving import offload
from calc.serving.deployment import Deployment
from calc.serving.phase import Phase


def host_steps(deployment: Deployment, phase: Phase) -> list[Step]:
    """The expected time that the host adds; nothing where nothing is left to it."""
    timed = phase.timed
    if timed is None or timed.time_s.expected is None or not timed.operators or timed.operators[-1].operator.op_class != "host":
        return []
    item = timed.operators[-1]
    operators = [o.operator for o in timed.operators[:-1]]
    part = offload.host_part(deployment, operators, phase.flow.rank)
    added = float(item.time_s.expected or 0.0)
    stretch = float(phase.flow.stretch)
    if part is None:
        return []
    where = "over the host link" if part.on_link else "in host memory"
    values = (
        Value("host_s", float(part.seconds["expected"]) * stretch, "s", where),
        Value("share", float(part.share), "", "of the step's weights"),
        Value("step_s", float(timed.time_s.expected) - added, "s", "with everything on the device"),
    )
    by, sure = places.name(offload.added_s), "copies reach 25/32 of a link's rate; host memory as given"
    return [Step(f"{part.name} add", formula_of(offload.added_s), values, added, "s", by, sure)]
