"""An efficiency profile that was fitted to runs, as a page: what is reached, how sure that is, and what was left out."""

from __future__ import annotations

from typing import Any

from calc.report.table import Column, Page, Table
from calc.units import format_count, format_percent, format_seconds

_COLUMNS = (
    Column("class"),
    Column("dtype"),
    Column("cases", right=True),
    Column("compute", right=True),
    Column("bandwidth", right=True),
    Column("per call", right=True),
    Column("knee", right=True, priority=2),
    Column("threads", right=True, priority=3),
    Column("fit error", right=True),
    Column("held out", right=True),
    Column("worst", right=True, priority=1),
)


def rows(facts: dict[str, Any]) -> list[dict[str, object]]:
    """One record per class and type."""
    found = []
    for factor in facts["factors"]:
        row: dict[str, object] = {"class": ";".join(factor.get("operator_classes", ())) or "others"}
        row["operation"] = ";".join(factor.get("operations", ()))
        row["dtype"] = ";".join(factor.get("compute_dtypes", ()))
        for name in ("compute", "bandwidth", "launch_s"):
            row |= {f"{name}.{end}": factor[name][end] for end in ("low", "expected", "high", "n")} if name in factor else {}
        threads = factor.get("threads") or {}
        row |= {"knee": factor.get("knee"), "cases": factor.get("cases", 0)}
        row |= {f"threads.{name}": threads.get(name) for name in ("grain", "enough")}
        for name in ("fit_error", "held_out_error"):
            row |= {f"{name}.{k}": v for k, v in (factor.get(name) or {}).items() if k != "by_phase"}
        found.append(row)
    return found


def warnings(facts: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """What is odd about the values."""
    found = [
        ("W_FIT", f"{_name(f)} {' '.join(f.get('compute_dtypes', ()))}: {flag}")
        for f in facts["factors"]
        for flag in f.get("flags", ())
    ]
    found.append(("W_DEFAULT_EFFICIENCY", "operator classes without a measurement keep the documented default factors"))
    return tuple(found)


def page(facts: dict[str, Any], written: str | None, told: tuple[tuple[str, str], ...]) -> Page:
    """The answer: one row per class and type. ``told`` are its warnings."""
    fit = facts["fit"]
    held, own = fit.get("held_out_error"), fit.get("fit_error")
    cases = sum(f.get("cases", 0) for f in facts["factors"])
    headline = [f"{facts['id']}: shares of the {fit['against']}, from {format_count(cases, 'case')}"]
    if held:
        headline.append(
            f"validation, whole shapes left out: median error {format_percent(held['median'])}, 90 % within "
            f"{format_percent(held['p90'])}, worst {format_percent(held['worst'])} (n = {held['n']})"
        )
    else:
        headline.append("no validation: too few shapes to leave one out; what follows is a fit residual")
    table = [_row(f) for f in facts["factors"] if f.get("operator_classes")]
    notes = [
        f"fit residual: median {format_percent(own['median'])}, worst {format_percent(own['worst'])}" if own else "no residual"
    ]
    if any(f.get("operations") for f in facts["factors"]):
        notes.append("any other: operations of the class that were not measured; held out there is an operation left out whole.")
    if any(f.get("threads") for f in facts["factors"]):
        notes.append(
            "threads: as many reach the bandwidth; small calls run on fewer (`threads` in the file says below which size)."
        )
    notes.append("Errors are |log(predicted / measured)|. Measured with torch kernels, which do not stand for a serving engine's.")
    if fit.get("left_out"):
        notes.append("left out: " + ", ".join(f"{n} {why}" for why, n in fit["left_out"].items()))
    notes.append(f"written: {written}" if written else "not written: name a file with -o, then use it with --efficiency FILE")
    return Page(headline, [Table(_COLUMNS, table)], notes, told)


def _row(factor: dict[str, Any]) -> list[str]:
    fitted, held = factor.get("fit_error"), factor.get("held_out_error")
    return [
        _name(factor),
        " ".join(factor.get("compute_dtypes", ())),
        str(factor.get("cases", 0)),
        _share(factor["compute"]),
        _share(factor["bandwidth"]),
        format_seconds(factor["launch_s"]["expected"]) if "launch_s" in factor else "-",
        f"{factor['knee']:g}" if factor.get("knee") else "max",
        f"{factor['threads']['enough']:.2g}" if factor.get("threads") else "-",
        format_percent(fitted["median"]) if fitted else "-",
        format_percent(held["median"]) if held else "-",
        format_percent(held["worst"]) if held else "-",
    ]


def _name(factor: dict[str, Any]) -> str:
    """``elementwise: rope``; the factor that serves a class beside those of its operations stands for operations not measured."""
    name = " ".join(factor.get("operator_classes", ()))
    if factor.get("operations"):
        return f"{name}: {', '.join(factor['operations'])}"
    return name if factor.get("cases") else f"{name}: any other"


def _share(spread: dict[str, Any]) -> str:
    return f"{spread['expected']:.3g}" if spread["n"] else "default"
