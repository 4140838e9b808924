"""Which dtype a device is fastest in: a one-second trial of a small matrix product and a matrix-vector product."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from calc.measure.cases.formats import DTYPES
from calc.measure.device.monitor import WAITED_SHARE, Monitor, waited_s
from calc.measure.kernels.kernel import Call
from calc.measure.runner import Clock

_ROWS, _SIZE, _VECTOR_SIZE = 128, 1024, 2048
_FEWEST_TURNS = 3
_EXTENSION = 3


def fastest_dtype(torch: Any, clock: Clock, monitor: Monitor, *, budget_s: float = 1.0) -> tuple[str, dict[str, float]]:
    """(dtype, seconds by dtype) on the CPU. The figure is the geometric mean of both products, so prefill and decode count alike.

    It must not be a neighbour that chooses: one thread finds quiet moments where several that wait for each other do not, types take
    turns, the fastest undisturbed time of each counts, and the trial goes on up to three times as long while there is none. A type
    that torch cannot multiply here is left out.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    start = clock.now()
    try:
        with torch.inference_mode():
            calls = {name: found for name in DTYPES if (found := _products(torch, name))}
            best = {name: [math.inf] * len(pair) for name, pair in calls.items()}
            quiet = {name: [math.inf] * len(pair) for name, pair in calls.items()}
            turns = 0
            while turns < _FEWEST_TURNS or clock.now() - start < budget_s * (1 if _complete(quiet) else _EXTENSION):
                for name, pair in calls.items():
                    for i, call in enumerate(pair):
                        time_s, undisturbed = _timed(call, clock, monitor)
                        best[name][i] = min(best[name][i], time_s)
                        if undisturbed:
                            quiet[name][i] = min(quiet[name][i], time_s)
                turns += 1
    finally:
        torch.set_num_threads(before)
    used = quiet if _complete(quiet) else best
    times = {name: math.sqrt(math.prod(pair)) for name, pair in used.items()}
    return min(times, key=lambda name: times[name]), times


def _complete(times: dict[str, list[float]]) -> bool:
    return all(math.isfinite(t) for pair in times.values() for t in pair)


def _timed(call: Call, clock: Clock, monitor: Monitor) -> tuple[float, bool]:
    """Seconds of one call, and whether this process had its processors all the while."""
    before, begin = monitor.read(), clock.now()
    call()
    time_s = max(clock.now() - begin, 1e-9)
    return time_s, waited_s(before, monitor.read()) <= WAITED_SHARE * time_s


def _products(torch: Any, name: str) -> list[Call]:
    """Both products of a dtype, tried once; empty where torch has none."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]
    found: list[Call] = []
    for m, n in ((_ROWS, _SIZE), (1, _VECTOR_SIZE)):
        weight = (torch.randn(64, n) / math.sqrt(n)).to(dtype).repeat(n // 64, 1)
        found.append(partial(torch.mm, torch.randn(m, n).to(dtype), weight.t(), out=torch.empty(m, n, dtype=dtype)))
    try:
        for call in found:
            call()
    except RuntimeError:
        return []
    return found
