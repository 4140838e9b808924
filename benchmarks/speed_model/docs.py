"""The page on the accuracy of predicted speeds, written from scoreboards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "accuracy-speed.md"
_SCHEMES = {
    "cell": "its cell (engine, device, number of devices, model, weight format) was left out",
    "device": "its device was left out",
    "model": "its model was left out",
    "engine": "its engine was left out",
}
_NOTE = """<!-- Written by python -m benchmarks.speed --write-docs. Do not edit. -->

# How accurate predicted times are

Published measurements (`benchmarks/records/measured_speed.yaml`, each with its source) are predicted from their configuration alone, by a
fit that did not see the group named. Errors are those of the predicted time. *Held* is the share of measured times inside `low..high`,
*width* the median of high over low. Run `python -m benchmarks.speed --cross-validate device` for the figures of single records.

Records that their collector marked as suspect do not count, Tenstorrent rows stand apart.
"""


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f}"


def _row(label: str, s: Mapping[str, Any]) -> str:
    width = "" if s["median_width"] is None else f"{s['median_width']:.2f}"
    figures = [
        _percent(s["mape"]),
        _percent(s["median_ape"]),
        _percent(s["p90_ape"]),
        _percent(s["bias"]),
        _percent(s["coverage"], 0),
    ]
    return f"| {label} | {s['n']} | " + " | ".join(figures) + f" | {width} |"


_HEAD = "| | n | mean % | median % | p90 % | bias % | held % | width |\n|---|---|---|---|---|---|---|---|"


def page(boards: Mapping[str, Mapping[str, Any]], first_token: str) -> str:
    """The page. ``boards`` by what was left out; ``first_token`` is a part of its own."""
    parts = [_NOTE]
    for scheme, what in _SCHEMES.items():
        board = boards[scheme]
        parts.append(f"## Every record predicted while {what}\n\n{_HEAD}")
        parts[-1] += "".join("\n" + _row(kind, s) for kind, s in board["overall"].items())
        parts.append(_ranking(board["ranking"]))
    parts += [_groups(scheme, boards[scheme]["by_group"]) for scheme in ("cell", "device")]
    parts.append(first_token)
    board = boards["cell"]
    parts.append("## Records that are not predicted\n\n" + "\n".join(f"* `{s['id']}`: {s['why']}" for s in board["skipped"]))
    beating = board["beats_floor"]
    parts.append(
        "## Records faster than their floor\n\n"
        + ("\n".join(f"* `{i}`" for i in beating) + "\n\nProfile, count or record is wrong." if beating else "None.")
    )
    return "\n\n".join(parts) + "\n"


def _ranking(ranking: Mapping[str, Mapping[str, Any]]) -> str:
    said = [
        f"{kind} {_percent(r['right'])} % of {r['pairs']} pairs (by the floor alone {_percent(r['right_by_floor'])} %)"
        for kind, r in ranking.items()
        if r["pairs"]
    ]
    return (
        "Of two devices on the same work whose times differ by over 15 %, the faster one is predicted faster: "
        + "; ".join(said)
        + "."
    )


def _groups(scheme: str, groups: list[Mapping[str, Any]]) -> str:
    lines = [f"## By engine and device class, {scheme} left out\n\n{_HEAD}"]
    for group in groups:
        label = next(f"{name} {group[name]}" for name in ("engine", "device class", "experts") if name in group)
        if "experts" in group:
            label = str(group["experts"]).replace("experts", "mixtures of experts").replace("dense", "dense models")
        lines.append(_row(f"{group['kind']}, {label}", group))
    return "\n".join(lines)
