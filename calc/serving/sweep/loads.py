"""The steady state under stated loads over the points of a sweep: each is the load of a single estimate."""

from __future__ import annotations

import itertools
from typing import Any

from calc.serving.deployment import Deployment
from calc.serving.load.objectives import Demand
from calc.serving.load.steady_state import ServedLoad, served_load
from calc.serving.request import Workload
from calc.serving.speculation import Draft
from calc.timing.step_time import Range

#: Most loads of a whole sweep: each takes a steady state of its own, 3 to 7 ms, so that these end within a quarter of an hour.
MAX_LOADS = 100_000
_TIMES = ("ttft_s", "tpot_s", "e2e_s")
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
        found = [self._at(*point) for point in itertools.product(*lists)]
        shape = (1, sizes[0], sizes[1], 1, *sizes[2:])

        def column(value: Any) -> Any:
            return np.array([np.nan if f.answer is None else value(f.answer) for f in found], dtype=float).reshape(shape)

        columns = {f"load_{n}_{p}": column(lambda a, n=n, p=p: getattr(getattr(a, n), p)) for n in _TIMES for p in Range.PARTS}
        columns |= {name: column(lambda a, key=key: getattr(a, key)) for name, key in _RATES.items()}
        return columns | {"carried": np.array([f.answer is not None for f in found]).reshape(shape)}

    def _at(self, prompt: float, output: float, cached: float, users: float, rate: float) -> ServedLoad:
        key = (prompt, output, cached, users, rate)
        if key not in self._found:
            demand = Demand(None, int(users), 0.0) if users == users else Demand(rate, None, 0.0)
            workload = Workload(1, int(prompt), int(output), None, int(cached))
            self._found[key] = served_load(self._deployment, workload, demand, self._draft)
        return self._found[key]
