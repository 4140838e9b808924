"""Tensor and file types of GGUF by number, and the exact bytes of a tensor.

Source: ggml ``enum ggml_type`` and llama.cpp ``enum llama_ftype`` (gguf-py/gguf/constants.py lists both).
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.numerics import weight_format

#: Number in the file → name of the number format. Whole numbers hold indices, never weights that are multiplied.
TYPES = {
    0: "fp32", 1: "fp16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k", 11: "q3_k", 12: "q4_k", 13: "q5_k",
    14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s",
    23: "iq4_xs", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "fp64", 29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0",
    39: "mxfp4", 40: "nvfp4", 41: "q1_0",
}  # fmt: skip
#: (elements, bytes) of a block where the format elsewhere stores its scales apart, or is no weight format at all.
_OWN_BLOCKS = {"mxfp4": (32, 17), "nvfp4": (64, 36), "i8": (1, 1), "i16": (1, 2), "i32": (1, 4), "i64": (1, 8)}

#: ``general.file_type`` → the name that files carry. Mixes give some tensors more bits than their name says.
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
    14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M",
    32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0",
}  # fmt: skip
GUESSED = 1024  # set in file types that a program inferred rather than read


def block_of(name: str) -> tuple[int, int]:
    """(elements, bytes) of the block of a type: what is stored whole along a row."""
    own = _OWN_BLOCKS.get(name)
    if own:
        return own
    found = weight_format(name)
    if found.group:
        return found.group, found.group_bits // 8
    return 1, int(found.element_bits) // 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file. ``shape`` is in the order of the file: the row length, which the blocks run along, comes first."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        found = 1
        for width in self.shape:
            found *= width
        return found

    @property
    def bytes(self) -> int:
        """Exact bytes: whole blocks along each row."""
        per_block, block_bytes = block_of(self.type)
        return self.elements // per_block * block_bytes

    @property
    def d_in(self) -> int:
        """Row length: what a token's vector is multiplied along."""
        return self.shape[0]

    @property
    def d_out(self) -> int:
        """Number of rows of one matrix."""
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def copies(self) -> int:
        """Matrices that are stacked in the tensor (experts, heads)."""
        return self.shape[2] if len(self.shape) > 2 else 1


def file_type_name(number: object) -> str | None:
    """Name of a ``general.file_type``; None where it is absent or unknown."""
    return FILE_TYPES.get(number & ~GUESSED) if isinstance(number, int) and not isinstance(number, bool) else None
