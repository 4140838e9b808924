"""The physical terms of a step: sizes in seconds at datasheet rates, operator by operator. How far kernels are from them is fitted.

A step takes the sum of its terms: weights and KV cross memory, matrices are multiplied, every layer costs some fixed time. Sums fit
published speeds better than the larger of two terms: kernels overlap their own loads and products, not those of their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.arrays import Number, ceil_div, maximum, minimum, where
from calc.operators.operator import Operator
from calc.operators.work import Work
from calc.timing import network
from calc.timing.roofline import Ceilings
from calc.timing.setting import Setting

_MICROSECOND = 1e-6
#: Rows of the smallest tile of a grouped product: an expert that any token hits costs as many rows (CUTLASS, DeepGEMM, MMQ: 64).
_TILE_ROWS = 64
#: llama.cpp hands at most so many prompt tokens at once to a pipeline of devices (n_batch).
_PIPELINE_TOKENS = 2048

TERMS = (
    "decode.weights",
    "decode.kv",
    "decode.fixed",
    "decode.compute",
    "decode.sequences",
    "prefill.linear",
    "prefill.attention",
    "prefill.weights",
    "prefill.fixed",
    "prefill.tiles",
    "collective",
)
Sizes = dict[str, Number]


@dataclass(frozen=True, slots=True)
class Mix:
    """What the work of a step is made of: output tokens (one new token a request, or a few under speculation) and prompt tokens.

    ``passes`` of the model that the prompt is cut into; ``speedup`` of devices that hold layers in turn while micro-batches of a
    prompt follow each other; ``calls`` of operators that are no collectives, which share the fixed time.
    """

    decode_tokens: Number
    prompt_tokens: Number
    passes: Number
    speedup: Number
    calls: int


def mix(operators: list[Operator], setting: Setting, work: Work) -> Mix:
    """Split the work of a step. In a mixed step the groups with one new token decode."""
    decode: Number = 0
    for group in work.groups:
        if work.phase == "decode" or (work.phase != "prefill" and isinstance(group.new, int) and group.new == 1):
            decode = decode + group.count * group.new
    prompt = maximum(work.tokens - decode, 0)
    passes = maximum(_ceil(prompt, setting.micro_batch), 1)
    speedup: Number = 1.0
    if setting.layer_split > 1:
        in_flight = maximum(minimum(prompt, _PIPELINE_TOKENS) / setting.micro_batch, 1)
        speedup = where(prompt > 0, network.pipeline_speedup(in_flight, setting.layer_split), 1.0)
    calls = sum(o.count for o in operators if o.collective is None)
    return Mix(decode, prompt, passes, speedup, max(calls, 1))


def _ceil(tokens: Number, size: int) -> Number:
    return ceil_div(tokens, size) if isinstance(tokens, int) else -((-tokens) // size)


def operator_sizes(operator: Operator, ceilings: Ceilings, setting: Setting, parts: Mix) -> Sizes:
    """Terms of one call of an operator on one rank. Raises ValueError for a device without a rate."""
    if operator.collective is not None:
        return _collective(operator, ceilings, setting)
    peak, bandwidth = ceilings.peak_for(operator), ceilings.bandwidth_for(operator.compute_dtype)
    if not peak or not bandwidth:  # callers refuse such devices before any time is asked for
        raise ValueError(f"{ceilings.name} has no rate for {operator.compute_dtype}")
    found = _fixed(setting, parts)
    if operator.op_class in ("gemm", "experts"):
        _linear(found, operator, parts, peak, bandwidth)
        _unpacking(found, operator, setting, parts, bandwidth)
    elif operator.op_class in ("attention", "recurrent"):
        _attention(found, operator, parts, peak, bandwidth)
    _weights(found, operator, parts, bandwidth)
    if operator.name == "lm_head":
        found["decode.sequences"] = parts.decode_tokens * _MICROSECOND / operator.count
    if setting.layer_split > 1:
        return {term: seconds / parts.speedup for term, seconds in found.items()}
    return found


def _fixed(setting: Setting, parts: Mix) -> Sizes:
    """1 us a layer and pass, shared by all calls: launches, small kernels, gaps. A step with a prompt runs without captured graphs."""
    seconds = setting.layers * _MICROSECOND / parts.calls
    has_prompt = where(parts.prompt_tokens > 0, 1, 0)
    return {"decode.fixed": seconds * (1 - has_prompt), "prefill.fixed": seconds * parts.passes * has_prompt}


def _weights(found: Sizes, operator: Operator, parts: Mix, bandwidth: float) -> None:
    """Weights cross memory once per pass; those of the head only in the last."""
    seconds = operator.weight_bytes / bandwidth
    decodes = where(parts.decode_tokens > 0, 1, 0)
    passes = 1 if operator.name == "lm_head" else parts.passes
    _add(found, "decode.weights", seconds * decodes)
    _add(found, "prefill.weights", seconds * passes * (1 - decodes))


def _linear(found: Sizes, operator: Operator, parts: Mix, peak: float, bandwidth: float) -> None:
    """Products of prompt rows, and of decode rows beyond the first (whose products hide behind the weights)."""
    seconds = operator.flops / peak
    share = _share(parts.decode_tokens, parts.prompt_tokens)
    _add(found, "decode.compute", seconds * share * (1 - 1 / maximum(parts.decode_tokens, 1)))
    _add(found, "prefill.linear", seconds * (1 - share))
    _add(found, "decode.kv", (operator.kv_write_bytes + operator.kv_read_bytes) / bandwidth)
    if operator.op_class == "experts":
        shape = operator.shape
        tile = 2 * _TILE_ROWS * shape["active"] * shape["n"] * shape["k"] / peak
        _add(found, "prefill.tiles", tile * parts.passes * where(parts.prompt_tokens > 0, 1, 0))


def _unpacking(found: Sizes, operator: Operator, setting: Setting, parts: Mix, bandwidth: float) -> None:
    """Weights unpacked to 16 bit in memory are written and read once more in every pass of a prompt."""
    if not setting.unpacks_in_memory or operator.weight_format in ("", "bf16", "fp16", "fp32") or operator.name == "lm_head":
        return
    elements = operator.flops / (2 * maximum(parts.decode_tokens + parts.prompt_tokens, 1))
    _add(found, "prefill.weights", 4 * elements / bandwidth * parts.passes * where(parts.prompt_tokens > 0, 1, 0))


def _attention(found: Sizes, operator: Operator, parts: Mix, peak: float, bandwidth: float) -> None:
    """Rows that see one key each per stored key stream the cache (decode); the pairs beyond that are products (prefill)."""
    streamed = (operator.kv_read_bytes + operator.kv_write_bytes + operator.state_bytes) / bandwidth
    seconds = operator.flops / peak
    share = _streaming_share(operator, parts)
    _add(found, "decode.kv", maximum(streamed, seconds * share) * where(parts.decode_tokens > 0, 1, 0))
    _add(found, "prefill.attention", maximum(seconds * (1 - share), streamed * where(parts.decode_tokens > 0, 0, 1)))


def _streaming_share(operator: Operator, parts: Mix) -> Number:
    """Share of an attention operator's products that belong to decode rows."""
    pairs: Any = operator.shape.get("pairs")
    keys: Any = operator.shape.get("keys")
    if pairs is None or keys is None:
        return _share(parts.decode_tokens, parts.prompt_tokens)
    alone = where(parts.prompt_tokens > 0, 0, 1)
    ratio = maximum(keys, 0) / maximum(pairs, 1)
    mixed = where(parts.decode_tokens > 0, 1, 0) * where(ratio > 1, 1.0, ratio)
    return alone + (1 - alone) * mixed


def _share(decode: Number, prompt: Number) -> Number:
    return decode / maximum(decode + prompt, 1e-9)


def _collective(operator: Operator, ceilings: Ceilings, setting: Setting) -> Sizes:
    """What the message usually costs by algorithm and size; how far a whole step is from that is an effect."""
    collective, wires = operator.collective, ceilings.link
    if collective is None or wires is None:
        return {}
    return {"collective": network.cost(collective, wires, one_shot_kernels=setting.family in network.ONE_SHOT_ENGINES).usual_s}


def _add(found: Sizes, term: str, seconds: Number) -> None:
    found[term] = found.get(term, 0.0) + seconds


def step_sizes(operators: list[Operator], ceilings: Ceilings, setting: Setting, work: Work) -> Sizes:
    """Terms of a whole step: every call of every operator."""
    parts = mix(operators, setting, work)
    total: Sizes = {}
    for operator in operators:
        for term, seconds in operator_sizes(operator, ceilings, setting, parts).items():
            total[term] = total.get(term, 0.0) + seconds * operator.count
    return total
