"""Copies of tokens on their way to experts of other ranks: how many there are, and what one of them takes.

A token goes once to every rank (or host) that holds any of its experts, not once to every expert: DeepEP (github.com/deepseek-ai/DeepEP),
DeepSeek-V3 arXiv 2412.19437 section 3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from calc.arrays import Number

#: Elements that share an fp32 scale on the way to fp8 experts (DeepEP).
SCALE_BLOCK = 128


@lru_cache(maxsize=256)
def destinations(num_experts: int, per_token: int, groups: int, idle_experts: int = 0) -> float:
    """Expected number of different groups that the ``per_token`` experts of one token lie in, its own group included, when
    ``num_experts`` are dealt out evenly to ``groups`` and each choice is as likely. ``idle_experts`` are scored too but lie nowhere."""
    scored = num_experts + idle_experts
    held = num_experts // groups
    missed = math.comb(scored - held, per_token) / math.comb(scored, per_token)
    return groups * (1 - missed)


def copy_bytes(hidden_size: int, element_bytes: int, *, scale_block: int = 0) -> int:
    """Bytes of one copy of a token on its way to an expert or back; with ``scale_block`` an fp32 scale for so many elements (DeepEP:
    fp8 with a scale for 128 on the way there, 16 bit on the way back)."""
    scales = -(-hidden_size // scale_block) * 4 if scale_block else 0
    return hidden_size * element_bytes + scales


@dataclass(frozen=True, slots=True)
class TokenCopies:
    """An all-to-all of tokens: ``payload_bytes`` are those of one copy of each of a rank's own tokens. ``relayed``: one copy crosses the
    network for each host and is passed on inside (kernels for many tokens); else each copy goes straight to its rank (kernels for low
    latency)."""

    num_experts: int
    per_token: int
    payload_bytes: Number
    relayed: bool
    idle_experts: int = 0

    def message_bytes(self, groups: int) -> Number:
        """Bytes of all copies when each of ``groups`` groups that a token has an expert in gets one."""
        return self.payload_bytes * destinations(self.num_experts, self.per_token, groups, self.idle_experts)
