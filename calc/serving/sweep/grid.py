"""The cross product of options as array evaluation: one broadcast evaluation per deployment, one row a point.

Axes of the workload (batch, lengths) are array dimensions; everything else (model, device, split, formats) makes a deployment of its
own. A point that does not fit is a row with ``fits`` False and no times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calc.errors import UsageError
from calc.operators import work
from calc.operators.step import is_encoder_only
from calc.serving.cost import profile_price, usd_per_hour, usd_per_million
from calc.serving.deployment import Deployment
from calc.serving.phase import timed_step
from calc.serving.request import Workload, end_to_end_s
from calc.serving.speculation import Drafting
from calc.serving.sweep.drafts import Rounds
from calc.serving.sweep.loads import MAX_LOADS, Loads
from calc.serving.sweep.mean_step import MeanStep
from calc.serving.sweep.memory import HeldByLength
from calc.timing.step_time import Range, StepTime, overhead_rules

#: Largest sweep that is begun, and points evaluated at once: arrays of this size stay in a core's cache.
MAX_POINTS = 10**8
#: Largest number of deployments: each is settled on its own, about 5 ms, so that these end within ten minutes.
MAX_DEPLOYMENTS = 100_000
CHUNK_POINTS = 1 << 15
_MOST_WORKERS = 4

WORK_AXES = ("batch_size", "input_len", "output_len", "context_len", "cached_len")
LOAD_AXES = ("concurrency", "request_rate")


@dataclass(frozen=True)
class WorkAxes:
    """Values of each workload axis; ``context_len`` None: the mean context of the request. ``concurrency`` (users) or ``request_rate``
    (requests/s) state loads; None: none."""

    batch_size: Sequence[int] = (Workload.batch_size,)
    input_len: Sequence[int] = (Workload.input_len,)
    output_len: Sequence[int] = (Workload.output_len,)
    context_len: Sequence[int | None] = (Workload.context_len,)
    cached_len: Sequence[int] = (Workload.cached_len,)
    concurrency: Sequence[int | None] = (None,)
    request_rate: Sequence[float | None] = (None,)

    @property
    def points(self) -> int:
        """Size of the cross product."""
        return math.prod(len(getattr(self, name)) for name in (*WORK_AXES, *LOAD_AXES))

    @property
    def loads(self) -> int:
        """Loads that are asked about, each of which takes a steady state of its own; batches and contexts have none."""
        names = ("input_len", "output_len", "cached_len", *LOAD_AXES)
        return math.prod(len(getattr(self, name)) for name in names) if self.is_loaded else 0

    @property
    def is_loaded(self) -> bool:
        """Whether loads are stated."""
        return any(value is not None for name in LOAD_AXES for value in getattr(self, name))

    def chunks(self, limit: int = CHUNK_POINTS) -> Iterator[WorkAxes]:
        """Parts of at most ``limit`` points, in the order of the cross product (the first axis slowest)."""
        if self.points <= limit:
            yield self
            return
        for name in (*WORK_AXES, *LOAD_AXES):
            values = getattr(self, name)
            if len(values) > 1:
                rest = self.points // len(values)
                size = max(1, limit // rest)
                for start in range(0, len(values), size):
                    part = self._with(name, values[start : start + size])
                    yield from part.chunks(limit)
                return

    def _with(self, name: str, values: Sequence[Any]) -> WorkAxes:
        from dataclasses import replace

        return replace(self, **{name: values})


def check_size(deployments: int, axes: WorkAxes) -> None:
    """Refuse a sweep that would never end, before any work."""
    sizes = ((1, MAX_DEPLOYMENTS, "deployments"), (axes.points, MAX_POINTS, "points"), (axes.loads, MAX_LOADS, "loads"))
    for each, most, name in sizes:
        if deployments * each > most:
            raise UsageError(
                f"this sweep has {deployments * each:,} {name}; at most {most:,} are evaluated",
                "narrow a range, or give it a step: 1..512:*2",
            )


class Sweep:
    """The sweep of one deployment, part by part; what its memory holds at a length is asked once."""

    def __init__(self, deployment: Deployment, drafting: Drafting | None = None) -> None:
        self.deployment = deployment
        self._held = HeldByLength(deployment)
        self._mean = MeanStep(deployment)
        draft = drafting.draft(deployment) if drafting else None
        self._rounds = Rounds(deployment, draft) if drafting else None
        self._loads = Loads(deployment, draft)
        self._encoder = is_encoder_only(deployment.model.profile)

    def parts(self, axes: WorkAxes, workers: int | None = None) -> Iterator[dict[str, Any]]:
        """Columns of every part of the axes, in order; ``workers`` of them are evaluated at once (None: one per core, at most 4).

        Arrays release the interpreter while they are computed, so threads share the cores; few parts are ever held.
        """
        import os
        from collections import deque
        from concurrent.futures import Future, ThreadPoolExecutor

        if axes.is_loaded and self._encoder:
            name = self.deployment.model.profile.id
            raise UsageError(f"{name} is an encoder: it has no steady state of decode", "ask for batches alone")
        workers = min(workers or os.cpu_count() or 1, _MOST_WORKERS)
        if workers == 1 or axes.points <= CHUNK_POINTS:
            yield from map(self.columns, axes.chunks())
            return
        with ThreadPoolExecutor(workers) as pool:
            waiting: deque[Future[dict[str, Any]]] = deque()
            try:
                for part in axes.chunks():
                    waiting.append(pool.submit(self.columns, part))
                    if len(waiting) > 2 * workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def columns(self, axes: WorkAxes) -> dict[str, Any]:
        """Columns (numpy arrays of ``axes.points`` entries, NaN where not answered); arrays of text for ``bound``."""
        import numpy as np

        batch, prompt, output, context, cached, users, rates = grid = list(_grid(axes, np))
        shape = np.broadcast_shapes(*(a.shape for a in grid))
        shown = np.where(np.isnan(context), work.mean_context(prompt, output), context)
        final = np.maximum(prompt + output, np.where(np.isnan(context), 0, context))
        sequences, concurrency, kv_tokens = self._held.at(final)
        fits = batch <= sequences
        columns: dict[str, Any] = {
            "batch_size": batch, "input_len": prompt, "output_len": output, "context_len": shown, "cached_len": cached,
            "fits": fits, "max_concurrency": concurrency, "kv_tokens": kv_tokens,
        }  # fmt: skip
        if self.deployment.has_rates:
            times = self._times(batch, prompt, output, shown, cached, np)
            if self._rounds and not self._encoder:
                both = self._rounds.fits(batch, final)
                drafted = self._rounds.columns(batch, prompt, output, _range("prefill_s", times), _range("tpot_s", times))
                times |= drafted if both.all() else {k: _blank(v, both, np) for k, v in drafted.items()}
            columns |= times if fits.all() else {k: _blank(v, fits, np) for k, v in times.items()}
            if axes.is_loaded:
                columns |= {"concurrency": users, "request_rate": rates}
                columns |= self._loads.columns(prompt, output, cached, users, rates)
        return {name: np.broadcast_to(value, shape).reshape(-1) for name, value in columns.items()}

    def _times(self, batch: Any, prompt: Any, output: Any, shown: Any, cached: Any, np: Any) -> dict[str, Any]:
        prefill = timed_step(self.deployment, work.prefill(batch, prompt, cached))
        columns = _parts("prefill_s", prefill.time_s)
        bound = {"prefill_bound": _bound(prefill, np)}
        whole = prefill.time_s
        if self._encoder:
            columns |= _parts("e2e_s", whole) | {"decode_share": np.zeros(())}
        else:
            decode = timed_step(self.deployment, work.decode(batch, shown))
            mean = self._mean.at(batch, prompt, output)
            rest = mean * (output - 1)
            whole = end_to_end_s(prefill.time_s, mean, output)
            columns |= _parts("decode_s", decode.time_s) | _parts("tpot_s", mean) | _parts("e2e_s", whole)
            columns["decode_share"] = rest.expected / whole.expected
            bound["decode_bound"] = _bound(decode, np)
            columns["output_tokens_per_s"] = batch * output / whole.expected
            price = profile_price(self.deployment.hardware.profile)
            if price is not None:
                hourly = usd_per_hour(price, self.deployment.sharding.ranks)
                columns["usd_per_million_output_tokens"] = usd_per_million(hourly, columns["output_tokens_per_s"])
        return columns | bound


def _grid(axes: WorkAxes, np: Any) -> Iterator[Any]:
    names = (*WORK_AXES, *LOAD_AXES)
    for dimension, name in enumerate(names):
        values = np.array([np.nan if v is None else v for v in getattr(axes, name)], dtype=float)
        yield values.reshape([-1 if d == dimension else 1 for d in range(len(names))])


def _parts(name: str, value: Range) -> dict[str, Any]:
    return {f"{name}_{part}": getattr(value, part) for part in Range.PARTS}


def _range(name: str, columns: dict[str, Any]) -> Range:
    floor, low, expected, high = (columns[f"{name}_{part}"] for part in Range.PARTS)
    return Range(floor, low, expected, high, "")


def _blank(value: Any, fits: Any, np: Any) -> Any:
    """Times of points that do not fit are not answered."""
    return np.where(fits, value, "" if value.dtype.kind == "U" else np.nan)


def _bound(timed: StepTime, np: Any) -> Any:
    """What bounds the step, point by point."""
    names = np.array([*timed.share_s, "overhead"])
    shares = np.stack(np.broadcast_arrays(*[np.asarray(v, dtype=float) for v in timed.share_s.values()]))
    largest = shares.argmax(axis=0)
    return names[np.where(overhead_rules(timed), len(names) - 1, largest)]


def product(choices: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the given choices."""
    names = list(choices)
    for combination in itertools.product(*choices.values()):
        yield dict(zip(names, combination, strict=True))


def unanswered(axes: WorkAxes) -> dict[str, Any]:
    """Columns of points whose deployment is impossible."""
    import numpy as np

    grid = list(_grid(axes, np))
    shape = np.broadcast_shapes(*(a.shape for a in grid))
    names = (*WORK_AXES, *LOAD_AXES)
    columns = {name: np.broadcast_to(a, shape).reshape(-1) for name, a in zip(names, grid, strict=True)}
    return columns | {"fits": np.zeros(axes.points, dtype=bool)}
