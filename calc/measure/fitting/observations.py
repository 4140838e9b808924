"""Run files → observations to fit: which cases count, what they would take at the ceilings, and what is left out to validate."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from calc.errors import UsageError
from calc.measure.cases.composites import CLASS
from calc.measure.ceilings import as_roofline
from calc.measure.comparing.prediction import ceilings_of
from calc.measure.fitting.solver import Observation
from calc.measure.statistics import t95
from calc.timing.sizes import elements, kernel, single, sizes

_UNKNOWN_DEVIATION = 0.10  # of a case with too few rounds for an interval
#: Classes in which one kernel serves every operation, by its shape.
_PRODUCTS = ("gemm", "experts")
#: Letters of a shape that grow with the work of a step; the others are the model's.
_SIZES = ("m", "b", "q", "kv", "tokens", "sequences")


def rates(run: dict[str, Any], sheet: dict[str, Any] | None) -> dict[str, float]:
    """What efficiencies are shares of: a datasheet's rates, or those that the run reached. Raises UsageError where it has neither."""
    if sheet is None:
        return _measured(run)
    return {**sheet["peak_flops_per_s"], "bandwidth": sheet["bandwidth_bytes_per_s"]}


def _measured(run: dict[str, Any]) -> dict[str, float]:
    """Matrix product and read rates that the run itself reached."""
    here = as_roofline(ceilings_of(run), "gemm")
    if here is None or here.bandwidth is None:
        raise UsageError("a run has no measured ceilings and names no datasheet", "give one: --hardware NAME")
    return {**here.peaks, "bandwidth": here.bandwidth}


def collect(
    run: dict[str, Any], rates: dict[str, float], found: dict[tuple[str, str], list[Observation]], left_out: Counter[str]
) -> None:
    """Add the usable cases of a run to ``found`` by class and type, and count the others by reason."""
    for case in run["cases"]:
        if case["status"] in ("failed", "unreliable"):
            left_out[case["status"]] += 1
        elif case["class"] == CLASS:
            left_out["held-out composite"] += 1
        elif case["dtype"] not in rates:
            left_out["no rate of its type"] += 1
        else:
            one = Observation(
                case["id"],
                case["phase"],
                case["flops"] / rates[case["dtype"]],
                case["bytes"] / rates["bandwidth"],
                case["time_s"],
                deviation(case),
                _group(case),
                case["shape"].get("m"),
                _size(case),
                _kernel(case),
                elements(case["class"], case["shape"]),
            )
            found.setdefault((case["class"], case["dtype"]), []).append(one)


def _kernel(case: dict[str, Any]) -> str:
    return kernel(case["class"], case["operation"], single=bool(single(case["class"], case["shape"])))


def _group(case: dict[str, Any]) -> str:
    """The shape that is left out whole: a weight, a vector width of an operation, or the heads of an attention."""
    shape = case["shape"]
    if case["class"] in _PRODUCTS:
        return "x".join(str(shape.get(letter)) for letter in ("n", "k"))
    rest = ", ".join(f"{k} {v}" for k, v in shape.items() if k not in _SIZES)
    return f"{_kernel(case)} {rest}"


def _size(case: dict[str, Any]) -> float:
    """The tokens of a call, or the keys that one query of each request sees."""
    found = sizes(case["shape"])
    if "queries" in found:
        return found["batch"] * (found["queries"] if found["queries"] > 1 else found["context"])
    return found.get("m", found.get("tokens", 1.0))


def deviation(case: dict[str, Any]) -> float:
    """Standard deviation of the logarithm of a case's time, from the interval between rounds."""
    interval = case.get("interval_s")
    if not interval:
        return _UNKNOWN_DEVIATION
    rounds = max(3, sum(1 for r in case.get("rounds", ()) if r.get("quiet", True)))
    return math.log(interval[1] / interval[0]) / 2 / t95(rounds - 1)
