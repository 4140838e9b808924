"""Attention through torch's scaled_dot_product_attention, with the backend forced and recorded.

Its decode does not split the context over processors as the paged kernels of serving engines do: results carry the engine's name and
do not stand for vLLM or SGLang. Masks that it cannot skip are computed in full.
"""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from typing import Any

from calc.measure.cases import Case
from calc.measure.kernels import Call, Kernel
from calc.measure.runner import NotAvailable
from calc.measure.torch_module import is_out_of_memory
from calc.measure.workspace import Workspace

_BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
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
    options: dict[str, Any] = {}
    mask = None
    if case.parameters["mask"] == "causal" and new == seen:
        options["is_causal"] = True
    elif case.parameters["mask"] != "none":
        mask = _visible(case, space, range(new))
        options["attn_mask"] = mask
    if h != hkv:
        options["enable_gqa"] = True
    calls: list[Call] = [partial(functional.scaled_dot_product_attention, query, k, v, **options) for k, v in pairs]
    backend = _first_backend(calls[0])

    def compare() -> tuple[Any, Any]:
        rows = range(max(0, new - _ROWS), new)
        with around():
            got = calls[0]()[-1, -1, -len(rows) :]
        k, v = pairs[0][0][-1, -1].float(), pairs[0][1][-1, -1].float()
        scores = query[-1, -1, -len(rows) :].float() @ k.t() / math.sqrt(d)
        if case.parameters["mask"] != "none":
            scores = scores.masked_fill(~_visible(case, space, rows), -math.inf)
        return got, scores.softmax(-1) @ v

    def around() -> AbstractContextManager[Any]:
        return force(backend)

    words = f"scaled_dot_product_attention, engine torch-sdpa, backend {backend.lower()}"
    if shared:
        words += ", values are views of the keys"
    if mask is not None:
        words += ", explicit mask (masked pairs are computed)"
    return Kernel(calls, compare, words, 1, (key_elements + value_elements) * space.element_bytes, around)


def _visible(case: Case, space: Workspace, rows: range) -> Any:
    """Which keys the query rows see: the new tokens are the last ones of the context."""
    new, seen = case.shape["q"], case.shape["kv"]
    device = space.facts.torch_name
    at = space.torch.arange(rows.start, rows.stop, device=device)[:, None] + seen - new
    key = space.torch.arange(seen, device=device)[None, :]
    found = key <= at
    limit = case.parameters.get("limit")
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


def _first_backend(call: Call) -> str:
    """The first backend that takes these arguments, fused ones before the materialised form."""
    fault = "none is known"
    for name in _BACKENDS:
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
