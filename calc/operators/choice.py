"""The label of a choice that is made for each request of a step: which path or form its kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def label(flags: Sequence[Any], yes: str, no: str) -> str:
    """``yes`` where every request takes it, ``no`` where none does, ``mixed`` otherwise: also where the points of a sweep differ.

    One word for a whole array: a label per point would cost more than the arithmetic.
    """
    every = [flag if isinstance(flag, bool) else bool(flag.all()) for flag in flags]
    some = [flag if isinstance(flag, bool) else bool(flag.any()) for flag in flags]
    return yes if all(every) else "mixed" if any(some) else no
