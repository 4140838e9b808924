"""How large the operands are that cases rotate over, by the arena that holds them: arenas are made once, for the largest."""

from __future__ import annotations

import math
from collections.abc import Iterable

from calc.measure.cases.formats import ELEMENT_BYTES
from calc.measure.cases.operators import Case

#: The arena of operands in the run's own type; the others are named after their type.
PLAIN = "plain"
_LEAST_BYTES = 1 << 20
#: Kernels whose buffers are their own.
_OWN_BUFFERS = ("working_set", "host_copy", "write")
#: Kernels whose state is kept in fp32.
_STATES = ("ssd_scan", "recurrence", "selective_scan", "delta_step", "decay_step")
_STATE_SIZES = ("sequences", "heads", "head_dim", "state", "key_head_dim", "value_head_dim", "inner", "width")


def largest_operands(cases: Iterable[Case]) -> dict[str, int]:
    """Bytes of the largest operand of each arena that any case needs; of the plain one always."""
    found = {PLAIN: _LEAST_BYTES}
    for case in cases:
        kind = _arena(case)
        found[kind] = max(found.get(kind, _LEAST_BYTES), operand_bytes(case))
    return found


def _arena(case: Case) -> str:
    if case.kernel in _STATES:
        return "fp32"
    return case.dtype if case.dtype in ("fp8", "int8") else PLAIN


def operand_bytes(case: Case) -> int:
    """Bytes of one copy of what a case rotates over; an upper bound for small ones."""
    shape, element = case.shape, ELEMENT_BYTES[case.dtype]
    if case.kernel in _OWN_BUFFERS:
        return 0
    if case.kernel in _STATES:
        # RWKV and lightning attention name one size three times; a state has a key and a value side.
        letters = [x for x in _STATE_SIZES if not (x == "head_dim" and "key_head_dim" in shape)]
        return int(math.prod(shape.get(letter, 1) for letter in letters) * ELEMENT_BYTES["fp32"])
    if case.kernel in ("conv1d", "token_shift"):
        return int(shape["channels"] * shape.get("kernel", case.parameters.get("mixes", 1)) * element)
    if "k" in shape:
        return int(shape["n"] * shape["k"] * shape.get("copies", shape.get("active", 1)) * element)
    if case.op_class == "attention":
        values = shape["dv"] if "dv" in shape and not case.parameters.get("shared") else 0
        return int(shape["b"] * shape["kv"] * shape.get("hkv", 1) * (shape["d"] + values) * element)
    if "elements" in shape:
        return int(2 * shape["elements"] * element)
    return int(shape.get("m", 1) * shape.get("n", 1) * element)
