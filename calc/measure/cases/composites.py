"""Held-out composites: the kernels of one decoder layer, and of a short stack, run one after another as one call.

Never fitted: they tell whether the sum of the parts is the whole. The kernels are those of the cases, each on its own operands, so data
does not flow between them; what one leaves in the caches, and the gaps between them, are real.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calc.measure.cases.operators import Case, Entry

CLASS = "composite"
STACK = 4  # layers


def composites(entries: Iterable[Entry], cases: dict[str, Case]) -> list[Case]:
    """A layer and a stack of each phase, of the kind of layer that most operators belong to."""
    found: list[Case] = []
    for phase in ("prefill", "decode"):
        own = [e for e in entries if e.phase == phase and e.case_id in cases and e.operator.op_class != "embedding"]
        kinds: dict[str, list[Entry]] = {}
        for entry in own:
            kinds.setdefault(entry.operator.layers, []).append(entry)
        if not kinds:
            continue
        kind, members = max(kinds.items(), key=lambda item: len(item[1]))
        layers = math.gcd(*(e.operator.count for e in members))
        parts = tuple((cases[e.case_id or ""], e.operator.count // layers) for e in members)
        for name, repeat in (("decoder_layer", 1), ("decoder_stack", STACK)):
            found.append(_composite(name, phase, kind, parts, repeat))
    return found


def _composite(name: str, phase: str, kind: str, parts: tuple[tuple[Case, int], ...], repeat: int) -> Case:
    first = parts[0][0]
    repeated = tuple((case, calls * repeat) for case, calls in parts)
    size = "/".join(f"{k}{first.shape[k]}" for k in ("m",) if k in first.shape)
    return replace(
        first,
        id=f"{CLASS}:{name}/{phase}/x{repeat}/{kind}/{size}/{first.dtype}/tp{first.tensor_parallel_size}",
        operation=name,
        op_class=CLASS,
        kernel="chain",
        shape={"layers": repeat} | ({"m": first.shape["m"]} if "m" in first.shape else {}),
        flops=math.fsum(c.flops * n for c, n in repeated),
        bytes=math.fsum(c.bytes * n for c, n in repeated),
        calls=0,
        parameters={},
        parts=repeated,
    )
