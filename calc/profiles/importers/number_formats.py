"""From the bits, groups and types that a quantisation states to the name of a number format."""

from __future__ import annotations

from dataclasses import dataclass

from calc.profiles.importers.config import Config


@dataclass(frozen=True)
class Scheme:
    """A number format by name, with the group size where it departs from the format's own."""

    format: str
    group_size: int | None = None


#: (bits, bits of the offset) → format.
_INTEGER = {(4, 0): "w4a16", (4, 4): "awq", (8, 0): "w8a16-group"} | {(bits, 16): f"mlx-{bits}bit" for bits in (3, 4, 5, 6, 8)}


def integer_scheme(q: Config, bits: int, group: int, *, offset_bits: int = 0) -> Scheme:
    """Weight-only integers in groups with a 16-bit scale and an offset of ``offset_bits``."""
    name = _INTEGER.get((bits, offset_bits))
    if name is None:
        raise q.unknown("bits", bits, sorted({b for b, o in _INTEGER if o == offset_bits}), "number of bits")
    return Scheme(name, group)


def float_scheme(q: Config, bits: int, strategy: str, group: int | None) -> Scheme:
    """fp8 and fp4 by how their scales are spread."""
    if bits == 4:
        return Scheme("nvfp4" if group == 16 or strategy == "tensor_group" else "mxfp4")
    if bits != 8:
        raise q.unknown("num_bits", bits, [4, 8], "number of bits for floating-point weights")
    names = {"tensor": "fp8", "channel": "fp8-channel", "token": "fp8-channel", "block": "fp8-block", "group": "mxfp8"}
    if strategy not in names:
        raise q.unknown("strategy", strategy, names, "spread of scales")
    return Scheme(names[strategy])
