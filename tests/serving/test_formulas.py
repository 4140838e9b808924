"""The formula that a function carries gives what the function gives."""

from __future__ import annotations

import inspect
import math
import random

import pytest

from calc.formula import formula_of
from calc.report.explain.step import Value, evaluate
from calc.serving import cost, disaggregation, offload, request, speculation
from calc.serving.cost import Price
from calc.serving.load import batching, option
from calc.timing import pipeline

FUNCTIONS = [
    f
    for module in (batching, cost, disaggregation, offload, option, pipeline, request, speculation)
    for f in vars(module).values()
    if inspect.isfunction(f) and f.__module__ == module.__name__ and hasattr(f, "__formula__")
]
#: Where a formula holds, parameter by parameter; elsewhere any positive number will do.
LIMITS = {"headroom": (0.0, 0.9), "rate": (0.1, 0.9), "limit": (1.0, 5.0), "share": (0.0, 1.0), "busy": (0.0, 1.0)}
WHOLE = ("layers", "stages", "gpus", "output_len", "users", "micro_batches")


def test_formulas_are_found():
    assert len(FUNCTIONS) >= 10


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__qualname__)
def test_text_and_code_agree(function):
    rng = random.Random(function.__qualname__)
    for _ in range(50):
        arguments = {}
        for name in inspect.signature(function).parameters:
            low, high = LIMITS.get(name, (0.5, 50.0))
            arguments[name] = rng.randint(1, 64) if name in WHOLE else rng.uniform(low, high)
        if "price" in inspect.signature(function).parameters:
            arguments["price"] = Price(rng.uniform(0.1, 10), "given")
        values = tuple(Value(n, getattr(v, "usd_per_hour", v)) for n, v in arguments.items())
        found, told = float(function(**arguments)), evaluate(formula_of(function), values)
        assert math.isclose(max(found, 0.0), max(told, 0.0), rel_tol=1e-9, abs_tol=1e-9), (arguments, found, told)
