"""Steps of other sizes that the longer suites add: a fit needs rows from one token to many, and smooth models miss tile edges."""

from __future__ import annotations

from dataclasses import dataclass

from calc.operators import work as step_work
from calc.operators.work import Work

ROW_BY_ROW = ("norm", "elementwise", "embedding")


@dataclass(frozen=True, slots=True)
class Grid:
    """Batches of further decode steps, prompt lengths of further prefills, and batches (mostly just over a tile edge) at which only
    matrix products are timed; ``rows``: those at which only the operators are timed that work row by row, since a host spreads small
    calls over fewer threads. ``chunks`` are (new, cached) tokens of a prompt that comes in parts: its attention is timed.
    ``composites``: a layer and a stack too; ``sampling``: a sampler's first kernels. ``skews`` are exponents of Zipf's law by which
    experts are chosen beside the balanced draw. ``working_sets`` are bytes that a plain read is timed over."""

    decode_batches: tuple[int, ...] = ()
    prefill_lengths: tuple[int, ...] = ()
    edges: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()
    working_sets: tuple[int, ...] = ()  # bytes
    composites: bool = False
    skews: tuple[float, ...] = ()
    sampling: bool = False

    def steps(self, context_len: int) -> list[tuple[Work, tuple[str, ...]]]:
        """Each step with the operator classes to take from it (empty: all)."""
        found: list[tuple[Work, tuple[str, ...]]] = [(step_work.decode(b, context_len), ()) for b in self.decode_batches]
        found += [(step_work.prefill(1, n), ()) for n in self.prefill_lengths]
        found += [(step_work.prefill(1, new + cached, cached), ("attention",)) for new, cached in self.chunks]
        found += [(step_work.decode(b, context_len), ("gemm",)) for b in self.edges]
        return found + [(step_work.decode(b, context_len), ROW_BY_ROW) for b in self.rows]


def _sets(first: int, last: int, step: int) -> tuple[int, ...]:
    """Powers of two."""
    return tuple(1 << e for e in range(first, last + 1, step))


#: The popularity of experts by Zipf's law proper: the k-th of them is chosen 1/k as often as the first.
_SKEWS = (1.0,)
#: By suite, on a CPU and on an accelerator: a product of 4096 rows takes a CPU seconds.
_CPU = {
    "quick": Grid(edges=(16,), working_sets=_sets(20, 29, 3), skews=_SKEWS),
    "standard": Grid(
        (4, 16, 64), (32, 128), (17, 65), (2, 8, 24, 48, 96, 256),
        ((32, 224), (64, 960), (128, 384), (256, 256)), _sets(18, 28, 2), composites=True, skews=_SKEWS, sampling=True,
    ),
    "full": Grid(
        (2, 4, 8, 16, 32, 64, 128), (32, 64, 128, 256, 1024), (17, 33, 65, 129), (24, 48, 96, 192),
        ((64, 960), (128, 384), (256, 256), (256, 3840)), _sets(17, 29, 1), composites=True, skews=_SKEWS, sampling=True,
    ),
}  # fmt: skip
_ACCELERATOR = {
    "quick": Grid(edges=(64,), working_sets=_sets(20, 32, 3), skews=_SKEWS),
    "standard": Grid(
        (4, 16, 64, 128), (256, 2048), (17, 65, 129), (), ((512, 3584), (2048, 6144)), (*_sets(20, 32, 2), 1 << 33),
        composites=True, skews=_SKEWS, sampling=True,
    ),
    "full": Grid(
        (2, 4, 8, 16, 32, 64, 128, 256), (256, 1024, 2048, 4096, 8192, 16384), (17, 33, 65, 129, 257), (),
        ((512, 3584), (2048, 6144), (2048, 14336)), _sets(20, 33, 1), composites=True, skews=_SKEWS, sampling=True,
    ),
}  # fmt: skip


def for_suite(suite: str, kind: str) -> Grid:
    """What a suite adds on a kind of device to the two steps of the comparison."""
    return (_CPU if kind == "cpu" else _ACCELERATOR).get(suite, Grid())
