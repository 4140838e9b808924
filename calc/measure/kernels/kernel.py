"""The torch kernels that stand for operators: argument sets to rotate over, a check against float32, and what was called, in words.

Weights are stored as engines store them, [out, in], and used transposed. Activations and outputs are one buffer each: in a real step
the kernel before has just written them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.workspace import Workspace
from calc.measure.runner import NotAvailable

Call = Callable[[], Any]
#: Relative to the largest value of the slice: a few roundings of the output type. fp32 may run as TF32 where the user allows it; fp8
#: products are exact up to their accumulation, which tensor cores cut to about 14 bits, and the rounding of a 16-bit result.
TOLERANCE = {"bf16": 0.03, "fp16": 0.01, "fp32": 0.005, "fp8": 0.05, "int8": 1e-6}
#: Rows and columns of a result that are compared.
SLICE = 32
#: What torch has no fused kernel for.
PLAIN = "plain torch, no fused kernel"


@dataclass
class Kernel:
    """``calls`` do the same work on different copies of the cold operand. ``compare`` gives (result, float32 reference) of a slice.
    ``around`` is entered while calls are timed (it forces an attention backend). ``precision`` is the type that sets the tolerance
    where it is not the run's."""

    calls: list[Call]
    compare: Callable[[], tuple[Any, Any]] | None
    words: str
    launches: int = 1
    operand_bytes: int = 0  # of one copy; 0: nothing to rotate
    around: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)
    precision: str | None = None


#: Kernel of a case → the module and function that build it, imported when the first case asks: ``f(case, space) -> Kernel``.
BUILDERS = {
    "gemm": "matrix.gemm",
    "grouped_gemm": "matrix.grouped_gemm",
    "scaled_gemm": "quantised.gemm",
    "experts": "experts.experts",
    "scaled_experts": "quantised.experts",
    "router_topk": "routing.choose",
    "moe_permute": "routing.permute",
    "moe_combine": "routing.combine",
    "sampling": "routing.sample",
    "attention": "attention.build",
    "index_score": "index.score",
    "block_score": "index.block_score",
    "index_topk": "index.select",
    "compressor": "index.compress",
    "rms_norm": "vector.norm",
    "layer_norm": "vector.norm",
    "part_norms": "vector.part_norms",
    "gated_norm": "vector.gated_norm",
    "activation": "vector.activation",
    "gated_activation": "vector.gated_activation",
    "rope": "rotary.build",
    "qk_norm": "rotary.build",
    "qk_norm_rope": "rotary.build",
    "conv1d": "recurrent.convolution",
    "token_shift": "recurrent.shift",
    "ssd_scan": "recurrent.scan",
    "recurrence": "scan.recurrence",
    "selective_scan": "scan.selective_scan",
    "delta_step": "delta.step",
    "delta_chunks": "delta.chunks",
    "decay_step": "delta.step",
    "decay_chunks": "delta.chunks",
    "embedding": "memory.embedding",
    "kv_cache_write": "memory.cache_write",
    "copy": "memory.copy",
    "sum": "memory.read",
    "write": "memory.write",
    "working_set": "memory.working_set",
    "host_copy": "memory.host_copy",
    "empty": "memory.empty",
    "chain": "chain.build",
}


def build(case: Case, space: Workspace) -> Kernel:
    """The kernel of a case. Raises NotAvailable or OutOfMemory."""
    place = BUILDERS.get(case.kernel)
    if place is None:
        raise NotAvailable(f"no kernel {case.kernel}")
    module, _, name = place.partition(".")
    builder: Callable[[Case, Workspace], Kernel] = getattr(import_module(f"calc.measure.kernels.{module}"), name)
    space.activation_bytes = 0
    return builder(case, space)


def deviation(kernel: Kernel, dtype: str) -> float:
    """Largest deviation of the slice from its reference as a share of the tolerance; 0 where there is nothing to compare."""
    if kernel.compare is None:
        return 0.0
    got, wanted = kernel.compare()
    scale = max(float(wanted.abs().max()), 1e-30)
    return float((got.float() - wanted).abs().max()) / scale / TOLERANCE[kernel.precision or dtype]
