"""The label of a choice that is made for each request of a step: which path or form its kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def label(flags: Sequence[Any], yes: str, no: str) -> str:
    """``yes`` where every request takes it, ``no`` where none does, ``mixed`` otherwise; an array of labels for arrays of flags."""
    if all(isinstance(flag, bool) for flag in flags):
        return yes if all(flags) else "mixed" if any(flags) else no
    import numpy as np

    together = np.stack(np.broadcast_arrays(*flags))
    labels: str = np.where(together.all(axis=0), yes, np.where(together.any(axis=0), "mixed", no))  # type: ignore[assignment]
    return labels
