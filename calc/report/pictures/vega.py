"""A picture as a Vega-Lite specification (schema 5): plain data, drawn by vl-convert or by the reader's browser."""

from __future__ import annotations

import textwrap
from typing import Any

from calc.report.pictures.labels import placed
from calc.report.pictures.picture import DASHES, Axis, Band, Bars, Chart, Panel, Picture, Rule, Series, Stack
from calc.report.pictures.theme import WIDTH, Theme, config

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
Spec = dict[str, Any]
_CHART_HEIGHT, _BAR_HEIGHT, _STACK_HEIGHT = 430, 20, 64


def specification(picture: Picture, theme: Theme) -> Spec:
    """The whole picture."""
    return {
        "$schema": SCHEMA,
        "config": config(theme),
        "vconcat": [_panel(p, theme, number) for number, p in enumerate(picture.panels)],
        "resolve": {"scale": {"color": "independent", "shape": "independent", "strokeDash": "independent"}},
    }


def _panel(panel: Panel, theme: Theme, number: int) -> Spec:
    if isinstance(panel, Chart):
        return _chart(panel, theme, number)
    return _bars(panel, theme) if isinstance(panel, Bars) else _stack(panel, theme)


def _title(text: str, caption: str) -> Spec:
    return {"text": textwrap.wrap(text, 100) or [""], "subtitle": textwrap.wrap(caption, 130)}


def _scale(axis: Axis, extent: tuple[float, float]) -> Spec:
    low = axis.low if axis.low is not None else extent[0]
    high = axis.high if axis.high is not None else extent[1]
    return {
        "type": "log" if axis.log else "linear",
        "domain": [low, high],
        "nice": axis.low is None and not axis.log,
        "clamp": False,
    }


def _encoded(axis: Axis, field: str, extent: tuple[float, float]) -> Spec:
    shown: Spec = {"title": axis.title, "grid": True}
    if axis.log:
        # Powers of ten alone where there are many, so that labels never run into each other.
        decades = extent[1] / extent[0] if extent[0] > 0 else 1.0
        shown |= {"format": "~s", "labelOverlap": "parity"} | ({"tickCount": 8} if decades > 1e3 else {})
    return {"field": field, "type": "quantitative", "scale": _scale(axis, extent), "axis": shown}


def _extent(chart: Chart, which: str) -> tuple[float, float]:
    values = [getattr(m, which) for s in chart.series for m in s.marks] + [r.value for r in chart.rules if r.axis == which]
    values += [v for b in chart.bands for v in (b.x if which == "x" else (*b.low, *b.high))]
    axis = getattr(chart, which)
    low, high = min(values), max(values)
    if axis.log:
        return low / 1.25, high * 1.6
    return min(0.0, low), high * 1.06 or 1.0


def _chart(chart: Chart, theme: Theme, number: int) -> Spec:
    xs, ys = _extent(chart, "x"), _extent(chart, "y")
    shown = [s for s in chart.series if not s.ceiling]
    hues = {s.name: theme.hues[(i if s.tone is None else s.tone) % len(theme.hues)] for i, s in enumerate(shown)}
    x, y = _encoded(chart.x, "x", xs), _encoded(chart.y, "y", ys)
    layers: list[Spec] = [_band(band, x, y, theme) for band in chart.bands]
    for i, series in enumerate(s for s in chart.series if s.ceiling or s.line):
        layers.append(_line(series, x, y, theme.quiet if series.ceiling else hues[series.name], i))
    layers += [_points(series, x, y, hues, shown) for series in shown if series.points]
    layers += [layer for rule in chart.rules for layer in _rule(rule, x, y, theme, xs, log=chart.x.log)]
    layers += _labels(chart, x, y, xs, ys, theme)
    layers[0] = {"params": [{"name": f"zoom{number}", "select": "interval", "bind": "scales"}]} | layers[0]
    return {"title": _title(chart.title, chart.caption), "width": WIDTH - 120, "height": _CHART_HEIGHT, "layer": layers}


def _band(band: Band, x: Spec, y: Spec, theme: Theme) -> Spec:
    values = [{"x": a, "y": low, "end": high} for a, low, high in zip(band.x, band.low, band.high, strict=True)]
    mark = {"type": "area", "color": theme.hues[band.tone % len(theme.hues)], "opacity": 0.22, "clip": True}
    return {"data": {"values": values}, "mark": mark, "encoding": {"x": x, "y": y, "y2": {"field": "end"}}}


def _rows(series: Series) -> list[Spec]:
    return [{"x": m.x, "y": m.y, "series": series.name, "note": m.note or m.label or series.name} for m in series.marks]


def _line(series: Series, x: Spec, y: Spec, hue: str, number: int) -> Spec:
    dash = [5, 4] if series.ceiling else list(DASHES[number % len(DASHES)])
    mark = {"type": "line", "color": hue, "strokeDash": dash, "strokeWidth": 1.5 if series.ceiling else 2, "clip": True}
    return {"data": {"values": _rows(series)}, "mark": mark, "encoding": {"x": x, "y": y}}


def _points(series: Series, x: Spec, y: Spec, hues: dict[str, str], shown: list[Series]) -> Spec:
    names = list(hues)
    mark = {
        "type": "point", "filled": series.filled, "size": 190 if series.large else 62, "strokeWidth": 2 if series.large else 1.4,
        "clip": True, "opacity": 0.95,
    }  # fmt: skip
    legend = {"orient": "bottom", "title": None, "columns": 2 if max(map(len, names)) > 28 else 4, "symbolSize": 90}
    scale = {"domain": names, "range": [hues[n] for n in names]}
    shapes = {"domain": names, "range": [s.shape for s in shown]}
    encoding = {
        "x": x,
        "y": y,
        "color": {"field": "series", "type": "nominal", "scale": scale, "legend": legend},
        "shape": {"field": "series", "type": "nominal", "scale": shapes, "legend": legend},
        "tooltip": [{"field": "note", "title": series.name}, {"field": "x", "format": ".4s"}, {"field": "y", "format": ".4s"}],
    }
    return {"data": {"values": _rows(series)}, "mark": mark, "encoding": encoding}


def _rule(rule: Rule, x: Spec, y: Spec, theme: Theme, xs: tuple[float, float], *, log: bool) -> list[Spec]:
    encoded = {"x": x, "y": y}[rule.axis]
    data = {"values": [{rule.axis: rule.value, "label": rule.label}]}
    line = {"type": "rule", "color": theme.text, "strokeDash": [3, 3], "strokeWidth": 1.5}
    text: Spec = {"type": "text", "color": theme.text, "baseline": "middle"}
    if rule.axis == "x":
        right = rule.value > (xs[0] * xs[1] ** 3) ** 0.25 if log else rule.value > 0.25 * xs[0] + 0.75 * xs[1]
        text |= {"align": "right", "dx": -6} if right else {"align": "left", "dx": 6}
        place: Spec = {"y": {"value": _CHART_HEIGHT - 14}}
    else:
        text |= {"align": "left", "dx": 6, "dy": -8}
        place = {"x": {"value": 0}}
    return [
        {"data": data, "mark": line, "encoding": {rule.axis: encoded}},
        {"data": data, "mark": text, "encoding": {rule.axis: encoded, "text": {"field": "label"}, **place}},
    ]


def _labels(chart: Chart, x: Spec, y: Spec, xs: tuple[float, float], ys: tuple[float, float], theme: Theme) -> list[Spec]:
    """Text beside marks, moved apart where it would overlap."""
    layers = []
    size = (WIDTH - 120, _CHART_HEIGHT)
    for label in placed(chart, xs, ys, size):
        mark = {
            "type": "text", "align": label.align, "baseline": "middle", "dx": label.dx, "dy": label.dy, "fontSize": 12,
            "color": theme.quiet if label.quiet else theme.text,
        }  # fmt: skip
        data = {"values": [{"x": label.x, "y": label.y, "label": label.text}]}
        layers.append({"data": data, "mark": mark, "encoding": {"x": x, "y": y, "text": {"field": "label"}}})
    return layers


def _bars(bars: Bars, theme: Theme) -> Spec:
    values: list[Spec] = [
        {"label": b.label, "value": b.value, "text": b.text, "low": b.low, "high": b.high, "end": max(b.value, b.high or 0.0)}
        for b in bars.bars
    ]
    most = max((v["end"] for v in values), default=1.0) or 1.0
    y = {"field": "label", "type": "nominal", "sort": None, "axis": {"title": None}}
    axis = {"title": bars.axis.title, "tickCount": 8}
    x: Spec = {"field": "value", "type": "quantitative", "scale": {"domain": [0, most * 1.25]}, "axis": axis}
    hue = theme.hues[bars.tone % len(theme.hues)]
    tooltip = [{"field": "label"}, {"field": "text"}]
    layer: list[Spec] = [{"mark": {"type": "bar", "color": hue, "height": 13}, "encoding": {"x": x, "y": y, "tooltip": tooltip}}]
    if any(b.low is not None for b in bars.bars):
        ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y}
        layer.append({"mark": {"type": "rule", "color": theme.text, "strokeWidth": 1.2}, "encoding": ends})
    text = {"x": x | {"field": "end"}, "y": y, "text": {"field": "text"}}
    layer.append({"mark": {"type": "text", "align": "left", "dx": 6}, "encoding": text})
    title = _title(bars.title, bars.caption)
    return {"title": title, "width": WIDTH - 180, "height": {"step": _BAR_HEIGHT}, "data": {"values": values}, "layer": layer}


def _stack(stack: Stack, theme: Theme) -> Spec:
    values = _parts(stack)
    high = max([values[-1]["end"] if values else 1.0, *(r.value for r in stack.limits)])
    axis = {"title": stack.axis.title, "format": "~s"}
    x: Spec = {"field": "start", "type": "quantitative", "scale": {"domain": [0, high]}, "axis": axis}
    hues = [theme.grid if s.name == "free" else theme.hues[i % len(theme.hues)] for i, s in enumerate(stack.shares)]
    legend = {"title": None, "orient": "bottom", "columns": 3, "symbolType": "square"}
    scale = {"domain": [v["key"] for v in values], "range": hues}
    color = {"field": "key", "type": "nominal", "scale": scale, "legend": legend}
    bar = {"type": "bar", "stroke": theme.ground, "strokeWidth": 2, "height": 46}
    tooltip = [{"field": "name"}, {"field": "text"}]
    layer: list[Spec] = [{"mark": bar, "encoding": {"x": x, "x2": {"field": "end"}, "color": color, "tooltip": tooltip}}]
    ink = {"condition": {"test": "datum.name == 'free'", "value": theme.text}, "value": theme.ground}
    for shown, mark in (("inside", {"dy": -8, "fontWeight": 600}), ("figure", {"dy": 9})):
        encoding = {"x": x | {"field": "middle"}, "text": {"field": shown}, "color": ink}
        layer.append({"mark": {"type": "text", **mark}, "encoding": encoding})
    for rule in stack.limits:
        data = {"values": [{"start": rule.value, "label": rule.label}]}
        line = {"type": "rule", "color": theme.text, "strokeDash": [3, 3], "strokeWidth": 1.8}
        side = {"align": "left", "dx": 4} if rule.value < 0.3 * high else {"align": "right", "dx": -4}
        text = {"type": "text", "baseline": "top"} | side
        layer.append({"data": data, "mark": line, "encoding": {"x": x}})
        layer.append({"data": data, "mark": text, "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "label"}}})
    title = _title(stack.title, stack.caption)
    return {"title": title, "width": WIDTH - 120, "height": _STACK_HEIGHT + 16, "data": {"values": values}, "layer": layer}


def _parts(stack: Stack) -> list[Spec]:
    """Rows of the shares with their ends; names and figures stand inside where there is room, in the legend always."""
    total = sum(s.value for s in stack.shares) or 1.0
    rows, start = [], 0.0
    for share in stack.shares:
        end = start + share.value
        wide = share.value / total * (WIDTH - 120) > 6.6 * max(len(share.name), len(share.text))
        rows.append(
            {
                "name": share.name, "text": share.text, "key": f"{share.name} {share.text}", "start": start, "end": end,
                "middle": (start + end) / 2, "inside": share.name if wide else "", "figure": share.text if wide else "",
            }
        )  # fmt: skip
        start = end
    return rows
