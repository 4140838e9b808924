"""The torch kernels that stand for operators: argument sets to rotate over, a check against float32, and what was called, in words.

Weights are stored as engines store them, [out, in], and used transposed. Activations and outputs are one buffer each: in a real step
the kernel before has just written them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from calc.measure.cases import Case
from calc.measure.runner import NotAvailable
from calc.measure.workspace import Workspace

Call = Callable[[], Any]
#: Relative to the largest value of the slice: a few roundings of the output type.
TOLERANCE = {"bf16": 0.03, "fp16": 0.01, "fp32": 0.005}  # fp32 may run as TF32 where the user allows it
_SLICE = 32


@dataclass
class Kernel:
    """``calls`` do the same work on different copies of the cold operand. ``compare`` gives (result, float32 reference) of a slice.
    ``around`` is entered while calls are timed (it forces an attention backend)."""

    calls: list[Call]
    compare: Callable[[], tuple[Any, Any]] | None
    words: str
    launches: int = 1
    operand_bytes: int = 0  # of one copy; 0: nothing to rotate
    around: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)


Builder = Callable[[Case, Workspace], Kernel]


def build(case: Case, space: Workspace) -> Kernel:
    """The kernel of a case. Raises NotAvailable or OutOfMemory."""
    builder = BUILDERS.get(case.kernel)
    if builder is None:
        raise NotAvailable(f"no kernel {case.kernel}")
    space.activation_bytes = 0
    return builder(case, space)


def deviation(kernel: Kernel, dtype: str) -> float:
    """Largest deviation of the slice from its reference as a share of the tolerance; 0 where there is nothing to compare."""
    if kernel.compare is None:
        return 0.0
    got, wanted = kernel.compare()
    scale = max(float(wanted.abs().max()), 1e-30)
    return float((got.float() - wanted).abs().max()) / scale / TOLERANCE[dtype]


def _gemm(case: Case, space: Workspace) -> Kernel:
    m, n, k = (case.shape[x] for x in "mnk")
    weights = space.operands(n, k)
    rows, out = space.normal(m, k), space.empty(m, n)
    calls: list[Call] = [partial(space.torch.mm, rows, w.t(), out=out) for w in weights]

    def compare() -> tuple[Any, Any]:
        calls[0]()
        wanted = rows[-_SLICE:].float() @ weights[0][-_SLICE:].float().t()
        return out[-_SLICE:, -_SLICE:], wanted

    return Kernel(calls, compare, "torch.mm, weights [n, k] transposed", 1, n * k * space.element_bytes)


def _grouped_gemm(case: Case, space: Workspace) -> Kernel:
    m, n, k, copies = (case.shape[x] for x in ("m", "n", "k", "copies"))
    weights = space.operands(copies, n, k)
    rows, out = space.normal(copies, m, k), space.empty(copies, m, n)
    calls: list[Call] = [partial(space.torch.bmm, rows, w.transpose(1, 2), out=out) for w in weights]

    def compare() -> tuple[Any, Any]:
        calls[0]()
        wanted = rows[-1, -_SLICE:].float() @ weights[0][-1, -_SLICE:].float().t()
        return out[-1, -_SLICE:, -_SLICE:], wanted

    return Kernel(calls, compare, "torch.bmm, weights [copies, n, k] transposed", 1, copies * n * k * space.element_bytes)


def _norm(case: Case, space: Workspace) -> Kernel:
    """Residual addition and normalisation; engines fuse the two, torch runs them one after the other."""
    torch, functional = space.torch, space.torch.nn.functional
    m, width = case.shape["m"], case.shape["n"] // 2  # the operator's n counts input and residual
    gains = space.operands(2, width)
    hidden, residual, total = space.normal(m, width), space.normal(m, width), space.empty(m, width)
    layer = case.kernel == "layer_norm"
    if layer:
        bias = case.parameters.get("bias")
        finish = [partial(functional.layer_norm, total, (width,), g[0], g[1] if bias else None, 1e-6) for g in gains]
    else:
        finish = [partial(functional.rms_norm, total, (width,), g[0], 1e-6) for g in gains]

    def run(normalise: Call) -> Any:
        torch.add(hidden, residual, out=total)
        return normalise()

    def compare() -> tuple[Any, Any]:
        got = calls[0]()[-_SLICE:]
        x, g = total[-_SLICE:].float(), gains[0].float()
        if layer:
            x = x - x.mean(-1, keepdim=True)
        wanted = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * g[0]
        return got, wanted + g[1] if layer and case.parameters.get("bias") else wanted

    calls: list[Call] = [partial(run, f) for f in finish]
    name = "layer_norm" if layer else "rms_norm"
    return Kernel(calls, compare, f"torch.add, functional.{name}", 2, 2 * width * space.element_bytes)


def _activation(case: Case, space: Workspace) -> Kernel:
    functional = space.torch.nn.functional
    m, n = case.shape["m"], case.shape["n"]
    hidden = space.normal(m, n)
    if case.kernel == "activation":
        call: Call = partial(functional.gelu, hidden)
        return Kernel([call], lambda: (call()[-_SLICE:], functional.gelu(hidden[-_SLICE:].float())), "functional.gelu")
    gate, up, out = hidden[:, : n // 2], hidden[:, n // 2 :], space.empty(m, n // 2)

    def run() -> Any:
        return space.torch.mul(functional.silu(gate), up, out=out)

    def compare() -> tuple[Any, Any]:
        return run()[-_SLICE:], functional.silu(gate[-_SLICE:].float()) * up[-_SLICE:].float()

    return Kernel([run], compare, "functional.silu, torch.mul", 2)


def _embedding(case: Case, space: Workspace) -> Kernel:
    m, n = case.shape["m"], case.shape["n"]
    table = space.rows(n)
    held = min(table.shape[0], case.parameters.get("rows") or table.shape[0])
    tokens = [space.integers(held, m) for _ in range(_index_sets(m, held))]
    out = space.empty(m, n)
    calls: list[Call] = [partial(space.torch.index_select, table, 0, t, out=out) for t in tokens]

    def compare() -> tuple[Any, Any]:
        calls[0]()
        return out[-_SLICE:], table[tokens[0][-_SLICE:]].float()

    return Kernel(calls, compare, f"torch.index_select from {held} rows", 1, m * n * space.element_bytes)


def _kv_cache_write(case: Case, space: Workspace) -> Kernel:
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


def _copy(case: Case, space: Workspace) -> Kernel:
    views = space.operands(case.shape["elements"])
    half = max(1, len(views) // 2)
    calls: list[Call] = [partial(to.copy_, of) for to, of in zip(views[half : 2 * half], views[:half], strict=False)]
    if not calls:
        raise NotAvailable("no room for two copies")
    return Kernel(calls, None, "Tensor.copy_", 1, 2 * case.shape["elements"] * space.element_bytes)


def _sum(case: Case, space: Workspace) -> Kernel:
    # Read as fp32 whatever the dtype: its reduction is the fastest plain read that torch has on a CPU.
    views = [v.view(space.torch.float32) for v in space.operands(case.shape["elements"])]
    calls: list[Call] = [partial(space.torch.sum, v) for v in views]
    return Kernel(calls, None, "torch.sum as fp32", 1, case.shape["elements"] * space.element_bytes)


def _empty(case: Case, space: Workspace) -> Kernel:
    one = space.normal(1)
    return Kernel([partial(one.mul_, 1)], None, "Tensor.mul_ of one element")


def _attention(case: Case, space: Workspace) -> Kernel:
    from calc.measure import attention_kernels

    return attention_kernels.build(case, space)


def _experts(case: Case, space: Workspace) -> Kernel:
    from calc.measure import expert_kernels

    return expert_kernels.build(case, space)


def _recurrent(name: str) -> Builder:
    def made(case: Case, space: Workspace) -> Kernel:
        from calc.measure import recurrent_kernels

        builder: Builder = getattr(recurrent_kernels, name)
        return builder(case, space)

    return made


def _chain(case: Case, space: Workspace) -> Kernel:
    from calc.measure import chain_kernels

    return chain_kernels.build(case, space)


def _working_set(case: Case, space: Workspace) -> Kernel:
    """The same bytes read again and again: in cache while they fit."""
    view = space.operands(case.shape["elements"])[0].view(space.torch.float32)
    return Kernel([partial(space.torch.sum, view)], None, "torch.sum as fp32 of one buffer", 1, view.numel() * 4)


def _rotary(case: Case, space: Workspace) -> Kernel:
    from calc.measure import rotary_kernels

    return rotary_kernels.build(case, space)


BUILDERS: dict[str, Builder] = {
    "gemm": _gemm,
    "grouped_gemm": _grouped_gemm,
    "chain": _chain,
    "conv1d": _recurrent("convolution"),
    "ssd_scan": _recurrent("scan"),
    "delta_step": _recurrent("delta_step"),
    "experts": _experts,
    "working_set": _working_set,
    "attention": _attention,
    "rms_norm": _norm,
    "layer_norm": _norm,
    "rope": _rotary,
    "qk_norm": _rotary,
    "qk_norm_rope": _rotary,
    "kv_cache_write": _kv_cache_write,
    "activation": _activation,
    "gated_activation": _activation,
    "embedding": _embedding,
    "copy": _copy,
    "sum": _sum,
    "empty": _empty,
}
