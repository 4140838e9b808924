"""The report of a run: measured against predicted as page and rows. Reads plain records."""

from __future__ import annotations

from collections import Counter
from typing import Any

from calc.report.measured.scope import CEILINGS, SCOPE, causes, ceilings, rate, scope
from calc.report.table import Column, Page, Table
from calc.units import format_bytes, format_count, format_percent, format_seconds

CONTENT = (
    "Sums of kernels: no scheduler, no sampling, no network front end; TTFT and TPOT of a server are longer. "
    "Kernels are torch's and do not stand for a serving engine's."
)
_COLUMNS = (
    Column("operation"),
    Column("phase"),
    Column("shape", priority=3),
    Column("bound", priority=4),
    Column("measured", right=True),
    Column("95 %", right=True, priority=1),
    Column("predicted", right=True),
    Column("error", right=True),
    Column("verdict"),
    Column("share", right=True, priority=2),
)


def title(record: dict[str, Any]) -> str:
    """Model, device and type."""
    model = record["model"].get("name") or record["model"].get("id")
    return f"{model} on {record['device'].get('name', 'a device')}, {record['settings'].get('dtype', '')}".rstrip(", ")


def rows(record: dict[str, Any]) -> list[dict[str, object]]:
    """One flat record per operator and further case."""
    found = []
    for row in (*record["rows"], *record["further"]):
        flat = {k: v for k, v in row.items() if not isinstance(v, (dict, list, tuple))}
        flat |= {
            "shape": shape(row),
            "low_s": (row["interval_s"] or (None, None))[0],
            "high_s": (row["interval_s"] or (None, None))[1],
        }
        flat |= {f"gap.{k}": v for k, v in (row["gap"] or {}).items()}
        found.append(flat)
    return found


def shape(row: dict[str, Any]) -> str:
    """``m 512, n 4096, k 4096``."""
    return ", ".join(f"{k} {v:g}" for k, v in row["shape"].items() if isinstance(v, (int, float)))


def uncertainty(row: dict[str, Any]) -> str:
    """``+1.5 %/-1.0 %``: the ends of the interval around the measured time."""
    measured, interval = row["measured_s"], row["interval_s"]
    if measured is None or not interval:
        return "-"
    return f"+{format_percent(interval[1] / measured - 1)}/-{format_percent(1 - interval[0] / measured)}"


def signed(error: float | None) -> str:
    """``+3.1 %``."""
    return "-" if error is None else f"{100 * error:+.1f} %"


def rounds_text(record: dict[str, Any]) -> str:
    """What the error bars are."""
    n = max((r["rounds"] for r in (*record["rows"], *record["further"])), default=0)
    return f"95 % between rounds, n = {n}" if n >= 3 else f"no intervals: {format_count(n, 'round')}, three are needed"


def in_words(step: dict[str, Any]) -> str:
    """``A decode step takes 277 ms here; roofcast predicted 217 ms, 21.6 % less.``"""
    measured = f"A {step['phase']} step takes {format_seconds(step['measured_s'])} here"
    if step["error"] is None:
        return f"{measured}; not every operator has a prediction."
    apart = (
        "as measured"
        if abs(step["error"]) < 0.0005
        else f"{100 * abs(step['error']):.1f} % {'more' if step['error'] > 0 else 'less'}"
    )
    return f"{measured}; roofcast predicted {format_seconds(step['predicted_s'])}, {apart}."


def words(record: dict[str, Any]) -> list[str]:
    """What was measured and what not, in sentences."""
    counts, settings = record["counts"], record["settings"]
    basis = record["basis"]
    found = [
        f"{basis['kind']}: {basis['words']}.",
        "error = predicted / measured - 1; positive: roofcast predicted slower than it is.",
        f"Batch {settings.get('batch_size')}, prompt {settings.get('input_len')} tokens, context {settings.get('context_len')}; "
        f"intervals: {rounds_text(record)}; cold weights and KV, sustained load.",
        CONTENT,
        f"{counts['judged']} of {counts['cases']} cases can be judged: {counts['agrees']} agree, {counts['fast']} are faster and "
        f"{counts['slow']} slower than predicted; {counts['unclear']} unclear, {counts['extrapolated']} extrapolated, "
        f"{counts['unreliable']} unreliable, {counts['failed']} failed.",
    ]
    labels = Counter(label for row in (*record["rows"], *record["further"]) for label in row["labels"])
    found += [f"{n} cases were {label.replace('_', ' ')}: kept, and compared as they are." for label, n in labels.items()]
    found += [f"noisy as a whole: {why}" for why in record["noisy"]]
    if not record["complete"]:
        found.append("The run ended early: what it holds is whole, but rounds are missing.")
    worst = record["worst"]
    if worst:
        found.append(f"worst case: {worst['case_id']}, error {signed(worst['error'])}: {worst['reason']}.")
    if record["not_measured"]:
        found.append("not measured: " + "; ".join(record["not_measured"]))
    return found


def sums(record: dict[str, Any]) -> list[str]:
    """Each step as a sentence: measured, predicted, what is missing from both."""
    found = []
    for step in record["steps"]:
        if step["measured_s"]:
            missing = f", without {', '.join(step['missing'])}" if step["missing"] else ""
            found.append(
                f"{step['phase']}: measured {format_seconds(step['measured_s'])}, predicted {format_seconds(step['predicted_s'])}, "
                f"error {signed(step['error'])}{missing}"
            )
    return found


def page(record: dict[str, Any], gates: list[str]) -> Page:
    """The answer: the sums first, then classes, then operators."""
    headline = [title(record), *sums(record)]
    headline += [f"gate: {reason}" for reason in gates]
    tables = [
        Table(tuple(Column(h, right=h in ("measured", "datasheet")) for h in CEILINGS), ceilings(record)),
        causes(record),
        Table(tuple(Column(h) for h in SCOPE), scope(record)),
        _groups(record),
        _operators(record["rows"], record["steps"], "one call of each operator"),
    ]
    if record["links"]:
        tables.append(
            Table(tuple(Column(h, right=h != "kind") for h in LINKS), links(record), f"collectives, {record['links']['backend']}")
        )
    if record["further"]:
        tables.append(_operators(record["further"], [], "further sizes"))
    notes = words(record) + left_out(record)
    return Page(headline, [t for t in tables if t.rows], notes, [(w["code"], w["message"]) for w in record["warnings"]])


def left_out(record: dict[str, Any]) -> list[str]:
    """Cases that count in no summary, one line per reason. A case that shares its reason is named in the table alone."""
    reasons: dict[str, list[str]] = {}
    for text in record["left_out"]:
        case, _, reason = text.partition(": ")
        reasons.setdefault(reason, []).append(case)
    return [f"left out, {cases[0] if len(cases) == 1 else f'{len(cases)} cases'}: {why}" for why, cases in reasons.items()]


LINKS = ("kind", "message", "bytes are", "time", "bus bandwidth")


def links(record: dict[str, Any]) -> list[list[str]]:
    """Collectives by kind and size."""
    return [
        [
            c["kind"],
            format_bytes(c["bytes"]),
            c["bytes_are"],
            format_seconds(c["time_s"]),
            rate(c.get("busbw_bytes_per_s"), "byte/s"),
        ]
        for c in sorted(record["links"]["cases"], key=lambda c: (c["kind"], c["bytes"]))
        if c["time_s"]
    ]


def _groups(record: dict[str, Any]) -> Table:
    columns = (
        Column("class"), Column("phase"), Column("n", right=True), Column("bias", right=True), Column("median error", right=True),
        Column("90 %", right=True), Column("worst", right=True),
    )  # fmt: skip
    found = [
        [g["class"], g["phase"], str(g["n"]), f"{g['bias']:.3f}", *(format_percent(g[k]) for k in ("median", "p90", "worst"))]
        for g in record["groups"]
        if g["bound"] is None
    ]
    return Table(columns, found, "|log(predicted / measured)| by class; bias = geometric mean of predicted / measured")


def _operators(found: list[dict[str, Any]], steps: list[dict[str, Any]], name: str) -> Table:
    totals = {s["phase"]: s["measured_s"] for s in steps}
    return Table(_COLUMNS, [_operator(r, totals.get(r["phase"])) for r in found], name)


def _operator(row: dict[str, Any], total: float | None) -> list[str]:
    share = row["count"] * row["measured_s"] / total if total and row["measured_s"] else None
    return [
        row["operation"],
        row["phase"],
        shape(row)[:40],
        row["bound"] or "-",
        format_seconds(row["measured_s"]),
        uncertainty(row),
        format_seconds(row["predicted_s"]),
        signed(row["error"]),
        row["verdict"],
        format_percent(share, 3) if share is not None else "-",
    ]
