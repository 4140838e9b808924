"""What only moves bytes: lookups, cache writes, and the traffic that ceilings are made of."""

from __future__ import annotations

from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import SLICE, Call, Kernel
from calc.measure.kernels.workspace import Workspace
from calc.measure.runner import NotAvailable


def embedding(case: Case, space: Workspace) -> Kernel:
    """Rows of the table by token, random ones for each argument set."""
    m, n = case.shape["m"], case.shape["n"]
    table = space.rows(n)
    held = min(table.shape[0], case.parameters.get("rows") or table.shape[0])
    tokens = [space.integers(held, m) for _ in range(_index_sets(m, held))]
    out = space.empty(m, n)
    calls: list[Call] = [partial(space.torch.index_select, table, 0, t, out=out) for t in tokens]

    def compare() -> tuple[Any, Any]:
        calls[0]()
        return out[-SLICE:], table[tokens[0][-SLICE:]].float()

    return Kernel(calls, compare, f"torch.index_select from {held} rows", 1, m * n * space.element_bytes)


def cache_write(case: Case, space: Workspace) -> Kernel:
    """Keys and values of the new tokens into slots of a token-major cache (random starts, consecutive slots, as blocks give them)."""
    m, width = case.shape["m"], case.shape["n"]
    table = space.rows(width)
    # The arena's own deviation: what is written stays a fair sample for the cases that read it later.
    new = space.normal(m, width, deviation=space.deviation)
    span = space.torch.arange(m, device=space.facts.torch_name)
    starts = space.integers(max(1, table.shape[0] - m), _index_sets(m, table.shape[0])).tolist()
    calls: list[Call] = [partial(table.index_copy_, 0, (span + s) % table.shape[0], new) for s in starts]

    def compare() -> tuple[Any, Any]:
        calls[0]()
        return table[(starts[0] + m - 1) % table.shape[0]], new[-1].float()

    return Kernel(calls, compare, "Tensor.index_copy_", 1, m * width * space.element_bytes)


def _index_sets(rows: int, held: int) -> int:
    return max(2, min(256, held // max(1, rows)))


def copy(case: Case, space: Workspace) -> Kernel:
    """From one half of the views into the other."""
    views = space.operands(case.shape["elements"])
    half = max(1, len(views) // 2)
    calls: list[Call] = [partial(to.copy_, of) for to, of in zip(views[half : 2 * half], views[:half], strict=False)]
    if not calls:
        raise NotAvailable("no room for two copies")
    return Kernel(calls, None, "Tensor.copy_", 1, 2 * case.shape["elements"] * space.element_bytes)


def read(case: Case, space: Workspace) -> Kernel:
    """A reduction. As fp32 whatever the dtype: its reduction is the fastest plain read that torch has on a CPU."""
    views = [v.view(space.torch.float32) for v in space.operands(case.shape["elements"])]
    calls: list[Call] = [partial(space.torch.sum, v) for v in views]
    return Kernel(calls, None, "torch.sum as fp32", 1, case.shape["elements"] * space.element_bytes)


def write(case: Case, space: Workspace) -> Kernel:
    """A buffer of its own set to one number, part by part so that no part is still in cache when its turn comes again."""
    elements = case.shape["elements"]
    copies = max(2, -(-space.cover_bytes // (elements * space.element_bytes)))
    parts = space.filled(copies * elements).split(elements)
    calls: list[Call] = [partial(part.fill_, 1.5) for part in parts]
    return Kernel(
        calls, lambda: (calls[0]()[-SLICE:], space.torch.full((), 1.5)), "Tensor.fill_", 1, elements * space.element_bytes
    )


def working_set(case: Case, space: Workspace) -> Kernel:
    """The same bytes read again and again: in cache while they fit."""
    view = space.filled(case.shape["elements"]).view(space.torch.float32)
    return Kernel([partial(space.torch.sum, view)], None, "torch.sum as fp32 of one buffer", 1, view.numel() * 4)


def host_copy(case: Case, space: Workspace) -> Kernel:
    """Between page-locked host memory and the device."""
    elements = case.shape["elements"]
    here = space.filled(elements)
    there = space.torch.empty(elements, dtype=space.torch_dtype, pin_memory=True).copy_(here)
    to, of = (here, there) if case.parameters["to"] == "device" else (there, here)
    call: Call = partial(to.copy_, of, non_blocking=True)

    def compare() -> tuple[Any, Any]:
        call()
        getattr(space.torch, space.facts.kind).synchronize()
        return to[-SLICE:].cpu(), of[-SLICE:].cpu().float()

    return Kernel([call], compare, f"Tensor.copy_ to the {case.parameters['to']}, pinned, not blocking")


def empty(case: Case, space: Workspace) -> Kernel:
    """As little work as a kernel can have."""
    one = space.normal(1)
    return Kernel([partial(one.mul_, 1)], None, "Tensor.mul_ of one element")
