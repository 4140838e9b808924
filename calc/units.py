"""The only place that knows 10^9 and 2^30: parses what people type, prints what people read.

Internally bytes are integers, times are seconds, rates are per second. Conventions: ``k`` and ``m`` of token counts are
binary (a "32k context" is 32,768 tokens); byte units are as they say (GB decimal, GiB binary); rates and money are decimal.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable
from typing import SupportsFloat

from calc.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
KILO, MEGA, GIGA, TERA = 10**3, 10**6, 10**9, 10**12

#: Larger counts are typing errors or attacks: no sequence, batch or rate comes near. Also keeps float arithmetic exact.
MAX_COUNT = 1 << 40
#: Longest sequence and largest batch that are answered: beyond any machine, and every product stays an exact integer.
MAX_TOKENS = 1 << 32
MAX_BATCH = 1 << 24
MAX_BYTES = 1 << 60
MAX_SECONDS = 1e9
#: Numbers below the first, and from the second on, are written with an exponent.
_LEAST_WRITTEN_OUT, _MOST_WRITTEN_OUT = 1e-6, 1e12

_NUMBER = re.compile(r"^([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ%/]*)$")
_TOKEN_UNITS = {"": 1, "k": KIB, "K": KIB, "ki": KIB, "Ki": KIB, "m": MIB, "M": MIB, "Mi": MIB}
_BYTE_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _BYTE_UNITS |= {f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power, f"{_letter}i": 1024**_power}
_TIME_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(text.strip())
    if not match:
        raise UsageError(f"{what} is not a number: {text!r}", f"write it like {example}")
    value = float(match[1].replace(",", "").replace("_", ""))
    if not math.isfinite(value):
        raise UsageError(f"{what} is not finite: {text!r}", f"write it like {example}")
    return value, match[2]


def _in_range(
    value: float, text: str, what: str, minimum: float, maximum: float, shown: Callable[[float], str] = "{:,}".format
) -> None:
    if value < minimum:
        least = shown(minimum)
        raise UsageError(f"{what} must be at least {least}, not {text}", f"the smallest accepted value is {least}")
    if value > maximum:
        raise UsageError(f"{what} is too large: {text}", f"the largest accepted value is {shown(maximum)}")


def _as_size(value: float) -> str:
    """A limit of bytes in the unit that it is round in."""
    return format_traffic(value, 1) if value % 1000 == 0 else format_bytes(value, 1)


def parse_count(text: str, what: str = "value", *, minimum: int = 1, maximum: int = MAX_COUNT) -> int:
    """A whole number of tokens, sequences or devices; ``32k`` is 32,768."""
    value, unit = _split(text, what, "4096 or 32k")
    if unit not in _TOKEN_UNITS:
        raise UsageError(f"{what} has an unknown suffix {unit!r}: {text!r}", "use k (1,024) or m (1,048,576)")
    value *= _TOKEN_UNITS[unit]
    _in_range(value, text, what, minimum, maximum)
    if value != int(value):
        raise UsageError(f"{what} must be a whole number, not {text}", f"did you mean {max(minimum, round(value)):,}?")
    return int(value)


def require_number(value: object, name: str, *, whole: bool) -> None:
    """Refuse what is no number where Python gives an option: text with a unit is read on the command line only. None is let through."""
    kind = numbers.Integral if whole else numbers.Real
    if value is None or (not isinstance(value, bool) and isinstance(value, kind)):
        return
    raise UsageError(f"{name} must be a {'whole ' if whole else ''}number, not {value!r}", _as_number(value, whole))


def _as_number(value: object, whole: bool) -> str:
    try:
        meant = parse_count(str(value), minimum=0) if whole else parse_rate(str(value))
    except UsageError:
        return "sizes are in bytes, lengths in tokens, times in seconds; units are read on the command line only"
    return f"did you mean {meant}? Units are read on the command line only"


def parse_bytes(text: str, what: str = "size", *, minimum: int = 0, maximum: int = MAX_BYTES) -> int:
    """Bytes from ``80GiB``, ``1.5 GB``, ``81559MiB`` or a plain number of bytes."""
    value, unit = _split(text, what, "80GiB or 1.5GB")
    if unit.lower() not in _BYTE_UNITS:
        raise UsageError(f"{what} has an unknown unit {unit!r}: {text!r}", "use B, KB, MB, GB, TB or KiB, MiB, GiB, TiB")
    value *= _BYTE_UNITS[unit.lower()]
    _in_range(value, text, what, minimum, maximum, _as_size)
    return round(value)


def parse_seconds(text: str, what: str = "time", *, minimum: float = 0.0) -> float:
    """Seconds from ``200ms``, ``40us``, ``1.5s`` or a plain number of seconds."""
    value, unit = _split(text, what, "200ms or 1.5s")
    if unit not in _TIME_UNITS:
        raise UsageError(f"{what} has an unknown unit {unit!r}: {text!r}", "use s, ms, us, ns, min or h")
    value *= _TIME_UNITS[unit]
    _in_range(value, text, what, minimum, MAX_SECONDS)
    return value


def parse_fraction(text: str, what: str = "fraction", *, maximum: float = 1.0, zero: bool = False) -> float:
    """A share in (0, maximum], with ``zero`` in [0, maximum]; ``90%`` is 0.9. A bare number above the maximum is refused, never taken
    for percent."""
    value, unit = _split(text, what, "0.9 or 90%")
    if unit not in ("", "%"):
        raise UsageError(f"{what} has an unknown unit {unit!r}: {text!r}", "write it like 0.9 or 90%")
    if unit == "%":
        value /= 100
    if not 0 < value <= maximum and not (zero and value == 0):
        hint = f"did you mean {value:g}%?" if 1 < value <= 100 and not unit else "write it like 0.9 or 90%"
        least = "at least" if zero else "above"
        raise UsageError(f"{what} must be {least} 0 and at most {maximum:g}, not {text}", hint)
    return value


def parse_rate(text: str, what: str = "rate", *, minimum: float = 0.0) -> float:
    """A decimal rate or amount of money; ``2.5`` or ``1k`` (1,000)."""
    value, unit = _split(text, what, "2.5")
    factor = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}.get(unit)
    if factor is None:
        raise UsageError(f"{what} has an unknown suffix {unit!r}: {text!r}", "use a plain number")
    value *= factor
    _in_range(value, text, what, minimum, 1e12)
    return value


def _scaled(value: float, steps: tuple[tuple[float, str], ...], digits: int) -> str:
    size = abs(value)
    for factor, unit in steps:
        if size >= factor:
            return f"{_digits(value / factor, digits)} {unit}"
    factor, unit = steps[-1]
    return f"{_digits(value / factor, digits)} {unit}"


def _digits(value: float, digits: int) -> str:
    """``value`` with about ``digits`` significant digits; an exponent only where nobody would count the digits."""
    if value == 0:
        return "0"
    if not _LEAST_WRITTEN_OUT <= abs(value) < _MOST_WRITTEN_OUT:
        return f"{value:.{max(0, digits - 1)}e}"
    before = max(1, math.floor(math.log10(abs(value))) + 1)
    return f"{value:,.{max(0, digits - before)}f}"


def format_bytes(value: SupportsFloat | None, digits: int = 4) -> str:
    """Binary units, as drivers and vLLM print memory."""
    if value is None:
        return "-"
    return _scaled(float(value), ((1024.0**4, "TiB"), (1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1, "B")), digits)


def format_traffic(value: SupportsFloat | None, digits: int = 4) -> str:
    """Decimal units, as bandwidth is quoted."""
    if value is None:
        return "-"
    return _scaled(float(value), ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")), digits)


def format_flops(value: SupportsFloat | None, digits: int = 4) -> str:
    """A number of floating-point operations (one multiply-add is 2)."""
    if value is None:
        return "-"
    return _scaled(
        float(value), ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1, "FLOP")), digits
    )


def format_seconds(value: SupportsFloat | None, digits: int = 3) -> str:
    """A duration in the unit people would say it in."""
    if value is None:
        return "-"
    return _scaled(float(value), ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")), digits)


def format_number(value: SupportsFloat | None, digits: int = 4) -> str:
    """A plain number: integers with separators, others with ``digits`` significant digits."""
    if value is None:
        return "-"
    number = float(value)
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return _digits(number, digits)


def format_parameters(value: SupportsFloat | None) -> str:
    """A parameter count as people say it: 8.03 B, 360 M."""
    if value is None:
        return "-"
    return _scaled(float(value), ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1, "")), 4).strip()


def format_count(count: int, noun: str) -> str:
    """``1 draft``, ``3 drafts``: the noun takes an s for any number but one."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_rate(requests_per_s: SupportsFloat) -> str:
    """A rate of requests: ``0.5 requests/s``, ``1 request/s``."""
    shown = format_number(requests_per_s, 3)
    return f"{shown} request{'' if shown == '1' else 's'}/s"


def format_like(value: float, example: str) -> str:
    """``value`` in the unit that another is written in: 0.0184641 beside ``40ms`` is 18.4641ms. As it is beside a bare number."""
    match = _NUMBER.match(example.strip())
    unit = match[2] if match else ""
    factor = (_TIME_UNITS | {"%": 0.01}).get(unit) or _BYTE_UNITS.get(unit.lower())
    return f"{value / factor:.6g}{unit}" if factor and unit else f"{value:.6g}" if isinstance(value, float) else str(value)


def format_percent(value: SupportsFloat | None, digits: int = 3) -> str:
    """A share of one as percent."""
    return "-" if value is None else f"{_digits(float(value) * 100, digits)} %"
