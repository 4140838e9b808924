"""Expert products: one grouped call where torch has it, else a loop over the experts; the words say which.

Routing is balanced: the rows of the step spread evenly over the experts that it hits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from calc.measure.cases import Case
from calc.measure.kernels import Call, Kernel
from calc.measure.torch_module import is_out_of_memory
from calc.measure.workspace import Workspace


def build(case: Case, space: Workspace) -> Kernel:
    """Products of ``rows`` rows with the weights of ``active`` experts, [experts, n, k] transposed."""
    rows, active, n, k = (case.shape[x] for x in ("rows", "active", "n", "k"))
    weights = space.operands(active, n, k)
    hidden, out = space.normal(rows, k), space.empty(rows, n)
    ends = [rows * (i + 1) // active for i in range(active)]
    starts = [0, *ends[:-1]]
    calls, words, launches = _grouped(space, hidden, weights, ends), "torch grouped_mm, one call", 1
    if calls is None:
        calls = [partial(_loop, space.torch, hidden, w, out, list(zip(starts, ends, strict=True))) for w in weights]
        words, launches = f"torch.mm, a loop over {active} experts", active
    chosen = calls

    def compare() -> tuple[Any, Any]:
        got = chosen[0]()
        return got[-1, -32:], hidden[-1].float() @ weights[0][-1, -32:].float().t()

    return Kernel(chosen, compare, f"{words}, balanced routing", launches, active * n * k * space.element_bytes)


def _loop(torch: Any, hidden: Any, weight: Any, out: Any, spans: list[tuple[int, int]]) -> Any:
    for expert, (start, end) in enumerate(spans):
        if end > start:
            torch.mm(hidden[start:end], weight[expert].t(), out=out[start:end])
    return out


def _grouped(space: Workspace, hidden: Any, weights: list[Any], ends: list[int]) -> list[Call] | None:
    """Calls of the grouped product; None where this torch, device or type has none."""
    function = getattr(space.torch.nn.functional, "grouped_mm", None)
    if function is None or space.dtype != "bf16" or space.facts.kind == "cpu":
        return None
    offsets = space.torch.tensor(ends, dtype=space.torch.int32, device=space.facts.torch_name)
    calls: list[Call] = [partial(function, hidden, w.transpose(1, 2), offs=offsets) for w in weights]
    try:
        calls[0]()
    except (RuntimeError, TypeError, ValueError) as declined:
        if is_out_of_memory(declined):
            raise
        return None
    return calls
