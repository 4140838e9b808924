"""Predictions of the operators of a run file: at the ceilings that the run measured, or by an efficiency profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.errors import UsageError
from calc.measure.comparing import comparison
from calc.measure.records import Ceiling
from calc.operators.operator import Operator
from calc.profiles.efficiency import Factor
from calc.timing import extrapolation, roofline
from calc.timing.efficiency import Efficiency
from calc.timing.roofline import Ceilings
from calc.timing.sizes import kernel, single
from calc.timing.step_time import operator_range


@dataclass(frozen=True, slots=True)
class Predictor:
    """What predictions come from. ``base`` are the ceilings that the efficiencies are shares of, ``units`` the multiprocessors that
    tiles are spread over (None: unknown, or a CPU)."""

    ceilings: tuple[Ceiling, ...]
    datasheet: Ceilings | None
    efficiency: Efficiency | None = None
    base: Ceilings | None = None
    units: int | None = None

    def predict(self, operator: Operator, launches: int) -> comparison.Prediction | None:
        """One call; None where a rate is unknown."""
        if self.efficiency is None:
            return comparison.predict(operator, self.ceilings, launches)
        if self.base is None or operator.compute_dtype not in self.base.peaks:
            return None
        timed = operator_range(operator, self.base, self.efficiency)
        low, expected, high = (float(v or 0.0) for v in (timed.time_s.low, timed.time_s.expected, timed.time_s.high))
        factor = self._factor(operator.op_class, operator.name, operator.shape, operator.compute_dtype, operator.weight_format)
        bounds = roofline.honest(operator, self.base, factor.compute.expected, factor.bandwidth.expected)
        bound = "overhead" if factor.launch_s.expected > float(bounds.time_s) else bounds.bound
        return comparison.Prediction(expected, (low, high), bound)

    def _factor(self, op_class: str, operation: str, shape: dict[str, Any], dtype: str, weight_format: str) -> Factor:
        assert self.efficiency is not None
        name = kernel(op_class, operation, single=bool(single(op_class, shape)))
        return self.efficiency.factor(op_class, weight_format, dtype, name)

    def extrapolated(self, case: dict[str, Any]) -> bool:
        """Whether a case lies outside of what the efficiencies were fitted on."""
        if self.efficiency is None:
            return False
        factor = self._factor(case["class"], case["operation"], case["shape"], case["dtype"], case["dtype"])
        return bool(extrapolation.outside(factor, case["shape"]))


def predictor_of(run: dict[str, Any], efficiency: Efficiency | None) -> Predictor:
    """The predictor of a run file. Raises UsageError where shares are of a datasheet that the run does not name."""
    ceilings = ceilings_of(run)
    sheet = run.get("hardware")
    datasheet = Ceilings(sheet["id"], sheet["peak_flops_per_s"], sheet["bandwidth_bytes_per_s"]) if sheet else None
    told = run["environment"].get("device", {}).get("sm_count")
    units = told if isinstance(told, int) and told > 0 else None
    if efficiency is None:
        return Predictor(ceilings, datasheet, units=units)
    fit = efficiency.profile.fit
    if fit is not None:
        rates = dict(fit.ceilings)
        base = Ceilings(efficiency.profile.id, rates, rates.pop("bandwidth", None))
        return Predictor(ceilings, datasheet, efficiency, base, units)
    if datasheet is None:
        raise UsageError(
            "this efficiency file holds shares of a datasheet, and the run names none", "measure with a HARDWARE argument"
        )
    return Predictor(ceilings, datasheet, efficiency, datasheet, units)


def ceilings_of(run: dict[str, Any]) -> tuple[Ceiling, ...]:
    """The best of each kind that a run reached."""
    return tuple(
        Ceiling(c["name"], c["dtype"], c["unit"], c["value"], c["best"], pair(c["value_interval"]), c["id"], c["status"])
        for c in run["ceilings"]
        if c["chosen"] and c["value"]
    )


def pair(value: Any) -> tuple[float, float] | None:
    """An interval of a run file."""
    return (float(value[0]), float(value[1])) if value else None
