"""Products of fp8 and int8 operands. torch has them under public names since 2.13 and under private ones before.

Activations are quantised already: engines do that in the kernel before. A function that this torch or this device lacks fails the
case by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.device.device import DeviceFacts
from calc.measure.kernels.experts import loads, routing_words
from calc.measure.kernels.kernel import SLICE, Call, Kernel
from calc.measure.kernels.torch_module import refusal
from calc.measure.kernels.workspace import DEVIATIONS_IN_RANGE, RANGE, Workspace
from calc.measure.runner import NotAvailable

#: A case above this share of values at the ends of their range is wrong: clipped products are another calculation.
MOST_SATURATED = 0.01
#: torch's int8 product on CUDA takes more than 16 rows.
_FEWEST_ROWS = 32
_BLOCK = 128
#: Scales by weight format, the format's own first: of blocks, of rows and columns, of whole tensors.
_RECIPES = {"fp8-block": ("block", "row", "tensor"), "fp8-channel": ("row", "tensor"), "fp8": ("tensor", "row")}


@cache
def scaled_product(torch: Any) -> Callable[..., Any] | None:
    """``f(rows, weight, scale_rows, scale_weight, recipe, dtype)`` for fp8, looked up once; None where torch has none."""
    functional = torch.nn.functional
    public, kinds = getattr(functional, "scaled_mm", None), getattr(functional, "ScalingType", None)
    if public is not None and kinds is not None:
        names = {
            "block": (kinds.BlockWise1x128, kinds.BlockWise128x128),
            "row": (kinds.RowWise, kinds.RowWise),
            "tensor": (kinds.TensorWise, kinds.TensorWise),
        }

        def call(rows: Any, weight: Any, scale_rows: Any, scale_weight: Any, recipe: str, dtype: Any) -> Any:
            own, other = names[recipe]
            return public(rows, weight, scale_rows, own, scale_weight, other, output_dtype=dtype)

        return call
    private = getattr(torch, "_scaled_mm", None)
    if private is None:
        return None

    def hidden(rows: Any, weight: Any, scale_rows: Any, scale_weight: Any, recipe: str, dtype: Any) -> Any:
        return private(rows, weight, scale_rows, scale_weight, out_dtype=dtype)

    return hidden


def lacking(torch: Any, facts: DeviceFacts, kind: str) -> str | None:
    """Why this device cannot multiply in fp8 or int8; None where it can. Tries one small product."""
    try:
        place = {"device": facts.torch_name}
        if kind == "int8":
            one = torch.ones((_FEWEST_ROWS, 64), dtype=torch.int8, **place)
            torch._int_mm(one, one.t())
            return None
        product = scaled_product(torch)
        if product is None:
            return f"torch {torch.__version__} has no scaled product"
        one = torch.ones((_FEWEST_ROWS, 64), **place).to(torch.float8_e4m3fn)
        product(one, one.t(), torch.ones((), **place), torch.ones((), **place), "tensor", torch.bfloat16)
    except (AttributeError, RuntimeError, TypeError, ValueError) as declined:
        return (str(declined).splitlines() or [type(declined).__name__])[0][:200]
    return None


def gemm(case: Case, space: Workspace) -> Kernel:
    """[m, k] times the weight [n, k] transposed, both quantised."""
    m, n, k = (case.shape[x] for x in "mnk")
    kind = case.dtype
    weights, unit = space.quantised(kind, n, k)
    saturated = _saturation(space, kind)
    if kind == "int8":
        padded = m if space.facts.kind == "cpu" else max(m, _FEWEST_ROWS)
        rows = space.narrow(kind, padded, k)
        space.charge((padded, n), 4)
        calls: list[Call] = [partial(space.torch._int_mm, rows, w.t()) for w in weights]
        words = "torch._int_mm, result in int32" + (f", {m} rows padded to {padded}" if padded > m else "")
        scale = 1.0
    else:
        rows = space.narrow(kind, m, k)
        space.charge((m, n), space.element_bytes)
        product, recipe = _first_recipe(space, rows, weights[0], unit, case.parameters["format"])
        calls = [partial(product, rows, w.t()) for w in weights]
        words = f"scaled_mm, {_scaled_by(recipe, case)}"
        scale = unit * DEVIATIONS_IN_RANGE / RANGE[kind]

    def compare() -> tuple[Any, Any]:
        got = calls[0]()[-SLICE:, -SLICE:]
        return got, rows[-SLICE:].float() @ weights[0][-SLICE:].float().t() * scale

    return Kernel(calls, compare, f"{words}, {saturated}", 1, n * k, precision=kind)


def experts(case: Case, space: Workspace) -> Kernel:
    """Rows of each expert times its weights, both quantised: one grouped product where torch has it, else a loop. ``copies`` of a
    weight are groups with as many rows each."""
    shape = case.shape
    if "copies" in shape:
        active, spans = shape["copies"], [(i * shape["m"], (i + 1) * shape["m"]) for i in range(shape["copies"])]
        spread = "as many rows for each"
    else:
        active, spans = shape["active"], list(pairwise(accumulate(loads(case), initial=0)))
        spread = routing_words(case)
    n, k, kind = shape["n"], shape["k"], case.dtype
    weights, unit = space.quantised(kind, active, n, k)
    if kind == "int8":
        fewest = 1 if space.facts.kind == "cpu" else _FEWEST_ROWS
        spans = [(start, max(end, start + fewest)) for start, end in spans]
        words, scale = "torch._int_mm", 1.0
        product: Callable[[Any, Any], Any] = space.torch._int_mm
        rows = space.narrow(kind, spans[-1][1], k)
    else:
        rows = space.narrow(kind, spans[-1][1], k)
        scale = unit * DEVIATIONS_IN_RANGE / RANGE[kind]
        grouped = _grouped(space, rows, weights, unit, [end for _, end in spans])
        if grouped is not None:
            words = f"torch scaled_grouped_mm, one call, {_scaled_by('row', case)}, {spread}"
            return _of_experts(case, space, grouped, (rows, weights[0], scale), words, 1)
        first, last = max(spans, key=lambda span: span[1] - span[0])
        wanted = "fp8" if case.parameters["format"] == "fp8" else "fp8-channel"  # blocks of rows cannot be cut at experts
        product, recipe = _first_recipe(space, rows[first:last], weights[0][0], unit, wanted)
        words = f"scaled_mm, {_scaled_by(recipe, case)}"

    def run(weight: Any) -> list[Any]:
        return [product(rows[start:end], weight[i].t()) for i, (start, end) in enumerate(spans)]

    calls: list[Call] = [partial(run, w) for w in weights]
    return _of_experts(case, space, calls, (rows, weights[0], scale), f"{words}, a loop over {active} weights, {spread}", active)


def _of_experts(case: Case, space: Workspace, calls: list[Call], data: tuple[Any, Any, float], words: str, launches: int) -> Kernel:
    """The kernel of either form; the last row is compared."""
    rows, weight, scale = data
    space.charge((rows.shape[0], weight.shape[1]), 4)

    def compare() -> tuple[Any, Any]:
        got = calls[0]()[-1]
        got = got[-1] if got.dim() > 1 else got
        return got[-SLICE:], rows[-1].float() @ weight[-1, -SLICE:].float().t() * scale

    words = f"{words}, {_saturation(space, case.dtype)}"
    return Kernel(calls, compare, words, launches, weight.numel(), precision=case.dtype)


def _grouped(space: Workspace, rows: Any, weights: list[Any], unit: float, ends: list[int]) -> list[Call] | None:
    """Calls of torch's grouped product with scales by row; None where it, or this device for it, is missing."""
    functional = space.torch.nn.functional
    function, kinds = getattr(functional, "scaled_grouped_mm", None), getattr(functional, "ScalingType", None)
    if function is None or kinds is None or space.dtype != "bf16":
        return None
    place = {"device": space.facts.torch_name}
    own = space.torch.full((rows.shape[0],), DEVIATIONS_IN_RANGE / RANGE["fp8"], **place)
    other = space.torch.full(tuple(weights[0].shape[:2]), unit, **place)
    offsets = space.torch.tensor(ends, dtype=space.torch.int32, **place)
    calls: list[Call] = [
        partial(function, rows, w.transpose(1, 2), own, kinds.RowWise, other, kinds.RowWise, offs=offsets) for w in weights
    ]
    return None if refusal(calls[0]) else calls


def _first_recipe(space: Workspace, rows: Any, weight: Any, unit: float, wanted: str) -> tuple[Callable[[Any, Any], Any], str]:
    """(product of rows and a transposed weight, its scales in a word): the first that this device takes, the format's own before
    coarser ones. The cost differs by the scales alone, and the words say which ran."""
    found = scaled_product(space.torch)
    if found is None:
        raise NotAvailable(f"torch {space.torch.__version__} has no scaled product")
    fault: str | None = None
    for recipe in _RECIPES[wanted]:
        own = _scales(space, rows.shape, DEVIATIONS_IN_RANGE / RANGE["fp8"], recipe, weight=False)
        other = _scales(space, weight.shape, unit, recipe, weight=True)

        def product(a: Any, b: Any, own: Any = own, other: Any = other, recipe: str = recipe) -> Any:
            return found(a, b, own if recipe == "tensor" else own[: a.shape[0]], other, recipe, space.torch_dtype)

        fault = refusal(partial(product, rows, weight.t()))
        if fault is None:
            return product, recipe
    raise NotAvailable(f"no scaled product takes this shape: {fault}")


def _scales(space: Workspace, shape: Any, value: float, recipe: str, *, weight: bool) -> Any:
    """Scales in fp32, all of one value: their number costs time, their values none."""
    outer, inner = shape
    sizes: dict[str, tuple[int, ...]] = {
        "tensor": (),
        "row": (1, outer) if weight else (outer, 1),
        # Along k first, as the library wants blocks of a transposed weight and of rows.
        "block": (-(-inner // _BLOCK), -(-outer // _BLOCK)) if weight else (outer, -(-inner // _BLOCK)),
    }
    full = space.torch.full(sizes[recipe], value, dtype=space.torch.float32, device=space.facts.torch_name)
    return full.t().contiguous().t() if recipe == "block" and not weight else full


def _scaled_by(recipe: str, case: Case) -> str:
    """The scales in words, with those of the format where they are others."""
    own = _RECIPES[case.parameters["format"]][0]
    return f"scales by {recipe}" + ("" if recipe == own else f" instead of {own}")


def _saturation(space: Workspace, kind: str) -> str:
    """The share of saturated values in words. Raises NotAvailable where it makes the case another calculation."""
    share = space.saturated_share(kind)
    if share > MOST_SATURATED:
        raise NotAvailable(f"{share:.1%} of the {kind} values are saturated")
    return f"{share:.3%} of values saturated"
