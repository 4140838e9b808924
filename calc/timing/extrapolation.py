"""Where a user's efficiency profile is asked about what it never saw: sizes outside of its box, and classes that it does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from calc.arrays import is_plain
from calc.operators.operator import Operator
from calc.profiles.efficiency import Factor
from calc.timing.calibrated import Calibrated
from calc.timing.efficiency import Efficiency
from calc.timing.sizes import kernel, single, sizes
from calc.units import format_number

Warnings = tuple[tuple[str, str], ...]


def outside(factor: Factor, shape: Mapping[str, Any]) -> dict[str, float]:
    """Sizes that lie outside of what a factor was fitted on; empty where all lie inside."""
    found = sizes(shape)
    return {name: found[name] for name, (low, high) in factor.box.items() if name in found and not low <= found[name] <= high}


def evidence(operator: Operator, factor: Factor, efficiency: Efficiency) -> str:
    """What the time of one operator rests on: that of the file, unless the file never saw the like of it."""
    if efficiency.profile.fit is None or not is_plain(*operator.shape.values()):
        return efficiency.evidence
    if not factor.operator_classes:
        return "default"
    return efficiency.evidence + (", extrapolated" if outside(factor, operator.shape) else "")


def warnings(operators: Iterable[Operator], efficiency: Efficiency | Calibrated) -> Warnings:
    """``extrapolated`` for each class with the dimensions in which these operators lie outside of the box, ``default_efficiency``
    where the file holds nothing about a class, type or weight format. Nothing for the documented default and for the calibrated model,
    which have no box."""
    if isinstance(efficiency, Calibrated) or efficiency.profile.fit is None:
        return ()
    beyond: dict[tuple[str, str], list[float]] = {}
    boxes: dict[tuple[str, str], tuple[float, float]] = {}
    unknown: set[str] = set()
    for operator in operators:
        name = kernel(operator.op_class, operator.name, single=bool(single(operator.op_class, operator.shape)))
        factor = efficiency.factor(operator.op_class, operator.weight_format, operator.compute_dtype, name)
        if not factor.operator_classes:
            weights = f" with {operator.weight_format} weights" if operator.weight_format else ""
            unknown.add(f"{operator.op_class} in {operator.compute_dtype}{weights}")
            continue
        for dimension, size in outside(factor, operator.shape).items():
            key = (operator.op_class, dimension)
            beyond.setdefault(key, []).append(size)
            low, high = boxes.get(key, factor.box[dimension])
            boxes[key] = (max(low, factor.box[dimension][0]), min(high, factor.box[dimension][1]))
    profile = efficiency.profile.id
    told = []
    for op_class in sorted({op_class for op_class, _ in beyond}):
        own = sorted((name, found) for (of, name), found in beyond.items() if of == op_class)
        said = ", ".join(f"{name} {_span(found)} lies outside of {_span(boxes[op_class, name])}" for name, found in own)
        told.append(("extrapolated", f"{op_class}: {said}, where {profile} measured"))
    if unknown:
        said = f"{profile} holds no measurement of {', '.join(sorted(unknown))}: the documented default factors serve them"
        told.append(("default_efficiency", said))
    return tuple(told)


def _span(values: Iterable[float]) -> str:
    """``8,192`` or ``1 to 8,192``."""
    low, *_, high = sorted([*values] * 2)
    return format_number(low) if low == high else f"{format_number(low)} to {format_number(high)}"
