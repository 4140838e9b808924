"""The activation peak of a forward pass and of the sampler (MODEL: replaceable by a measurement)."""

from __future__ import annotations

from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import Requests, Work
from calc.profiles.model import ModelProfile

#: Allocators keep fragments: share added to the layer term.
FRAGMENTATION = 0.05


def layer_peak_bytes(model: ModelProfile, sharding: Sharding, numbers: NumberPlan, max_batched_tokens: int) -> int:
    """Largest set of activations alive together in one layer for ``max_batched_tokens`` tokens on one rank: the residual stream twice
    and the inputs and outputs of the widest operator. Layers come one after another, so they are never summed."""
    work = Work("prefill", (Requests(1, max_batched_tokens, 0, logit_rows=0),))
    widest = 0.0
    for operator in step_operators(model, sharding, numbers, work):
        if operator.op_class != "collective":
            widest = max(widest, float(operator.activation_bytes))
    residual = 2 * max_batched_tokens * model.hidden_size * numbers.activation_bytes
    return int((residual + widest) * (1 + FRAGMENTATION))


def sampler_peak_bytes(model: ModelProfile, max_sequences: int, bytes_per_entry: float) -> int:
    """Logits and their copies in the sampler: ``bytes_per_entry`` per vocabulary entry and sequence, on every rank that samples."""
    return int((model.vocab_size or 0) * max_sequences * bytes_per_entry)
