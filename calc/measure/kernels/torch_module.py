"""The one door to torch: imported when measuring begins, never before."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from calc.errors import MeasurementError


def require_torch() -> Any:
    """The torch module. Raises MeasurementError with the install line when it is missing or broken."""
    try:
        return import_module("torch")
    except ImportError as fault:
        raise MeasurementError(f"measuring needs PyTorch: {fault}", "pip install 'roofcast[measure]'") from None
    except OSError as fault:  # a wheel whose native libraries do not load
        raise MeasurementError(f"PyTorch cannot be loaded: {fault}", "reinstall it: pip install 'roofcast[measure]'") from None


def find_torch() -> Any | None:
    """The torch module, or None where it is missing."""
    try:
        return require_torch()
    except MeasurementError:
        return None


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether an exception from torch says that memory ran out. The CPU allocator raises a plain RuntimeError."""
    if isinstance(fault, MemoryError) or type(fault).__name__ == "OutOfMemoryError":
        return True
    text = str(fault).lower()
    return isinstance(fault, RuntimeError) and any(
        words in text for words in ("not enough memory", "can't allocate memory", "out of memory")
    )


def refusal(call: Callable[[], Any]) -> str | None:
    """What this torch or device says against a call, in one line; None where it takes it. Memory that ran out is no refusal: raised."""
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as declined:
        if is_out_of_memory(declined):
            raise
        return (str(declined).splitlines() or [type(declined).__name__])[0]
    return None
