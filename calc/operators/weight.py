"""A weight tensor of one rank: its role decides the number format, its shape the parameters, the bytes and the FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calc.numerics import NumberFormat


@dataclass(frozen=True, slots=True)
class Weight:
    """``copies`` matrices [d_in, d_out] (or vectors of d_out with d_in = 1), each with ``bias`` further elements.

    ``vector`` marks gains, biases and small tensors that stay in 16 bit whatever the quantisation. ``use``: ``own`` is held and
    read every step; ``idle`` is held and never read (key weights of layers that share another's cache); ``tied`` is read but is
    another weight's tensor; ``table`` is held and looked up row by row.
    """

    name: str
    role: str
    d_in: int
    d_out: int
    copies: int = 1
    bias: int = 0
    vector: bool = False
    use: Literal["own", "idle", "tied", "table"] = "own"

    @property
    def is_held(self) -> bool:
        """Whether the tensor occupies memory of its own."""
        return self.use != "tied"

    @property
    def is_streamed(self) -> bool:
        """Whether a step reads the whole tensor."""
        return self.use in ("own", "tied")

    @property
    def elements(self) -> int:
        """Number of parameters, bias included."""
        return self.copies * (self.d_in * self.d_out + self.bias)

    def bytes(self, number_format: NumberFormat) -> int:
        """Bytes of all copies; biases and vectors in 16 bit (fp32 where the matrices are fp32), unless the checkpoint's were counted."""
        if number_format.counted_bytes:
            return round(number_format.counted_bytes * self.elements)
        side = 4 if number_format.name == "fp32" else 2
        if self.vector:
            return side * self.elements
        return self.copies * (number_format.matrix_bytes(self.d_in, self.d_out) + side * self.bias)


def vector(name: str, elements: int, role: str = "norm") -> Weight:
    """A gain, bias or other small tensor."""
    return Weight(name, role, 1, elements, vector=True)
