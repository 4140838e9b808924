"""Cost or throughput against latency: the best of every device, the objectives, and the answers of a plan."""

from __future__ import annotations

from dataclasses import replace

from calc.report.pictures.picture import Axis, Chart, Mark, Picture, Rule, Series, Shape
from calc.report.plan.page import asked, label, verdict
from calc.serving.plan.front import Point, front
from calc.serving.plan.search import Plan
from calc.units import format_number, format_seconds

_SHAPES: tuple[Shape, ...] = ("circle", "square", "diamond", "triangle-up", "cross")
_POINTS = 40
#: More lines than these end too close together to be named there: the legend names them all.
_MOST_LABELS = 8


def picture(found: Plan) -> Picture | None:
    """Output tokens per second and GPU over TPOT, a line per device; None where nothing fits."""
    series: list[Series] = []
    for hardware in dict.fromkeys(o.deployment.hardware.name for o in found.options):
        own = replace(found, options=tuple(o for o in found.options if o.deployment.hardware.name == hardware))
        points = front(own, _POINTS)
        if points:
            marks = [Mark(p.tpot_s * 1e3, p.output_tokens_per_s_per_gpu, "", _note(p)) for p in points]
            marks[-1] = replace(marks[-1], label=hardware)
            series.append(Series(hardware, tuple(marks), line=True, shape=_SHAPES[len(series) % len(_SHAPES)], filled=True))
    if not series:
        return None
    if len(series) > _MOST_LABELS:
        series = [replace(s, marks=(*s.marks[:-1], replace(s.marks[-1], label=""))) for s in series]
    answers = tuple(
        Mark(
            float(a.tpot_s.expected or 0.0) * 1e3,
            a.output_tokens_per_s / a.gpus,
            str(i),
            f"{i}. {label(a.option, a.replicas)}: TPOT {format_seconds(a.tpot_s.expected)}, TTFT {format_seconds(a.ttft_s.expected)}",
        )
        for i, a in enumerate(found.answers, 1)
    )
    if answers:
        series.append(Series("answers, under the load asked for", answers, shape="diamond", large=True))
    limit = found.question.objectives.tpot_s
    rules = (Rule("x", limit * 1e3, f"TPOT at most {format_seconds(limit)}"),) if limit else ()
    ttft = found.question.objectives.ttft_s
    within = f" within TTFT {format_seconds(ttft)}" if ttft else ""
    listed = "; ".join(f"{i}: {label(a.option, a.replicas)}" for i, a in enumerate(found.answers, 1))
    slowest = max(m.x for s in series for m in s.marks)
    chart = Chart(
        verdict(found),
        f"{asked(found.question)}. Lines: the best of each device at full load{within}; towards the upper left is better."
        + (f" Answers {listed}." if listed else ""),
        Axis("time per output token, TPOT (ms)", log=True, high=2.2 * slowest),  # room for the names of the lines
        Axis("output tokens per second and GPU", log=True),
        tuple(series),
        rules,
    )
    return Picture((chart,))


def _note(point: Point) -> str:
    return (
        f"{label(point.option)}: {format_number(point.in_flight, 4)} in flight, TPOT {format_seconds(point.tpot_s)}, "
        f"TTFT {format_seconds(point.ttft_s)}"
    )
