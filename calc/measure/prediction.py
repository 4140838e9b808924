"""Predictions of the operators of a run file: at the ceilings that the run measured, or by an efficiency profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.errors import UsageError
from calc.measure import comparison
from calc.measure.records import Ceiling
from calc.operators.operator import Operator
from calc.timing import roofline
from calc.timing.efficiency import Efficiency
from calc.timing.roofline import Ceilings
from calc.timing.step_time import operator_range


@dataclass(frozen=True, slots=True)
class Predictor:
    """What predictions come from. ``base`` are the ceilings that the efficiencies are shares of."""

    ceilings: tuple[Ceiling, ...]
    datasheet: Ceilings | None
    efficiency: Efficiency | None = None
    base: Ceilings | None = None

    def predict(self, operator: Operator, launches: int) -> comparison.Prediction | None:
        """One call; None where a rate is unknown."""
        if self.efficiency is None:
            return comparison.predict(operator, self.ceilings, launches)
        if self.base is None or operator.compute_dtype not in self.base.peaks:
            return None
        timed = operator_range(operator, self.base, self.efficiency)
        low, expected, high = (float(v or 0.0) for v in (timed.time_s.low, timed.time_s.expected, timed.time_s.high))
        factor = self.efficiency.factor(operator.op_class, operator.weight_format, operator.compute_dtype)
        bounds = roofline.honest(operator, self.base, factor.compute.expected, factor.bandwidth.expected)
        bound = "overhead" if factor.launch_s.expected > float(bounds.time_s) else bounds.bound
        return comparison.Prediction(expected, (low, high), bound)

    def extrapolated(self, case: dict[str, Any]) -> bool:
        """Whether a case lies outside of what the efficiencies were fitted on."""
        if self.efficiency is None:
            return False
        factor = self.efficiency.factor(case["class"], "", case["dtype"])
        shape = case["shape"]
        return any(letter in shape and not low <= shape[letter] <= high for letter, (low, high) in factor.box.items())


def predictor_of(run: dict[str, Any], efficiency: Efficiency | None) -> Predictor:
    """The predictor of a run file. Raises UsageError where shares are of a datasheet that the run does not name."""
    ceilings = tuple(
        Ceiling(c["name"], c["dtype"], c["unit"], c["value"], c["best"], pair(c["value_interval"]), c["id"], c["status"])
        for c in run["ceilings"]
        if c["chosen"] and c["value"]
    )
    sheet = run.get("hardware")
    datasheet = Ceilings(sheet["id"], sheet["peak_flops_per_s"], sheet["bandwidth_bytes_per_s"]) if sheet else None
    if efficiency is None:
        return Predictor(ceilings, datasheet)
    fit = efficiency.profile.fit
    if fit is not None:
        rates = dict(fit.ceilings)
        return Predictor(ceilings, datasheet, efficiency, Ceilings(efficiency.profile.id, rates, rates.pop("bandwidth", None)))
    if datasheet is None:
        raise UsageError(
            "this efficiency file holds shares of a datasheet, and the run names none", "measure with a HARDWARE argument"
        )
    return Predictor(ceilings, datasheet, efficiency, datasheet)


def pair(value: Any) -> tuple[float, float] | None:
    """An interval of a run file."""
    return (float(value[0]), float(value[1])) if value else None
