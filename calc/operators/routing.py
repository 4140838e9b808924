"""How many different experts a step reads: the weights of a mixture of experts cross memory once per expert that any token hits."""

from __future__ import annotations

from functools import lru_cache

from calc.arrays import Number, power


def distinct_experts(num_experts: int, per_token: float, tokens: Number, skew: float = 0.0) -> Number:
    """Expected number of different experts that ``tokens`` tokens hit, each choosing ``per_token`` of ``num_experts``.

    Tokens choose independently: E (1 - (1 - k/E)^T) where all experts are as likely; ``skew`` is a Zipf exponent of their popularity.
    Both are modelling assumptions.
    """
    if not skew:
        return num_experts * (1 - power(1 - per_token / num_experts, tokens))
    found: Number = 0
    for share in inclusion_probabilities(num_experts, per_token, skew):
        found = found + 1 - power(1 - share, tokens)
    return found


@lru_cache(maxsize=256)
def inclusion_probabilities(num_experts: int, per_token: float, skew: float) -> tuple[float, ...]:
    """Chance of each expert to be among a token's choices: min(1, scale x rank^-skew), scaled so that they sum to ``per_token``."""
    popularity = [rank**-skew for rank in range(1, num_experts + 1)]
    rest = sum(popularity)
    certain = 0  # the most popular experts that every token chooses
    while certain < num_experts and (per_token - certain) * popularity[certain] >= rest:
        rest -= popularity[certain]
        certain += 1
    scale = (per_token - certain) / rest if certain < num_experts else 0.0
    return tuple(1.0 if i < certain else scale * p for i, p in enumerate(popularity))
