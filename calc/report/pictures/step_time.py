"""Which operators a step's time goes to, phase by phase."""

from __future__ import annotations

from calc.report.estimate import title
from calc.report.pictures.picture import Axis, Bar, Bars, time_unit
from calc.serving.deployment import Deployment
from calc.serving.phase import Phase
from calc.units import format_percent, format_seconds

#: Bars of a phase; smaller operators are summed.
_MOST = 9


def step_bars(deployment: Deployment, phases: dict[str, Phase | None]) -> list[Bars]:
    """A panel a phase: seconds of all calls of each operator. Phases without times have none."""
    caption = f"{title(deployment)}. Expected time of all calls of an operator in a step and its share; the line spans low to high."
    return [
        _phase(name, phase, caption, tone)
        for tone, (name, phase) in enumerate(phases.items())
        if phase is not None and phase.timed is not None
    ]


def _phase(name: str, phase: Phase, caption: str, tone: int) -> Bars:
    assert phase.timed is not None
    sums: dict[str, list[float]] = {}
    for item in phase.timed.operators:
        values = sums.setdefault(item.operator.name.replace("_", " "), [0.0, 0.0, 0.0])
        for i, part in enumerate(("low", "expected", "high")):
            values[i] += float(getattr(item.time_s, part) or 0.0) * item.operator.count
    ordered = sorted(sums.items(), key=lambda s: -s[1][1])
    rest = [sum(v[i] for _, v in ordered[_MOST:]) for i in range(3)]
    shown = ordered[:_MOST] + ([(f"{len(ordered) - _MOST} others", rest)] if len(ordered) > _MOST else [])
    whole = float(phase.time_s.expected or 0.0)
    unit, scale = time_unit(whole)
    bars = tuple(
        Bar(
            label,
            v[1] * scale,
            f"{format_seconds(v[1])}, {format_percent(v[1] / whole if whole else 0.0, 2)}",
            v[0] * scale,
            v[2] * scale,
        )
        for label, v in shown
    )
    return Bars(f"Time of a {name} step: {format_seconds(whole)}, {phase.bound}-bound", caption, Axis(f"time ({unit})"), bars, tone)
