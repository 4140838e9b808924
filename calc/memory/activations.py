"""The activation peak of a forward pass, of the sampler and of a vision tower (MODEL: replaceable by a measurement)."""

from __future__ import annotations

from calc.memory.memo import remembered
from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import Requests, Work
from calc.profiles.model import ModelProfile, Tower

#: Copies of the hidden state alive beside the widest operator: its input, the residual and the embedding (two start-up logs whose
#: peak is the layers': 2.07 GiB for Llama-3.1-8B at 20,000 tokens, 1.51 for Qwen3-VL-8B at 16,384; both within 1 %).
RESIDUALS = 3
#: Widths of a tower alive together, in its hidden size, per position: residual, fused projections, feed-forward; without flash
#: attention more copies (Qwen2.5-VL on a T4 peaks at 2.71 GiB for 65,536 positions of 1,280).
TOWER_WIDTHS, TOWER_WIDTHS_WITHOUT_FLASH = 10, 17


@remembered
def layer_peak_bytes(model: ModelProfile, sharding: Sharding, numbers: NumberPlan, max_batched_tokens: int) -> int:
    """Largest set of activations alive together in one layer for ``max_batched_tokens`` tokens on one rank (on each, where ranks have
    requests of their own): copies of the hidden state, and the inputs and outputs of the widest operator. Layers come one after
    another, so they are never summed."""
    work = Work("prefill", (Requests(sharding.data_ranks, max_batched_tokens, 0, logit_rows=0),))
    widest = 0.0
    for operator in step_operators(model, sharding, numbers, work):
        if operator.op_class not in ("collective", "embedding"):
            widest = max(widest, float(operator.activation_bytes))
    return int(RESIDUALS * hidden_bytes(model, numbers, max_batched_tokens) + widest)


def hidden_bytes(model: ModelProfile, numbers: NumberPlan, tokens: int) -> int:
    """One hidden state of ``tokens`` tokens: what the last layer hands to the sampler."""
    return tokens * model.hidden_size * numbers.activation_bytes


def sampler_peak_bytes(model: ModelProfile, rows: int, bytes_per_entry: float) -> int:
    """Logits and their copies in the sampler: ``bytes_per_entry`` per vocabulary entry and sequence, on every rank that samples."""
    return int((model.vocab_size or 0) * rows * bytes_per_entry)


def tower_peak_bytes(towers: list[Tower], numbers: NumberPlan, positions: int, widths: int) -> int:
    """Peak of encoding one item in the largest tower. ``positions`` stand in where a tower takes items of any size."""
    return max(
        (widths * (t.tokens_per_item or positions) * (t.hidden_size or 0) * numbers.activation_bytes for t in towers), default=0
    )
