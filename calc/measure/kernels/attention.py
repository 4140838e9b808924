"""Attention through torch's scaled_dot_product_attention, with the backend forced and recorded.

Its decode does not split the context over processors as the paged kernels of serving engines do: results carry the engine's name and
do not stand for vLLM or SGLang. Masks that it cannot skip are computed in full.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from importlib import import_module
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import Call, Kernel
from calc.measure.kernels.torch_module import is_out_of_memory
from calc.measure.kernels.workspace import Workspace
from calc.measure.runner import NotAvailable

_BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
#: Those that skip what queries of a chunk do not see.
_LOWER_RIGHT = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION")
_ROWS = 4


def build(case: Case, space: Workspace) -> Kernel:
    """Prefill (causal or masked) or decode attention over keys and values [batch, kv heads, context, head size]."""
    functional = space.torch.nn.functional
    b, new, seen, h, hkv, d, dv = (case.shape[x] for x in ("b", "q", "kv", "h", "hkv", "d", "dv"))
    # Scores of keys from the arena and queries of the inverse deviation are those of N(0, 1) operands.
    query = space.normal(b, h, new, d, deviation=1 / space.deviation)
    shared = case.parameters.get("shared", False)  # values are the first part of the keys (an absorbed latent)
    key_elements, value_elements = b * hkv * seen * d, 0 if shared else b * hkv * seen * dv
    space.charge((b, h, new, dv), space.element_bytes)  # the result, which the call allocates
    caches = space.operands(key_elements + value_elements)
    keys = [kv[:key_elements].view(b, hkv, seen, d) for kv in caches]
    values = [k[..., :dv] if shared else kv[key_elements:].view(b, hkv, seen, dv) for k, kv in zip(keys, caches, strict=True)]
    pairs = list(zip(keys, values, strict=True))
    options: dict[str, Any] = {"enable_gqa": True} if h != hkv else {}

    def calls_with(**more: Any) -> list[Call]:
        return [partial(functional.scaled_dot_product_attention, query, k, v, **options, **more) for k, v in pairs]

    calls, backend, explicit = _choose(case, space, calls_with)

    def compare() -> tuple[Any, Any]:
        rows = range(max(0, new - _ROWS), new)
        with around():
            got = calls[0]()[-1, -1, -len(rows) :]
        k, v = pairs[0][0][-1, -1].float(), pairs[0][1][-1, -1].float()
        scores = query[-1, -1, -len(rows) :].float() @ k.t() / math.sqrt(d)
        if case.parameters["mask"] != "none":
            scores = scores.masked_fill(~visible(case, space, rows), -math.inf)
        return got, scores.softmax(-1) @ v

    def around() -> AbstractContextManager[Any]:
        return force(backend)

    words = f"scaled_dot_product_attention, engine torch-sdpa, backend {backend.lower()}"
    if shared:
        words += ", values are views of the keys"
    if explicit:
        words += ", explicit mask (masked pairs are computed)"
    return Kernel(calls, compare, words, 1, (key_elements + value_elements) * space.element_bytes, around)


def _choose(case: Case, space: Workspace, calls_with: Callable[..., list[Call]]) -> tuple[list[Call], str, bool]:
    """(calls, backend, whether masked pairs are computed) of the mask: without one, causal by the kernel itself where it can, else as
    a tensor. Queries of a chunk are the last of the context, which torch's plain causal flag does not mean."""
    new, seen = case.shape["q"], case.shape["kv"]
    kind = case.parameters["mask"]
    if kind == "none" or (kind == "causal" and new == seen):
        calls = calls_with(**({"is_causal": True} if kind == "causal" else {}))
        return calls, _first_backend(calls[0]), False
    if kind == "causal" and space.facts.kind == "cuda":  # on a CPU torch makes the mask of it
        with suppress(NotAvailable, ImportError, AttributeError):
            bias = import_module("torch.nn.attention.bias").causal_lower_right(new, seen)
            calls = calls_with(attn_mask=bias)
            return calls, _first_backend(calls[0], _LOWER_RIGHT), False
    calls = calls_with(attn_mask=visible(case, space, range(new)))
    return calls, _first_backend(calls[0]), True


def visible(case: Case, space: Workspace, rows: range) -> Any:
    """Which keys the query rows see: the new tokens are the last ones of the context."""
    new, seen = case.shape["q"], case.shape["kv"]
    device = space.facts.torch_name
    limit = case.parameters.get("limit")
    row = space.torch.arange(rows.start, rows.stop, device=device)[:, None]
    key = space.torch.arange(seen, device=device)[None, :]
    if case.parameters["mask"] == "compressed":  # the window's tokens, then entries of ``ratio`` tokens, seen when complete
        near, entry = (key <= row) & (key > row - limit), (key - new + 1) * case.parameters["ratio"] <= row + 1
        return space.torch.where(key < new, near, entry)
    at = row + seen - new
    found = key <= at
    if case.parameters["mask"] == "window":
        return found & (key > at - limit)
    if case.parameters["mask"] == "chunk":
        return found & (key // limit == at // limit)
    return found


def force(backend: str) -> AbstractContextManager[Any]:
    """A context in which torch uses this backend or fails."""
    module = import_module("torch.nn.attention")
    found: AbstractContextManager[Any] = module.sdpa_kernel(getattr(module.SDPBackend, backend))
    return found


def _first_backend(call: Call, names: tuple[str, ...] = _BACKENDS) -> str:
    """The first backend that takes these arguments, fused ones before the materialised form."""
    fault = "none is known"
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns once per reason why a backend declines
                with force(name):
                    call()
            return name
        except (AttributeError, RuntimeError, TypeError) as declined:
            if is_out_of_memory(declined):
                raise
            fault = (str(declined).splitlines() or [type(declined).__name__])[0]
    raise NotAvailable(f"no attention backend takes this shape: {fault}")
