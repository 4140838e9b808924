"""Measured against predicted as one page that needs no network: inline SVG, one style sheet for light and dark, a few lines of script."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from calc.report import svg
from calc.report.measured import bars, charts, scope, summary
from calc.report.measured.style import SCRIPT, STYLE
from calc.units import format_percent, format_seconds

_HEADERS = (
    "operation", "phase", "class", "shape", "bound", "status", "calls", "measured", "95 % between rounds", "predicted", "error", "verdict",
    "step share", "base", "bandwidth", "compute", "tiles", "waves", "launch", "unexplained",
)  # fmt: skip
_INTRODUCTION = (
    "Every operator of the model was timed alone on this device and held against roofcast's prediction: its products at the device's "
    "compute rate or its bytes at the memory bandwidth, whichever takes longer (the roofline). A step is the sum over its operators."
)
_GAPS = (
    "From the time at datasheet rates to the measured one, each cause charged once: what this device's bandwidth and compute rates lack "
    "to the datasheet's, output tiles and last turns of the units that are not full (128 x 128 tiles assumed; GPUs only), launches. "
    "Green: less time than assumed."
)
_OUTSIDE = "scheduler, sampling, network front end: no kernel of the model; a server's TTFT and TPOT are longer"
_LONG = 28  # characters; beyond them a cell is cut and tells the rest to the pointer


def html(record: dict[str, Any]) -> str:
    """The page as text."""
    title = summary.title(record)
    sections = [
        _headline(record),
        _worst(record),
        _figure(charts.roofline(record), "Roofline", charts.ROOFLINE, record),
        _figure(
            bars.composition(record),
            "Where the time of a step goes",
            "Same scale within a phase; sums of kernels. The pointer tells figures.",
            record,
        ),
        _figure(bars.gaps(record), "Why a step takes what it takes", _GAPS, record),
        _figure(
            charts.agreement(record),
            "Predicted over measured",
            f"{charts.AGREEMENT} A click on a class hides it; the pointer tells figures.",
            record,
            _legend(record),
        ),
        _figure(
            charts.over_rows(record),
            "Error over the rows of each projection",
            "Steps show tiles that do not fill.",
            record,
        ),
        _figure(charts.bandwidth(record), "Bandwidth over working set", "The plateau on the right is memory.", record),
        _scope(record),
        _classes(record),
        _operators(record),
        _links(record),
        _samples(record),
        _notes(record),
    ]
    body = "\n".join(s for s in sections if s)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}: measured against predicted</title><style>{STYLE}</style></head>\n<body><main>"
        f"<h1>{escape(title)}</h1>\n{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _headline(record: dict[str, Any]) -> str:
    """The sums of both steps in words and as cards, and what kind of comparison it is."""
    cards, said = [], []
    for step in record["steps"]:
        if not step["measured_s"]:
            continue
        said.append(summary.in_words(step))
        missing = f"<p>without {escape(', '.join(step['missing']))}</p>" if step["missing"] else ""
        cards.append(
            f'<div class="card"><h3>{step["phase"]} step</h3><p class="big">{summary.signed(step["error"])}</p>'
            f"<p>measured {format_seconds(step['measured_s'])}<br>predicted {format_seconds(step['predicted_s'])}</p>{missing}</div>"
        )
    counts, basis = record["counts"], record["basis"]
    judged = f"{counts['judged']} of {counts['cases']}"
    cards.append(
        f'<div class="card"><h3>cases judged</h3><p class="big">{judged}</p><p>{counts["agrees"]} agree<br>'
        f"{counts['unreliable']} unreliable</p></div>"
    )
    kind = f'<p class="kind"><strong>{escape(basis["kind"])}</strong>: {escape(basis["words"])}. '
    kind += "error = predicted / measured - 1; positive: predicted slower than it is.</p>"
    alarm = "".join(f'<p class="alarm">Noisy as a whole: {escape(why)}</p>' for why in record["noisy"])
    if counts["cases"] and counts["judged"] < 0.8 * counts["cases"]:
        alarm += '<p class="alarm">Fewer than 80 % of the cases can be judged: take nothing from this run but its shape.</p>'
    return (
        f'<p>{_INTRODUCTION}</p><p class="said">{escape(" ".join(said))}</p>{alarm}<div class="cards">{"".join(cards)}</div>{kind}'
    )


def _worst(record: dict[str, Any]) -> str:
    """The case that is furthest from its prediction, with the likely reason."""
    worst = record["worst"]
    if not worst:
        return ""
    return (
        f'<p class="alarm"><strong>Worst case</strong>: {escape(worst["case_id"])}, error {summary.signed(worst["error"])}. '
        f"Likely reason: {escape(worst['reason'])}.</p>"
    )


def _figure(picture: str | None, title: str, caption: str, record: dict[str, Any], legend: str = "") -> str:
    if picture is None:
        return ""
    scope = f"{summary.title(record)}. Error bars: {summary.rounds_text(record)}."
    return f"<figure><h2>{escape(title)}</h2>{legend}{picture}<figcaption>{escape(caption)} {escape(scope)}</figcaption></figure>"


def _samples(record: dict[str, Any]) -> str:
    """The worst case and the heaviest ones, sample by sample."""
    parts = [(case["case_id"], picture) for case in record["samples"] if (picture := charts.samples(case))]
    shown = "".join(f"<figure><h3>{escape(i)}</h3>{picture}</figure>" for i, picture in parts)
    note = "The worst case and those that take most of a step. Above: clock and power where they were watched, samples set aside."
    return f"<details><summary>Samples, round by round</summary><p>{note}</p>{shown}</details>" if shown else ""


def _links(record: dict[str, Any]) -> str:
    links = record["links"]
    if not links:
        return ""
    return f"<h2>Collectives over {links['ranks']} ranks, {escape(links['backend'])}</h2>" + table(
        summary.LINKS, summary.links(record)
    )


def _legend(record: dict[str, Any]) -> str:
    """One button per class."""
    classes = sorted({r["class"] for r in charts.everything(record)})
    marks = "".join(
        f'<button type="button" class="pick" data-class="c-{escape(c)}" aria-pressed="true">'
        f'<svg viewBox="0 0 14 14" width="14" height="14">{svg.glyph(7, 7, "circle", f"dot c-{escape(c)}")}</svg>{escape(c)}</button>'
        for c in classes
    )
    return f'<div class="legend">{marks}</div>'


def _classes(record: dict[str, Any]) -> str:
    rows = [
        [g["class"], g["phase"], g["bound"] or "all", str(g["n"]), f"{g['bias']:.3f}"]
        + [format_percent(g[k]) for k in ("median", "p90", "worst")]
        + [str(g["worst_case_id"])]
        for g in record["groups"]
    ]
    if not rows:
        return ""
    headers = ("class", "phase", "bound", "n", "bias", "median error", "90 %", "worst", "worst case")
    return "<h2>By class</h2><p>|log(predicted / measured)|; bias is the geometric mean of predicted / measured.</p>" + table(
        headers, rows
    )


def _operators(record: dict[str, Any]) -> str:
    totals = {s["phase"]: s["measured_s"] for s in record["steps"]}
    cells = []
    for row in (*record["rows"], *record["further"]):
        share = row["count"] * row["measured_s"] / totals[row["phase"]] if row["count"] and row["measured_s"] else None
        gap = row["gap"] or {}
        times = [(row["measured_s"], format_seconds(row["measured_s"])), (None, summary.uncertainty(row))]
        times += [(row["predicted_s"], format_seconds(row["predicted_s"])), (row["error"], summary.signed(row["error"]))]
        parts = [(gap.get(k), format_seconds(gap.get(k))) for k in scope.PARTS]
        words = [row["operation"], row["phase"], row["class"], summary.shape(row), row["bound"] or "-", row["status"]]
        cells.append(
            [(None, w) for w in words]
            + [(row["count"], str(row["count"] or "-"))]
            + times
            + [(None, row["verdict"]), (share, format_percent(share, 3) if share is not None else "-"), *parts]
        )
    note = (
        "One call each; calls per step, - for sizes outside of the two steps. The columns from the base on split the measured time by "
        "cause, as in the picture above. A click on a header sorts."
    )
    return f"<h2>Every case</h2><p>{note}</p>" + table(_HEADERS, cells)


def table(headers: tuple[str, ...], rows: list[Any]) -> str:
    """Cells are words, or (value to sort by, words), or (None, words, True) for text that wraps."""
    head = "".join(f'<th scope="col"><button type="button">{escape(h)}</button></th>' for h in headers)
    lines = []
    for row in rows:
        cells = []
        for cell in row:
            value, words, *wraps = cell if isinstance(cell, tuple) else (None, cell)
            key = "" if value is None else f' data-v="{json.dumps(value)}"'
            long = ' class="text"' if wraps else f' class="long" title="{escape(words)}"' if len(words) > _LONG else ""
            cells.append(f"<td{key}{long}>{escape(words)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _scope(record: dict[str, Any]) -> str:
    """What was measured and what not, and on which ceilings the predictions rest."""
    rows = [[*row[:-1], (None, row[-1], True)] for row in scope.scope(record)]
    rows.append(["both", "outside of the model", "-", "0", "0", (None, _OUTSIDE, True)])
    ceilings = table(scope.CEILINGS, scope.ceilings(record))
    return f"<h2>What was measured, and what not</h2>{table(scope.SCOPE, rows)}<h3>Ceilings of this device</h3>{ceilings}"


def _notes(record: dict[str, Any]) -> str:
    """How it was measured, what was left out, and on what."""
    said = "".join(f"<li>{escape(w)}</li>" for w in summary.words(record))
    left = "".join(f"<li>{escape(w)}</li>" for w in record["left_out"])
    noted = "".join(f"<li>{escape(w['code'])}: {escape(w['message'])}</li>" for w in record["warnings"])
    environment = escape(json.dumps(record["environment"], indent=1, ensure_ascii=False))
    parts = [f"<h2>How it was measured</h2><ul>{said}</ul>"]
    if left:
        parts.append(
            f"<details><summary>{len(record['left_out'])} cases left out of the summaries</summary><ul>{left}</ul></details>"
        )
    if noted:
        parts.append(f"<h3>Warnings of the run</h3><ul>{noted}</ul>")
    parts.append(f"<details><summary>Environment</summary><pre>{environment}</pre></details>")
    return "".join(parts)
