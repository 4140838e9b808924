"""The likely reason why a case is far from its prediction, told from what the run file says about it."""

from __future__ import annotations

from typing import Any

from calc.units import format_percent

_TILE = 16
_TILES_TELL = 0.05  # of the measured time
_SMALL = ("norm", "elementwise", "embedding")


def likely(row: dict[str, Any], cases: dict[str, dict[str, Any]]) -> str:
    """One sentence; it says so where no known cause fits."""
    case = cases[row["case_id"]]
    kernel = str(case.get("kernel") or "")
    faster = row["error"] > 0
    if case["status"] == "noisy":
        return "its samples are noisy: repeat on a quiet machine"
    if faster and (case.get("kind") or {}).get("cache") in ("hot", "partly"):
        return "its operands stayed in the cache, which the prediction does not count on"
    if row["class"] in _SMALL:
        if faster:
            return "its activations come from the cache, where the kernel before left them"
        return "torch runs it as several kernels, or at less than the copy rate; engines fuse it"
    if row["bound"] == "overhead":
        return "the fixed cost of a call rules it, and that differs from kernel to kernel"
    if "explicit mask" in kernel:
        return "the kernel computes masked pairs too, which the prediction does not count"
    if "backend math" in kernel:
        return "no fused attention backend took this shape: scores go through memory"
    if "plain torch" in kernel:
        return "plain torch stands in for a fused kernel, which reads and writes far less"
    if "a loop over" in kernel:
        return "torch runs one product per expert; engines run one grouped kernel"
    if row["class"] == "attention":
        return "this attention kernel reaches another share of the ceilings than the matrix products that set them"
    lost = sum((row["gap"] or {}).get(part, 0.0) for part in ("tile_s", "wave_s")) / row["measured_s"]
    if not faster and lost > _TILES_TELL:
        return f"output tiles and the last turn of the units are not full: {format_percent(lost)} of its time, by their count"
    rows = row["shape"].get("m")
    if rows and rows > 1 and rows % _TILE and row["class"] in ("gemm", "experts"):
        return f"{rows:g} rows do not fill whole tiles"
    if rows and 1 < rows <= 4 * _TILE and row["class"] in ("gemm", "experts"):
        return "few rows: neither the matrix units nor the memory are filled, which one ceiling each cannot tell"
    return "no known cause: look at it alone with measure --only"
