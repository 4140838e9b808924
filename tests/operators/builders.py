"""Small models for tests, and the golden values."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from calc.arrays import Number
from calc.operators import layer_kinds
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.fusion import SEPARATE, FusionPolicy
from calc.operators.numbers import NumberPlan, plan
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import Work
from calc.profiles.model import (
    Block,
    DenseFeedForward,
    FeedForward,
    LayerKind,
    Mixer,
    ModelProfile,
    Storage,
)

GOLDEN_FILE = Path(__file__).parents[1] / "golden" / "golden_values.json"
BF16 = plan("bf16", {}, compute="bf16")
FIGURES = (
    "flops", "vector_flops", "exponentials", "weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes",
)  # fmt: skip


@cache
def _golden() -> dict[str, dict[str, Any]]:
    return {v["id"]: v for v in json.loads(GOLDEN_FILE.read_text())["values"]}


def check_golden(identifier: str, value: float) -> None:
    """Compare with a golden value: exact integers are exact, floats carry the tolerance of their entry."""
    entry = _golden()[identifier]
    expected, tolerance = entry["expected"], entry["rel_tol"]
    if tolerance:
        assert abs(value - expected) <= tolerance * abs(expected), f"{identifier}: {value} against {expected}"
    else:
        assert value == expected, f"{identifier}: {value} against {expected}"


def model(hidden_size: int, vocab_size: int | None, kinds: dict[str, LayerKind], stack: list[Block], **rest: Any) -> ModelProfile:
    """A profile with the least it needs."""
    storage = rest.pop("storage", Storage(dtype="bf16"))
    return ModelProfile(
        id="test",
        name="test",
        family="test",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layer_kinds=kinds,
        stack=stack,
        storage=storage,
        **rest,
    )


def uniform(
    hidden_size: int, vocab_size: int | None, layers: int, mixers: list[Mixer], parts: list[FeedForward], **rest: Any
) -> ModelProfile:
    """``layers`` layers of one kind."""
    norms = rest.pop("norms", 2)
    kind = LayerKind(mixers=mixers, feed_forwards=parts, norms=norms)
    return model(hidden_size, vocab_size, {"layer": kind}, [Block(repeat=layers, layers=["layer"])], **rest)


def one_layer(mixer: Mixer, part: FeedForward | None = None, hidden_size: int = 64) -> ModelProfile:
    """A single layer around a mixer."""
    return uniform(hidden_size, 1000, 1, [mixer], [part or DenseFeedForward(intermediate_size=128)])


def context(work: Work, hidden_size: int = 64, tensor: int = 1, numbers: NumberPlan = BF16, **rest: Any) -> LayerContext:
    """What the operators of one layer need."""
    policy: FusionPolicy = rest.pop("policy", SEPARATE)
    sharding = rest.pop("sharding", Sharding(tensor=tensor))
    return LayerContext(hidden_size, False, sharding, numbers, policy, work, "layer", 1, **rest)


def mixer_operators(mixer: Mixer, work: Work, **rest: Any) -> list[Operator]:
    """Operators of a mixer alone."""
    return layer_kinds.mixer_module(mixer).operators(mixer, context(work, **rest))


def part_operators(part: FeedForward, work: Work, **rest: Any) -> list[Operator]:
    """Operators of a feed-forward part alone."""
    return layer_kinds.feed_forward_module(part).operators(part, context(work, **rest))


def laws(mixer: Mixer, tensor: int = 1, hidden_size: int = 64) -> list[CacheLaw]:
    """Cache laws of a mixer."""
    return layer_kinds.cache_laws(LayerKind(mixers=[mixer]), tensor, hidden_size)


def cache_bytes(mixer: Mixer, tokens: int, *, numbers: NumberPlan = BF16, tensor: int = 1, hidden_size: int = 64) -> float:
    """Ideal bytes that a mixer keeps for one sequence of ``tokens`` tokens."""
    return sum(
        law.token_bytes(numbers.keys, numbers.values) * law.stored_tokens(tokens)
        + law.state_bytes(numbers.state_bytes, numbers.convolution_bytes)
        for law in laws(mixer, tensor, hidden_size)
    )


def total(operators: list[Operator], figure: str, *names: str) -> Number:
    """Sum of a figure over all calls of the operators (of the given names) of one rank."""
    return sum(o.count * getattr(o, figure) for o in operators if not names or o.name in names)


def operator(operators: list[Operator], name: str) -> Operator:
    """The only operator of a name."""
    (found,) = [o for o in operators if o.name == name]
    return found


def step(profile: ModelProfile, work: Work, numbers: NumberPlan = BF16, sharding: Sharding | None = None) -> list[Operator]:
    """All operators of a step."""
    return step_operators(profile, sharding or Sharding(), numbers, work)
