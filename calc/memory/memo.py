"""Remembers what a pure function made of profiles: searches ask the same question with one option changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST = 256


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Cache by value of hashable arguments and by identity of the rest (profiles hold lists and cannot be hashed).

    The arguments are kept with the result, so that an identity never belongs to another object.
    """
    store: dict[tuple[Any, ...], tuple[tuple[Any, ...], R]] = {}

    def part(value: Any) -> Any:
        try:
            hash(value)
        except TypeError:
            return id(value)
        return value

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        values = (*args, *kwargs.values())
        key = (*map(part, args), *((name, part(value)) for name, value in kwargs.items()))
        known = store.get(key)
        if known is not None:
            return known[1]
        result = function(*args, **kwargs)
        if len(store) >= _MOST:
            store.clear()
        store[key] = (values, result)
        return result

    return call
