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
    prompt follow each other; ``calls`` of operators that are no collectives, which share the fixed time. ``decodes`` and ``prompts``
    are 1 where there are tokens of the kind, else 0: plain numbers in a step of one phase, so that its arrays do no idle work.
    """

    decode_tokens: Number
    prompt_tokens: Number
    passes: Number
    speedup: Number
    calls: int
    decodes: Number
    prompts: Number


def mix(operators: list[Operator], setting: Setting, work: Work) -> Mix:
    """Split the work of a step. In a mixed step the groups with one new token decode."""
    decode: Number = 0
    for group in work.groups:
        if work.phase == "decode" or (work.phase != "prefill" and isinstance(group.new, int) and group.new == 1):
            decode = decode + group.count * group.new
    prompt: Number = 0 if work.phase == "decode" else maximum(work.tokens - decode, 0)
    passes = maximum(_ceil(prompt, setting.micro_batch), 1)
    speedup: Number = 1.0
    if setting.layer_split > 1:
        in_flight = maximum(minimum(prompt, _PIPELINE_TOKENS) / setting.micro_batch, 1)
        speedup = where(prompt > 0, network.pipeline_speedup(in_flight, setting.layer_split), 1.0)
    calls = sum(o.count for o in operators if o.collective is None)
    decodes = 1 if work.phase == "decode" else where(decode > 0, 1, 0)
    prompts = 1 if work.phase == "prefill" else where(prompt > 0, 1, 0)
    return Mix(decode, prompt, passes, speedup, max(calls, 1), decodes, prompts)


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
    return {"decode.fixed": seconds * (1 - parts.prompts), "prefill.fixed": seconds * parts.passes * parts.prompts}


def _weights(found: Sizes, operator: Operator, parts: Mix, bandwidth: float) -> None:
    """Weights cross memory once per pass; those of the head only in the last."""
    seconds = operator.weight_bytes / bandwidth
    passes = 1 if operator.name == "lm_head" else parts.passes
    _add(found, "decode.weights", _times(seconds, parts.decodes))
    _add(found, "prefill.weights", _times(seconds * passes, 1 - parts.decodes))


def _linear(found: Sizes, operator: Operator, parts: Mix, peak: float, bandwidth: float) -> None:
    """Products of prompt rows, and of decode rows beyond the first (whose products hide behind the weights)."""
    seconds = operator.flops / peak
    share = _share(parts.decode_tokens, parts.prompt_tokens)
    if not _is_zero(share):
        _add(found, "decode.compute", _times(seconds, share) * (1 - 1 / maximum(parts.decode_tokens, 1)))
    _add(found, "prefill.linear", _times(seconds, 1 - share))
    _add(found, "decode.kv", (operator.kv_write_bytes + operator.kv_read_bytes) / bandwidth)
    if operator.op_class == "experts":
        shape = operator.shape
        tile = 2 * _TILE_ROWS * shape["active"] * shape["n"] * shape["k"] / peak
        _add(found, "prefill.tiles", _times(tile, parts.prompts) * parts.passes)


def _unpacking(found: Sizes, operator: Operator, setting: Setting, parts: Mix, bandwidth: float) -> None:
    """Weights unpacked to 16 bit in memory are written and read once more in every pass of a prompt."""
    if not setting.unpacks_in_memory or operator.weight_format in ("", "bf16", "fp16", "fp32") or operator.name == "lm_head":
        return
    elements = operator.flops / (2 * maximum(parts.decode_tokens + parts.prompt_tokens, 1))
    _add(found, "prefill.weights", _times(4 * elements / bandwidth * parts.passes, parts.prompts))


def _attention(found: Sizes, operator: Operator, parts: Mix, peak: float, bandwidth: float) -> None:
    """Rows that see one key each per stored key stream the cache (decode); the pairs beyond that are products (prefill)."""
    streamed = (operator.kv_read_bytes + operator.kv_write_bytes + operator.state_bytes) / bandwidth
    seconds = operator.flops / peak
    share = _streaming_share(operator, parts)
    if not _is_zero(parts.decodes):
        _add(found, "decode.kv", _times(maximum(streamed, _times(seconds, share)), parts.decodes))
    _add(found, "prefill.attention", maximum(_times(seconds, 1 - share), _times(streamed, 1 - parts.decodes)))


def _streaming_share(operator: Operator, parts: Mix) -> Number:
    """Share of an attention operator's products that belong to decode rows."""
    pairs: Any = operator.shape.get("pairs")
    keys: Any = operator.shape.get("keys")
    if pairs is None or keys is None:
        return _share(parts.decode_tokens, parts.prompt_tokens)
    if _is_zero(parts.prompts) or _is_zero(parts.decodes):
        return 1 - parts.prompts
    alone = 1 - parts.prompts
    ratio = maximum(keys, 0) / maximum(pairs, 1)
    mixed = parts.decodes * where(ratio > 1, 1.0, ratio)
    return alone + (1 - alone) * mixed


def _share(decode: Number, prompt: Number) -> Number:
    if _is_zero(decode) or _is_zero(prompt):
        return 0.0 if _is_zero(decode) else 1.0
    return decode / maximum(decode + prompt, 1e-9)


def _collective(operator: Operator, ceilings: Ceilings, setting: Setting) -> Sizes:
    """What the message usually costs by algorithm and size; how far a whole step is from that is an effect."""
    collective, wires = operator.collective, ceilings.link
    if collective is None or wires is None:
        return {}
    return {"collective": network.cost(collective, wires, one_shot_kernels=setting.family in network.ONE_SHOT_ENGINES).usual_s}


def _is_zero(value: Number) -> bool:
    return isinstance(value, (int, float)) and value == 0


def _times(seconds: Number, factor: Number) -> Number:
    """The product, without work where the factor is a plain 0 or 1."""
    if isinstance(factor, (int, float)) and factor in (0, 1):
        return seconds if factor else 0.0
    return seconds * factor


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
