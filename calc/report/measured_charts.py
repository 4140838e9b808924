"""Pictures of measured against predicted. Measured is filled, predicted hollow; prefill and decode differ in shape and colour."""

from __future__ import annotations

from html import escape
from typing import Any

from calc.report import measured, svg
from calc.report.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Chart
from calc.units import format_seconds

SHAPES = {"prefill": "circle", "decode": "diamond"}
_LINES = ("circle", "diamond", "square", "triangle", "down")
_ROW, _BAR = 34, 24
_SMALL_SHARE = 0.015


def everything(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of both kinds that have a measured and a predicted time, one per case."""
    found = {r["case_id"]: r for r in (*record["further"], *record["rows"]) if r["measured_s"] and r["predicted_s"]}
    return list(found.values())


def tip(row: dict[str, Any]) -> str:
    """What a marker tells when the pointer rests on it."""
    times = (
        f"measured {format_seconds(row['measured_s'])} {measured.uncertainty(row)}\npredicted {format_seconds(row['predicted_s'])}"
    )
    return f"{row['operation']} ({row['phase']}) {measured.shape(row)}\n{times}, error {measured.signed(row['error'])}, {row['verdict']}"


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
        reached, promised = (row["flops"] / row[k] for k in ("measured_s", "predicted_s"))
        chart.line([(intensity, reached), (intensity, promised)], "joint")
        if row["interval_s"]:
            chart.bar(intensity, row["flops"] / row["interval_s"][1], row["flops"] / row["interval_s"][0], _css(row, "error"))
        chart.marker(intensity, promised, SHAPES[row["phase"]], _css(row, "hollow"), tip(row))
        chart.marker(intensity, reached, SHAPES[row["phase"]], _css(row, "filled"), tip(row), 4)
    return chart.svg()


def scatter(record: dict[str, Any]) -> str | None:
    """Predicted over measured time with the 1:1 line and bands of 10 % and 25 %."""
    rows = everything(record)
    if not rows:
        return None
    ends = svg.span([t for r in rows for t in (r["measured_s"], r["predicted_s"])], 2)
    x, y = svg.axes(ends, ends, ("measured time of one call, s", "predicted, s"))
    chart = Chart("predicted over measured", x, y)
    for width, css in ((0.25, "band25"), (0.10, "band10")):
        chart.band([(e, e * (1 + width)) for e in ends], [(e, e / (1 + width)) for e in ends], css)
    chart.line([(e, e) for e in ends], "solid")
    chart.text(x.at(ends[1]) - 96, y.at(ends[1]) + 12, "10 %, 25 %", "label", "end")
    for row in rows:
        if row["interval_s"]:
            low, high, at = x.at(row["interval_s"][0]), x.at(row["interval_s"][1]), y.at(row["predicted_s"])
            chart.parts.append(f'<path class="{_css(row, "error")}" d="M{low:.1f} {at:.1f}H{high:.1f}"/>')
        chart.marker(row["measured_s"], row["predicted_s"], SHAPES[row["phase"]], _css(row, "dot"), tip(row))
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


def composition(record: dict[str, Any]) -> str | None:
    """Each step as two bars, measured and predicted, by operation."""
    steps = [s for s in record["steps"] if s["measured_s"]]
    if not steps:
        return None
    parts: list[str] = []
    y = 8.0
    for step in steps:
        longest = max(step["measured_s"], sum(p["predicted_s"] for p in step["parts"]))
        order = sorted(step["parts"], key=lambda p: -p["measured_s"])
        parts.append(f'<text x="{LEFT + 20}" y="{y + 10}" class="label">{step["phase"]}, one step of all layers</text>')
        y += 18
        for key, name in (("measured_s", "measured"), ("predicted_s", "predicted")):
            total = sum(p[key] for p in order)
            parts.append(f'<text x="{LEFT + 14}" y="{y + 16}" text-anchor="end">{name}</text>')
            parts += _segments(order, key, total, longest, y)
            y += _ROW
        y += 10
    return svg.wrap("step composition", int(y), parts)


def _segments(order: list[dict[str, Any]], key: str, total: float, longest: float, y: float) -> list[str]:
    """One bar; operations too small to see are drawn together as the last piece."""
    found, at, room = [], float(LEFT + 20), WIDTH - LEFT - 20 - 90
    big = [p for p in order if max(p["measured_s"], p["predicted_s"]) > _SMALL_SHARE * longest]
    rest = sum(p[key] for p in order if p not in big)
    pieces = [(p["operation"], p[key]) for p in big] + ([("others", rest)] if rest else [])
    for index, (name, seconds) in enumerate(pieces):
        width = room * seconds / longest
        share = f"{100 * seconds / total:.1f} %" if total else ""
        found.append(
            f'<rect class="piece p{index % 6}" x="{at:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{_BAR}">'
            f"<title>{escape(name)}: {format_seconds(seconds)}, {share}</title></rect>"
        )
        text = name if width > 7.5 * len(name) else ""
        if text:
            found.append(
                f'<text x="{at + width / 2:.1f}" y="{y + 16:.1f}" text-anchor="middle" class="inside">{escape(text)}</text>'
            )
        at += width
    found.append(f'<text x="{at + 6:.1f}" y="{y + 16:.1f}">{format_seconds(total)}</text>')
    return found


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
