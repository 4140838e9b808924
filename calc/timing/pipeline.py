"""Pipeline stages: how many of them work at once, and what a prompt or a batch gains from it.

GPipe arXiv 1811.06965 (bubble of micro-batches), vLLM and SGLang `--pipeline-parallel-size`.
"""

from __future__ import annotations

from calc.arrays import Number, ceil_div, maximum, minimum
from calc.formula import formula


def even_stages(layers: int, stages: int) -> float:
    """The stages that would be as fast if layers could be cut: all layers over those of the largest stage, which the others wait for.
    ``stages`` where these divide the layers."""
    largest = -(-layers // stages)
    return stages if layers % stages == 0 else layers / largest


@formula("micro_batches * stages / (micro_batches + stages - 1)")
def pipeline_speedup(micro_batches: Number, stages: float) -> Number:
    """How many times faster ``stages`` devices finish ``micro_batches`` than one after another: m n / (m + n - 1)."""
    return micro_batches * stages / (micro_batches + stages - 1)


def decode_micro_batches(requests: Number, stages: int) -> Number:
    """Parts that a decoding batch is split into so that every stage has one to work on: at most one a request."""
    return minimum(requests, stages)


@formula("max(1, micro_batches / stages)")
def round_s_per_pass_s(micro_batches: Number, stages: float) -> Number:
    """Time until a micro-batch comes round again over the time of its pass through all stages: 1, and more where the largest stage is
    not done with the others by then."""
    return maximum(1.0, micro_batches / stages)


def prompt_passes(tokens: Number, micro_batch: int) -> Number:
    """Passes that a prompt is cut into."""
    return maximum(ceil_div(tokens, micro_batch) if isinstance(tokens, int) else -((-tokens) // micro_batch), 1)


def prompt_micro_batches(tokens: Number, micro_batch: int) -> Number:
    """Full micro-batches that a prompt makes: what remains of it is as much shorter in every stage, and no stage waits for more of it."""
    return maximum(tokens / micro_batch, 1.0)
