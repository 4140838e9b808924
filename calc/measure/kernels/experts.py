"""Expert products: one grouped call where torch has it, else a loop over the experts; the words say which.

Rows are balanced over the experts that a step hits, or follow the shares of a Zipf law where the case has a skew.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import Call, Kernel
from calc.measure.kernels.torch_module import refusal
from calc.measure.kernels.workspace import Workspace
from calc.operators.routing import inclusion_probabilities

_COLUMNS = 32


def loads(case: Case) -> list[int]:
    """Rows of each expert that is hit, the fullest first where routing is skewed; at least one each, and all rows in total.

    The expected shares, not a random draw: a case is the same work in every run.
    """
    rows, active = case.shape["rows"], case.shape["active"]
    skew = case.parameters.get("skew", 0.0)
    if not skew:
        return [rows * (i + 1) // active - rows * i // active for i in range(active)]
    popular = inclusion_probabilities(case.parameters["experts"], case.parameters["per_token"], skew)[:active]
    spare, total = rows - active, sum(popular)
    ends = [round(spare * part / total) for part in accumulate(popular, initial=0.0)]
    return [1 + end - start for start, end in pairwise(ends)]


def routing_words(case: Case) -> str:
    """How rows are spread, for the record."""
    skew = case.parameters.get("skew", 0.0)
    return f"routing by Zipf's law, exponent {skew:g}, largest {max(loads(case))} rows" if skew else "balanced routing"


def experts(case: Case, space: Workspace) -> Kernel:
    """Products of ``rows`` rows with the weights of ``active`` experts, [experts, n, k] transposed."""
    rows, active, n, k = (case.shape[x] for x in ("rows", "active", "n", "k"))
    weights = space.operands(active, n, k)
    hidden, out = space.normal(rows, k), space.empty(rows, n)
    edges = list(accumulate(loads(case), initial=0))
    calls, words, launches = _grouped(space, hidden, weights, edges[1:]), "torch grouped_mm, one call", 1
    if calls is None:
        calls = [partial(_loop, space.torch, hidden, w, out, list(pairwise(edges))) for w in weights]
        words, launches = f"torch.mm, a loop over {active} experts", active
    chosen = calls

    def compare() -> tuple[Any, Any]:
        got = chosen[0]()
        return got[-1, -_COLUMNS:], hidden[-1].float() @ weights[0][-1, -_COLUMNS:].float().t()

    return Kernel(chosen, compare, f"{words}, {routing_words(case)}", launches, active * n * k * space.element_bytes)


def _loop(torch: Any, hidden: Any, weight: Any, out: Any, spans: list[tuple[int, int]]) -> Any:
    for expert, (start, end) in enumerate(spans):
        torch.mm(hidden[start:end], weight[expert].t(), out=out[start:end])
    return out


def _grouped(space: Workspace, hidden: Any, weights: list[Any], ends: list[int]) -> list[Call] | None:
    """Calls of the grouped product; None where this torch, device or type has none (on a CPU torch itself loops)."""
    function = getattr(space.torch.nn.functional, "grouped_mm", None)
    if function is None or space.dtype != "bf16" or space.facts.kind == "cpu":
        return None
    offsets = space.torch.tensor(ends, dtype=space.torch.int32, device=space.facts.torch_name)
    calls: list[Call] = [partial(function, hidden, w.transpose(1, 2), offs=offsets) for w in weights]
    return None if refusal(calls[0]) else calls
