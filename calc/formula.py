"""Formulas that explain themselves: a function carries its formula as text, so that an explanation shows what the code computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def formula(text: str) -> Callable[[F], F]:
    """Say a function's formula in the names of its parameters. The text is Python, and tests hold its value against the function's."""

    def mark(function: F) -> F:
        function.__formula__ = text  # type: ignore[attr-defined]
        return function

    return mark


def formula_of(function: Callable[..., Any]) -> str:
    """The text; an AttributeError for a function that has none is a fault of the caller."""
    text: str = function.__formula__  # type: ignore[attr-defined]
    return text
