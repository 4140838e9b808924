"""The steady state under stated loads over the points of a sweep: each is the load of a single estimate."""

from __future__ import annotations

import itertools
from typing import Any

from calc.errors import UsageError
from calc.serving.deployment import Deployment
from calc.serving.load.steady_state import ServedLoad, served_load
from calc.serving.plan.option import Demand
from calc.serving.request import Workload
from calc.serving.speculation import Draft

#: Loads that one deployment is asked about: each takes its own steady state, some milliseconds.
MAX_LOADS = 20_000
_TIMES = ("ttft_s", "tpot_s", "e2e_s")
_PARTS = ("floor", "low", "expected", "high")
_RATES = {"load_requests_per_s": "request_rate", "load_output_tokens_per_s": "output_tokens_per_s"}


class Loads:
    """Loads of one deployment, each answered once."""

    def __init__(self, deployment: Deployment, draft: Draft | None) -> None:
        self._deployment = deployment
        self._draft = draft
        self._found: dict[tuple[Any, ...], ServedLoad] = {}

    def columns(self, prompts: Any, outputs: Any, cached: Any, users: Any, rates: Any) -> dict[str, Any]:
        """Columns over (1, prompt, output, 1, cached, users, rate), NaN where a load is not carried."""
        import numpy as np

        lists = [np.ravel(a).tolist() for a in (prompts, outputs, cached, users, rates)]
        sizes = [len(values) for values in lists]
        if np.prod(sizes) > MAX_LOADS:
            raise UsageError(
                f"{int(np.prod(sizes)):,} loads are too many", f"at most {MAX_LOADS:,} in a part of a sweep: narrow a list"
            )
        found = [self._at(*point) for point in itertools.product(*lists)]
        shape = (1, sizes[0], sizes[1], 1, *sizes[2:])

        def column(value: Any) -> Any:
            return np.array([np.nan if f.answer is None else value(f.answer) for f in found], dtype=float).reshape(shape)

        columns = {f"load_{n}_{p}": column(lambda a, n=n, p=p: getattr(getattr(a, n), p)) for n in _TIMES for p in _PARTS}
        columns |= {name: column(lambda a, key=key: getattr(a, key)) for name, key in _RATES.items()}
        return columns | {"carried": np.array([f.answer is not None for f in found]).reshape(shape)}

    def _at(self, prompt: float, output: float, cached: float, users: float, rate: float) -> ServedLoad:
        key = (prompt, output, cached, users, rate)
        if key not in self._found:
            demand = Demand(None, int(users), 0.0) if users == users else Demand(rate, None, 0.0)
            workload = Workload(1, int(prompt), int(output), None, int(cached))
            self._found[key] = served_load(self._deployment, workload, demand, self._draft)
        return self._found[key]
