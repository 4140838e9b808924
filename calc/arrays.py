"""Arithmetic on Python numbers or numpy arrays alike, without importing numpy for plain numbers.

The operator arithmetic is written once and serves a single estimate (numbers; numpy is never loaded) and a sweep (arrays).
Whole-number divisions of arrays are done on floats, exact below 2^53.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    Number: TypeAlias = int | float | np.ndarray[Any, np.dtype[Any]]
else:
    Number = Any

_PLAIN = (int, float)


def is_plain(*values: Number) -> bool:
    """True when every value is a Python number."""
    return all(isinstance(v, _PLAIN) for v in values)


def maximum(a: Number, b: Number) -> Number:
    """Elementwise larger of two."""
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        return max(a, b)
    import numpy as np

    return np.maximum(a, b)


def minimum(a: Number, b: Number) -> Number:
    """Elementwise smaller of two."""
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        return min(a, b)
    import numpy as np

    return np.minimum(a, b)


def clamp(value: Number, low: Number, high: Number) -> Number:
    """``value`` held between ``low`` and ``high``."""
    return minimum(maximum(value, low), high)


def ceil_div(a: Number, b: Number) -> Number:
    """``ceil(a / b)`` of whole numbers, on integers (never through a float quotient)."""
    return -((-a) // b)


def where(condition: Any, yes: Number, no: Number) -> Number:
    """Elementwise choice."""
    if isinstance(condition, bool):
        return yes if condition else no
    import numpy as np

    return np.where(condition, yes, no)


def power(base: Number, exponent: Number) -> Number:
    """``base ** exponent`` for 0 <= base <= 1, safe for large exponents."""
    result: Number = operator.pow(base, exponent)
    return result


def divide(a: Number, b: Number) -> Number:
    """``a / b``, and 0 where ``b`` is 0 (an empty operator has no intensity)."""
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        return a / b if b else 0.0
    import numpy as np

    top, bottom = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    quotient: Number = np.divide(top, bottom, out=np.zeros(top.shape), where=bottom != 0)
    return quotient


def as_floats(value: Any) -> Number:
    """A plain number as it is; anything else as a float array."""
    if isinstance(value, _PLAIN):
        return value
    import numpy as np

    return np.asarray(value, dtype=float)
