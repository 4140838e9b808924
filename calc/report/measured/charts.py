"""Pictures of measured against predicted. Measured is filled, predicted hollow; prefill and decode differ in shape and colour."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calc.report import svg
from calc.report.measured import summary
from calc.report.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Chart
from calc.units import format_seconds

SHAPES = {"prefill": "circle", "decode": "diamond"}
_LINES = ("circle", "diamond", "square", "triangle", "down")
_NAMED, _NAME_GAP, _LETTER = 3, 14, 6.6
#: How the charts are read.
ROOFLINE = (
    "Filled: measured, with error bars. Hollow: predicted, joined to it by a dotted line. Circle: prefill; diamond: decode. Dashed: "
    "the datasheet's ceilings; solid: those measured here; dotted verticals: the ridges. Named: what takes most of each step."
)
AGREEMENT = (
    "One mark per case. On the line they agree; the bands are 10 % and 25 %. Circle: prefill; diamond: decode; colour: class. "
    "Faint: not judged."
)


def everything(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of both kinds that have a measured and a predicted time, one per case."""
    found = {r["case_id"]: r for r in (*record["further"], *record["rows"]) if r["measured_s"] and r["predicted_s"]}
    return list(found.values())


def tip(row: dict[str, Any]) -> str:
    """What a marker tells when the pointer rests on it."""
    times = (
        f"measured {format_seconds(row['measured_s'])} {summary.uncertainty(row)}\npredicted {format_seconds(row['predicted_s'])}"
    )
    return (
        f"{row['operation']} ({row['phase']}) {summary.shape(row)}\n{times}, error {summary.signed(row['error'])}, {row['verdict']}"
    )


def _css(row: dict[str, Any], kind: str) -> str:
    trusted = "" if row["counts"] else " weak"
    return f"{kind} {row['phase']} c-{row['class']}{trusted}"


def roofline(record: dict[str, Any]) -> str | None:
    """FLOP/s over arithmetic intensity, with the datasheet's ceiling dashed and the measured one solid."""
    rows = [r for r in everything(record) if r["flops"] > 0 and r["bytes"] > 0]
    here = {c["name"]: c["value"] for c in record["ceilings"]}
    if not rows or "matmul" not in here or "read" not in here:
        return None
    dtype = next(c["dtype"] for c in record["ceilings"] if c["name"] == "matmul")
    sheet = record["datasheet"] or {}
    peak, bandwidth = sheet.get("peak_flops_per_s", {}).get(dtype), sheet.get("bandwidth_bytes_per_s")
    low, high = svg.span([r["flops"] / r["bytes"] for r in rows], 2)
    high = max(high, 4 * here["matmul"] / here["read"])
    rates = [r["flops"] / t for r in rows for t in (r["measured_s"], r["predicted_s"])]
    x, y = svg.axes((low, high), svg.span([*rates, here["matmul"], peak or 0], 1.6), ("arithmetic intensity, FLOP/byte", "FLOP/s"))
    chart = Chart("roofline", x, y)
    key = TOP + 16
    for name, top, slope, css in (("datasheet", peak, bandwidth, "dashed"), ("measured", here["matmul"], here["read"], "solid")):
        if top and slope:
            ridge = top / slope
            start = max(low, y.low / slope)
            chart.line([(start, start * slope), *([(ridge, top)] if ridge > start else []), (high, top)], css)
            chart.line([(ridge, top), (ridge, y.low)], "ridge")
            chart.parts.append(f'<path class="{css}" d="M{LEFT + 12} {key - 4}h30"/>')
            chart.text(LEFT + 50, key, f"{name}: {svg.si(top)}FLOP/s, {svg.si(slope)}B/s, ridge {ridge:.3g} FLOP/B", "label")
            key += 18
    for phase, shape in SHAPES.items():  # the corner above the slope is empty in every roofline
        chart.parts.append(svg.glyph(LEFT + 18, key - 4, shape, f"filled {phase}", size=4))
        chart.parts.append(svg.glyph(LEFT + 34, key - 4, shape, f"hollow {phase}"))
        chart.text(LEFT + 50, key, f"{phase}: measured, predicted", "label")
        key += 18
    for row in rows:
        intensity = row["flops"] / row["bytes"]
        reached, predicted = (row["flops"] / row[k] for k in ("measured_s", "predicted_s"))
        chart.line([(intensity, reached), (intensity, predicted)], "joint")
        if row["interval_s"]:
            chart.bar(intensity, row["flops"] / row["interval_s"][1], row["flops"] / row["interval_s"][0], _css(row, "error"))
        chart.marker(intensity, predicted, SHAPES[row["phase"]], _css(row, "hollow"), tip(row))
        chart.marker(intensity, reached, SHAPES[row["phase"]], _css(row, "filled"), tip(row), 4)
    _name(chart, [(r["flops"] / r["bytes"], r["flops"] / r["measured_s"], r["operation"]) for r in _heaviest(record, rows)])
    return chart.svg()


def _heaviest(record: dict[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operations that take most of each step."""
    own = sorted((r for r in rows if r["count"]), key=lambda r: -r["count"] * r["measured_s"])
    return [r for s in record["steps"] for r in [o for o in own if o["phase"] == s["phase"]][:_NAMED]]


def _name(chart: Chart, points: list[tuple[float, float, str]]) -> None:
    """Words beside markers, moved down (up, at the lower axis) until none overlaps, each with a line to its marker."""
    taken: list[tuple[float, float]] = []
    for value, rate, words in sorted(points, key=lambda p: -p[1]):
        x, y = chart.x.at(value), chart.y.at(rate)
        left = x + 14 + _LETTER * len(words) > chart.x.end
        near = [b for a, b in taken if abs(x - a) < _LETTER * len(words) + 40]
        steps = [y + _NAME_GAP * i for i in (*range(1, 12), *range(-1, -12, -1)) if y + _NAME_GAP * i < chart.y.start - 3]
        at = next((s for s in steps if all(abs(s - b) >= _NAME_GAP - 1 for b in near)), y)
        taken.append((x, at))
        edge = x - 12 if left else x + 12
        chart.parts.append(f'<path class="leader" d="M{x:.1f} {y:.1f}L{edge:.1f} {at - 4:.1f}"/>')
        chart.text(edge + (-2 if left else 2), at, words, "label", "end" if left else "start")


def agreement(record: dict[str, Any], *, legend: bool = False) -> str | None:
    """Predicted time / measured time over the measured one, with the line of agreement and bands of 10 % and 25 %. ``legend`` names
    the colours within the picture."""
    rows = everything(record)
    if not rows:
        return None
    ratios = [r["predicted_s"] / r["measured_s"] for r in rows]
    far = min(32.0, max(1.6, 1.15 * max(ratios), 1.15 / min(ratios)))
    across = svg.span([r["measured_s"] for r in rows], 2)
    x, y = svg.axes(across, (1 / far, far), ("measured time of one call, s", "predicted / measured"))
    chart = Chart("predicted over measured", x, replace(y, base=2))
    for width, css in ((0.25, "band25"), (0.10, "band10")):
        chart.band([(e, 1 + width) for e in across], [(e, 1 / (1 + width)) for e in across], css)
    chart.line([(e, 1.0) for e in across], "solid")
    chart.text(x.end - 4, y.at(1 / 1.25) + 14, "10 %, 25 %", "", "end")  # a legend stands above
    chart.text(x.start + 6, TOP + 14, "above 1: predicted slower than measured", "label")
    chart.text(x.start + 6, y.start - 8, "below 1: predicted faster than measured", "label")
    for row, ratio in zip(rows, ratios, strict=True):
        if row["interval_s"]:
            slow, fast = row["interval_s"][1], row["interval_s"][0]
            chart.bar(row["measured_s"], row["predicted_s"] / slow, row["predicted_s"] / fast, _css(row, "error"))
        chart.marker(row["measured_s"], ratio, SHAPES[row["phase"]], _css(row, "dot"), tip(row))
    for i, name in enumerate(sorted({r["class"] for r in rows}) if legend else ()):
        chart.parts.append(svg.glyph(x.end - 110, TOP + 12 + 17 * i, "square", f"dot c-{name}", size=4))
        chart.text(x.end - 98, TOP + 16 + 17 * i, name, "label")
    return chart.svg()


def over_rows(record: dict[str, Any]) -> str | None:
    """Signed error over the rows of each projection."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in everything(record):
        if row["class"] == "gemm" and row["shape"].get("m"):
            lines.setdefault(row["operation"], []).append(row)
    if max((len({r["shape"]["m"] for r in part}) for part in lines.values()), default=0) < 3:
        return None
    limit = min(100.0, max(20.0, *(abs(100 * r["error"]) for part in lines.values() for r in part)))
    counts = [r["shape"]["m"] for part in lines.values() for r in part]
    x = Axis(min(counts) / 1.2, max(counts) * 2.6, LEFT, WIDTH - RIGHT, "rows M (tokens in the step)", base=2)
    y = Axis(-limit, limit, HEIGHT - BOTTOM, TOP, "error = predicted / measured - 1", log=False, unit=" %")
    chart = Chart("error over rows", x, y)
    chart.line([(x.low, 0), (x.high, 0)], "solid")
    labels = []
    for index, (name, part) in enumerate(sorted(lines.items())):
        part.sort(key=lambda r: r["shape"]["m"])
        chart.line([(r["shape"]["m"], 100 * r["error"]) for r in part], f"trend s{index % 6}")
        for row in part:
            chart.marker(row["shape"]["m"], 100 * row["error"], _LINES[index % 5], f"dot s{index % 6}", tip(row), 4)
        labels.append((y.at(100 * part[-1]["error"]) + 4, name))
    chart.labels(labels, WIDTH - RIGHT - 4)
    return chart.svg()


def bandwidth(record: dict[str, Any]) -> str | None:
    """Bytes per second over working set, where the run measured it."""
    curve = record["bandwidth_curve"]
    if len(curve) < 3:
        return None
    x, y = svg.axes(
        svg.span([c["bytes"] for c in curve]), svg.span([c["bytes_per_s"] for c in curve]), ("working set, byte", "byte/s read")
    )
    chart = Chart("bandwidth over working set", x, y)
    points = sorted((c["bytes"], c["bytes_per_s"]) for c in curve)
    chart.line(points, "trend s0")
    for c in curve:
        if c["interval"]:
            chart.bar(c["bytes"], c["interval"][0], c["interval"][1], "error")
        chart.marker(c["bytes"], c["bytes_per_s"], "circle", "dot s0", f"{svg.si(c['bytes'])}B: {svg.si(c['bytes_per_s'])}B/s")
    sheet = record["datasheet"]
    if sheet:
        chart.line([(x.low, sheet["bandwidth_bytes_per_s"]), (x.high, sheet["bandwidth_bytes_per_s"])], "dashed")
    return chart.svg()


def samples(case: dict[str, Any]) -> str | None:
    """Samples of a case in the order they came, round by round, with clock and power beneath where somebody watched."""
    rounds = [r for r in case["rounds"] if r["samples_s"]]
    times = [t for r in rounds for t in r["samples_s"]]
    if not times:
        return None
    low, high = min(times), max(times)
    margin = 0.1 * (high - low) or 0.1 * high
    scale = next((p for p in ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")) if high < 1e3 * p[0]), (1.0, "s"))
    x = Axis(0, len(times) + len(rounds), LEFT, WIDTH - RIGHT, "samples in the order they came; gaps part the rounds", log=False)
    y = Axis((low - margin) / scale[0], (high + margin) / scale[0], 240 - BOTTOM, TOP, f"time of one call, {scale[1]}", log=False)
    chart = Chart(f"samples of {case['case_id']}", x, y, height=240)
    at = 0
    for taken in rounds:
        seen = [
            f"{taken[key] / unit:.0f} {name}"
            for key, unit, name in (("sm_clock_hz", 1e6, "MHz"), ("power_w", 1, "W"))
            if taken[key]
        ]
        seen += [f"{taken['set_aside']} set aside"] if taken["set_aside"] else []
        chart.text(x.at(at), TOP - 6, ", ".join(seen))
        for value in taken["samples_s"]:
            chart.marker(at, value / scale[0], "circle", "dot s0", size=2)
            at += 1
        at += 1
    return chart.svg()
