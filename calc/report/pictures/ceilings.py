"""The roofline: what each operator reaches, under what the device allows. Williams, Waterman and Patterson 2009."""

from __future__ import annotations

from calc.report.estimate import title
from calc.report.pictures.picture import Axis, Chart, Mark, Picture, Series, Shape
from calc.serving.deployment import Deployment
from calc.serving.estimate import Roofline
from calc.serving.phase import Phase
from calc.units import GIGA, TERA, format_number, format_percent, format_seconds

#: Operators that carry a label in each phase.
_NAMED = 3
_SHAPES: dict[str, Shape] = {"prefill": "square", "decode": "circle"}


def picture(deployment: Deployment, result: Roofline) -> Picture | None:
    """Operators of the phases that were asked for; None where no time is answered."""
    phases = {
        name: p for name, p in (("prefill", result.prefill), ("decode", result.decode)) if p is not None and p.timed is not None
    }
    if not phases:
        return None
    series = [s for name, phase in phases.items() for s in _phase(name, phase)]
    marks = [m for s in series for m in s.marks]
    span = (min(m.x for m in marks) / 2, max(m.x for m in marks) * 2)
    dtypes = {deployment.ceilings.dtype_for(o) for p in phases.values() for o in p.operators if o.flops}
    ceilings = [c for i, dtype in enumerate(sorted(dtypes)) for c in _ceiling(deployment, dtype, span, bare=i > 0)]
    caption = (
        f"{title(deployment)}. One rank. Hollow: expected time of each operator with its bytes under the fusion policy "
        f"({deployment.fusion.name}); large: the step. Dashed: datasheet, dense. Operators without products are left out."
    )
    chart = Chart(
        "Roofline: " + " and ".join(f"{n} {format_seconds(p.time_s.expected)}, {p.bound}-bound" for n, p in phases.items()),
        caption,
        Axis("arithmetic intensity (FLOP per byte of device memory)", log=True),
        Axis("performance (TFLOP/s)", log=True),
        (*ceilings, *series),
    )
    return Picture((chart,))


def _phase(name: str, phase: Phase) -> list[Series]:
    assert phase.timed is not None
    marks: list[tuple[float, Mark]] = []
    for item in phase.timed.operators:
        operator, seconds = item.operator, item.time_s.expected
        if not operator.flops or not operator.bytes or not seconds:
            continue
        share = float(phase.share(item))
        note = f"{operator.name} ({operator.layers}): {format_percent(share)} of the step, {item.bound}-bound, {format_seconds(seconds)}"
        marks.append((share, Mark(float(operator.flops / operator.bytes), float(operator.flops / seconds) / TERA, "", note)))
    named = {id(mark) for _, mark in sorted(marks, key=lambda m: -m[0])[:_NAMED]}
    labelled = tuple(Mark(m.x, m.y, m.note.split(" (")[0] if id(m) in named else "", m.note) for _, m in marks)
    seconds = phase.time_s.expected
    ranks = phase.ranks
    whole = Mark(
        float(phase.arithmetic_intensity),
        float(phase.totals.flops / seconds) / ranks / TERA if seconds else 0.0,
        f"{name} step",
        f"the whole step: {format_seconds(seconds)}, intensity {format_number(float(phase.arithmetic_intensity))} FLOP/B",
    )
    shape, tone = _SHAPES[name], list(_SHAPES).index(name)
    return [
        Series(f"{name}, operator by operator", labelled, shape=shape, tone=tone),
        Series(f"{name}, whole step", (whole,), shape=shape, large=True, filled=True, tone=tone),
    ]


def _ceiling(deployment: Deployment, dtype: str, span: tuple[float, float], *, bare: bool) -> list[Series]:
    """Bandwidth up to the ridge, the peak beyond; ``bare``: the bandwidth is named already."""
    ceilings = deployment.ceilings
    peak, bandwidth = ceilings.peak(dtype), ceilings.bandwidth
    ridge = ceilings.ridge_point(dtype)
    if peak is None or bandwidth is None or ridge is None:
        return []
    low, high = min(span[0], ridge / 4), max(span[1], ridge * 4)
    text, slope = f"{format_number(peak / TERA)} TFLOP/s {dtype}", f"{format_number(bandwidth / GIGA)} GB/s"
    halfway = (low * ridge) ** 0.5
    marks = (
        Mark(low, low * bandwidth / TERA),
        Mark(halfway, halfway * bandwidth / TERA, "" if bare else slope, left=True),
        Mark(ridge, peak / TERA, f"ridge {format_number(ridge)}", left=True),
        Mark(high, peak / TERA, text),
    )
    return [Series(f"ceiling {dtype}: {slope}, {text}", marks, line=True, points=False, ceiling=True)]
