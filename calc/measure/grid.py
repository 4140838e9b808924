"""Steps of other sizes that the longer suites add: a fit needs rows from one token to many, and smooth models miss tile edges."""

from __future__ import annotations

from dataclasses import dataclass

from calc.operators import work as step_work
from calc.operators.work import Work


@dataclass(frozen=True, slots=True)
class Grid:
    """Batches of further decode steps, prompt lengths of further prefills, and batches just over a tile edge, at which only
    matrix products are timed. ``composites``: a layer and a stack too. ``working_sets`` are bytes that a plain read is timed over."""

    decode_batches: tuple[int, ...] = ()
    prefill_lengths: tuple[int, ...] = ()
    edges: tuple[int, ...] = ()
    working_sets: tuple[int, ...] = ()  # bytes
    composites: bool = False

    def steps(self, context_len: int) -> list[tuple[Work, tuple[str, ...]]]:
        """Each step with the operator classes to take from it (empty: all)."""
        found: list[tuple[Work, tuple[str, ...]]] = [(step_work.decode(b, context_len), ()) for b in self.decode_batches]
        found += [(step_work.prefill(1, n), ()) for n in self.prefill_lengths]
        return found + [(step_work.decode(b, context_len), ("gemm",)) for b in self.edges]


def _sets(first: int, last: int, step: int) -> tuple[int, ...]:
    """Powers of two."""
    return tuple(1 << e for e in range(first, last + 1, step))


#: By suite, on a CPU and on an accelerator: a product of 4096 rows takes a CPU seconds.
_CPU = {
    "standard": Grid((4, 16, 64), (32, 128), (17, 65), _sets(18, 28, 2), composites=True),
    "full": Grid((2, 4, 8, 16, 32, 64, 128), (32, 64, 128, 256, 1024), (17, 33, 65, 129), _sets(17, 29, 1), composites=True),
}
_ACCELERATOR = {
    "standard": Grid((4, 16, 64, 128), (256, 2048), (17, 65, 129), _sets(20, 32, 2), composites=True),
    "full": Grid(
        (2, 4, 8, 16, 32, 64, 128, 256), (256, 1024, 2048, 4096, 8192), (17, 33, 65, 129, 257), _sets(20, 33, 1), composites=True
    ),
}


def for_suite(suite: str, kind: str) -> Grid:
    """The steps that a suite adds on a kind of device; none for ``quick``."""
    return (_CPU if kind == "cpu" else _ACCELERATOR).get(suite, Grid())
