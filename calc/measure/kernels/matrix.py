"""Matrix products in a plain type."""

from __future__ import annotations

from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import SLICE, Call, Kernel
from calc.measure.kernels.workspace import Workspace


def gemm(case: Case, space: Workspace) -> Kernel:
    """[m, k] times the weight [n, k] transposed."""
    m, n, k = (case.shape[x] for x in "mnk")
    weights = space.operands(n, k)
    rows, out = space.normal(m, k), space.empty(m, n)
    calls: list[Call] = [partial(space.torch.mm, rows, w.t(), out=out) for w in weights]

    def compare() -> tuple[Any, Any]:
        calls[0]()
        wanted = rows[-SLICE:].float() @ weights[0][-SLICE:].float().t()
        return out[-SLICE:, -SLICE:], wanted

    return Kernel(calls, compare, "torch.mm, weights [n, k] transposed", 1, n * k * space.element_bytes)


def grouped_gemm(case: Case, space: Workspace) -> Kernel:
    """The same for ``copies`` groups of rows with a weight each."""
    m, n, k, copies = (case.shape[x] for x in ("m", "n", "k", "copies"))
    weights = space.operands(copies, n, k)
    rows, out = space.normal(copies, m, k), space.empty(copies, m, n)
    calls: list[Call] = [partial(space.torch.bmm, rows, w.transpose(1, 2), out=out) for w in weights]

    def compare() -> tuple[Any, Any]:
        calls[0]()
        wanted = rows[-1, -SLICE:].float() @ weights[0][-1, -SLICE:].float().t()
        return out[-1, -SLICE:, -SLICE:], wanted

    return Kernel(calls, compare, "torch.bmm, weights [copies, n, k] transposed", 1, copies * n * k * space.element_bytes)
