"""What a call is to the kernel that runs it: its name, and the sizes that decide how well it runs. One set of words for operators, whose
shapes count over all requests, and for measured cases, whose shapes are those of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PRODUCTS = ("gemm", "experts", "attention")
_OF_CASES = {"b": "batch", "q": "queries", "kv": "context", "m": "m", "n": "n", "k": "k", "tokens": "tokens"}


def sizes(shape: Mapping[str, Any]) -> dict[str, float]:
    """``m``, ``n``, ``k`` of a product or of rows, ``batch``, ``queries`` and ``context`` (per request) of attention, ``tokens`` of a
    recurrence; those that the shape has. For plain numbers."""
    if "pairs" in shape and "sequences" in shape:
        requests = shape["sequences"]
        per_request = {"queries": "tokens", "context": "keys"}
        return {"batch": float(requests)} | {
            name: float(shape[key] / requests) for name, key in per_request.items() if key in shape
        }
    found = {name: float(shape[letter]) for letter, name in _OF_CASES.items() if letter in shape}
    if "rows" in shape and "active" in shape:  # experts: rows of all of them
        found["m"] = shape["rows"] / shape["active"]
    return found


def elements(op_class: str, shape: Mapping[str, Any]) -> Any:
    """Rows times columns of a call that works row by row, by which a host spreads it over threads; None for products and attention."""
    return None if op_class in _PRODUCTS or not {"m", "n"} <= shape.keys() else shape["m"] * shape["n"]


def single(op_class: str, shape: Mapping[str, Any]) -> Any:
    """Whether a product has one row, or an attention one query of each request: libraries run other kernels then (a matrix-vector
    product; a split of the context, not of the queries). A bool for numbers, elementwise for arrays."""
    if op_class == "gemm":
        return shape.get("m") == 1
    if op_class != "attention":
        return False
    if "tokens" in shape and "sequences" in shape:
        return shape["tokens"] == shape["sequences"]
    return shape.get("q") == 1


def kernel(op_class: str, operation: str, *, single: bool) -> str:
    """The name under which a call may have a law of its own: the operation's, but for products, which one kernel runs whatever they
    project."""
    if op_class == "gemm":
        return "one row" if single else "more rows"
    if op_class == "experts":
        return "grouped"
    return f"{operation}, one query" if single else operation
