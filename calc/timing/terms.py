"""The physical terms of a step: sizes in seconds at datasheet rates, operator by operator. How far kernels are from them is fitted.

A step takes the sum of its terms: weights and KV cross memory, matrices are multiplied, every layer costs some fixed time. Sums fit
published speeds better than the larger of two terms: kernels overlap their own loads and products, not those of their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, maximum, minimum, where
from calc.operators.operator import Operator
from calc.operators.work import Work
from calc.timing import network, paths, pipeline
from calc.timing.roofline import Ceilings
from calc.timing.setting import Setting

_MICROSECOND = 1e-6
#: Rows of the smallest tile of a grouped product: an expert that any token hits costs as many rows (CUTLASS, DeepGEMM, MMQ: 64).
_TILE_ROWS = 64
#: llama.cpp hands at most so many prompt tokens at once to a pipeline of devices (n_batch).
_PIPELINE_TOKENS = 2048
#: Rows that the grouped product gathers as it loads them and adds up as it stores them (vLLM fused_moe, TensorRT-LLM's finalize epilogue,
#: llama.cpp mul_mat_id): they cross no memory of their own.
_INSIDE_PRODUCTS = ("moe_permute", "moe_combine")

#: Terms of a prompt that each of its passes adds to, however few tokens are in it.
_PER_PASS = ("prefill.fixed", "prefill.weights", "prefill.tiles")

Sizes = dict[str, Number]


@dataclass(frozen=True, slots=True)
class Mix:
    """What the work of a step is made of: output tokens (one new token a request, or a few under speculation) and prompt tokens.

    ``passes`` of the model that the prompt is cut into; ``speedup`` of devices that hold layers in turn while micro-batches of a
    prompt follow each other, ``pass_speedup`` of what each pass costs whatever its tokens; ``calls`` of operators that are no
    collectives, which share the fixed time. ``decodes`` and ``prompts`` are 1 where there are tokens of the kind, else 0: plain numbers
    in a step of one phase, so that its arrays do no idle work.
    """

    decode_tokens: Number
    prompt_tokens: Number
    passes: Number
    speedup: Number
    pass_speedup: Number
    calls: int
    decodes: Number
    prompts: Number


def mix(operators: list[Operator], setting: Setting, work: Work) -> Mix:
    """Split the work of a step. In a mixed step the groups with one new token decode."""
    decode, prompt = _split(work)
    passes = pipeline.prompt_passes(prompt, setting.micro_batch)
    speedup = each = stages_at_once(setting, work)
    if setting.stages > 1 and work.phase == "prefill":
        each = pipeline.pipeline_speedup(passes, setting.stages)
    calls = sum(o.count for o in operators if o.collective is None)
    return Mix(decode, prompt, passes, speedup, each, max(calls, 1), where(decode > 0, 1, 0), where(prompt > 0, 1, 0))


def stages_at_once(setting: Setting, work: Work) -> Number:
    """Pipeline stages that work at once on average while a prompt passes through them micro-batch by micro-batch."""
    _, prompt = _split(work)
    if setting.layer_split > 1:
        in_flight = pipeline.prompt_micro_batches(minimum(prompt, _PIPELINE_TOKENS), setting.micro_batch)
        return where(prompt > 0, pipeline.pipeline_speedup(in_flight, setting.layer_split), 1.0)
    if setting.stages > 1 and work.phase == "prefill":
        return pipeline.pipeline_speedup(pipeline.prompt_micro_batches(prompt, setting.micro_batch), setting.stages)
    return 1.0


def _split(work: Work) -> tuple[Number, Number]:
    """Decode and prompt tokens; a pure step has a plain 0 of the other, so that arrays cost nothing for terms it lacks."""
    if work.phase == "decode":
        return work.tokens, 0
    if work.phase == "prefill":
        return 0, work.tokens
    decode: Number = 0
    for group in work.groups:
        if isinstance(group.new, int) and group.new == 1:
            decode = decode + group.count
    return decode, maximum(work.tokens - decode, 0)


def operator_sizes(operator: Operator, ceilings: Ceilings, setting: Setting, parts: Mix) -> Sizes:
    """Terms of one call of an operator on one rank. Raises ValueError for a device without a rate."""
    if operator.collective is not None:
        found = _collective(operator, ceilings, setting)
        return found if setting.stages == 1 else {term: seconds / parts.speedup for term, seconds in found.items()}
    peak, bandwidth = ceilings.peak_for(operator), ceilings.bandwidth_for(operator.compute_dtype)
    if not peak or not bandwidth:  # callers refuse such devices before any time is asked for
        raise ValueError(f"{ceilings.name} has no rate for {operator.compute_dtype}")
    found = _fixed(setting, parts)
    if operator.is_product:
        _linear(found, operator, setting, parts, peak, bandwidth)
        _unpacking(found, operator, setting, parts, bandwidth)
    elif operator.op_class in ("attention", "recurrent"):
        _attention(found, operator, parts, peak, bandwidth)
    elif operator.name not in _INSIDE_PRODUCTS:
        _add(found, "prefill.activations", operator.activation_bytes / bandwidth, parts.prompts)
    _weights(found, operator, parts, bandwidth)
    if operator.name == "lm_head":
        _add(found, "decode.sequences", parts.decode_tokens * (_MICROSECOND / operator.count))
    if setting.layer_split > 1 or setting.stages > 1:
        return {term: seconds / (parts.pass_speedup if term in _PER_PASS else parts.speedup) for term, seconds in found.items()}
    return found


def _fixed(setting: Setting, parts: Mix) -> Sizes:
    """1 us a layer and pass, shared by all calls: launches, small kernels, gaps. A step with a prompt runs without captured graphs."""
    seconds = setting.layers * _MICROSECOND / parts.calls
    found: Sizes = {}
    _add(found, "decode.fixed", seconds, 1 - parts.prompts)
    _add(found, "prefill.fixed", seconds * parts.passes, parts.prompts)
    return found


def _weights(found: Sizes, operator: Operator, parts: Mix, bandwidth: float) -> None:
    """Weights cross memory once per pass; those of the head only in the last."""
    seconds = operator.weight_bytes / bandwidth
    passes = 1 if operator.name == "lm_head" else parts.passes
    _add(found, "decode.weights", seconds, parts.decodes)
    _add(found, "prefill.weights", seconds * passes, 1 - parts.decodes)


def _linear(found: Sizes, operator: Operator, setting: Setting, parts: Mix, peak: float, bandwidth: float) -> None:
    """Products of prompt rows, and of decode rows beyond the first (whose products hide behind the weights). Where whole experts are
    dealt out to ranks, all wait for the one that most tokens come to."""
    seconds = operator.flops / peak
    if operator.op_class == "experts" and setting.expert_ranks > 1:
        seconds = seconds * network.imbalance(setting.expert_ranks, operator.shape["m"] * operator.shape["active"])
    share = _share(parts)
    if not _is_zero(share):
        _add(found, "decode.compute", seconds, share * (1 - 1 / maximum(parts.decode_tokens, 1)))
    _add(found, "prefill.linear", seconds, 1 - share)
    _add(found, "decode.kv", (operator.kv_write_bytes + operator.kv_read_bytes) / bandwidth)
    if operator.op_class == "experts":
        shape = operator.shape
        tile = 2 * _TILE_ROWS * shape["active"] * shape["n"] * shape["k"] / peak
        _add(found, "prefill.tiles", tile * parts.passes, parts.prompts)


def _unpacking(found: Sizes, operator: Operator, setting: Setting, parts: Mix, bandwidth: float) -> None:
    """Weights unpacked to 16 bit in memory are written and read once more in every pass of a prompt."""
    if not setting.unpacks_in_memory or operator.weight_format in paths.PLAIN_WEIGHTS or operator.name == "lm_head":
        return
    elements = operator.flops / (2 * maximum(parts.decode_tokens + parts.prompt_tokens, 1))
    _add(found, "prefill.weights", 4 * elements / bandwidth * parts.passes, parts.prompts)


def _attention(found: Sizes, operator: Operator, parts: Mix, peak: float, bandwidth: float) -> None:
    """Rows that see one key each per stored key stream the cache (decode); the pairs beyond that are products (prefill)."""
    streamed = (operator.kv_read_bytes + operator.kv_write_bytes + operator.state_bytes) / bandwidth
    seconds = operator.flops / peak
    share = _streaming_share(operator, parts)
    if not _is_zero(parts.decodes):
        _add(found, "decode.kv", maximum(streamed, seconds * share), parts.decodes)
    if not _is_zero(parts.prompts):
        _add(found, "prefill.attention", maximum(seconds * (1 - share), streamed * (1 - parts.decodes)), parts.prompts)


def _streaming_share(operator: Operator, parts: Mix) -> Number:
    """Share of an attention operator's products that belong to decode rows: all without a prompt, none without decode rows; between,
    each decode row sees as many pairs as keys."""
    if _is_zero(parts.prompts) or _is_zero(parts.decodes):
        return 1 - parts.prompts
    pairs, keys = operator.shape.get("pairs"), operator.shape.get("keys")
    between = _share(parts) if pairs is None or keys is None else minimum(keys / maximum(pairs, 1), 1.0)
    return 1 - parts.prompts * (1 - parts.decodes * between)


def _share(parts: Mix) -> Number:
    """Share of the tokens of a step that decode."""
    if _is_zero(parts.prompts) or _is_zero(parts.decodes):
        return 1 - parts.prompts
    return parts.decode_tokens / maximum(parts.decode_tokens + parts.prompt_tokens, 1e-9)


def _collective(operator: Operator, ceilings: Ceilings, setting: Setting) -> Sizes:
    """What the message usually costs by algorithm and size; how far a whole step is from that is an effect."""
    collective, wires = operator.collective, ceilings.link_for(operator.collective)
    if collective is None or wires is None:
        return {}
    return {"collective": network.cost(collective, wires, direct_kernels=setting.family in network.DIRECT_ENGINES).usual_s}


def _is_zero(value: Number) -> bool:
    return isinstance(value, (int, float)) and value == 0


def _add(found: Sizes, term: str, seconds: Number, share: Number = 1) -> None:
    """Add ``seconds x share``; nothing where the share is a plain 0."""
    if _is_zero(share):
        return
    seconds = seconds if isinstance(share, int) and share == 1 else seconds * share
    found[term] = found[term] + seconds if term in found else seconds


def step_sizes(operators: list[Operator], ceilings: Ceilings, setting: Setting, work: Work) -> Sizes:
    """Terms of a whole step: every call of every operator."""
    parts = mix(operators, setting, work)
    total: Sizes = {}
    for operator in operators:
        for term, seconds in operator_sizes(operator, ceilings, setting, parts).items():
            total[term] = total.get(term, 0.0) + seconds * operator.count
    return total
