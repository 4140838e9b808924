"""Which kernel stands for an operator, with its sizes; or the reason why none does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calc.measure.cases import attention as attention_cases
from calc.measure.cases import index as index_cases
from calc.operators.experts import computing_per_token
from calc.operators.operator import Operator
from calc.operators.work import Work
from calc.profiles.model import (
    CompressedAttention,
    Experts,
    GatedDeltaNet,
    Heads,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    ModelProfile,
    Rwkv,
)

#: (kernel, shape, parameters beyond the shape).
Chosen = tuple[str, dict[str, Any], dict[str, Any]]

_ACTIVATIONS = ("act_and_mul", "activation", "experts_activation", "shared_activation")
#: Products of two branches, one of them behind a function.
_GATES = {"gate": "silu", "branch_mul": "gelu", "receptance_mul": "sigmoid", "output_gate_mul": "sigmoid"}
_ROTARY = {
    "rope": "rope",
    "qk_norm": "qk_norm",
    "q_norm": "qk_norm",
    "qk_norm_rope": "qk_norm_rope",
    "index_rope": "rope",
    "index_norm_rope": "qk_norm_rope",
}
_EXTRA = "the profile gives the number of these weights, not their shape"


def choose(operator: Operator, model: ModelProfile, step: Work) -> Chosen | str:
    """(kernel, shape, parameters) of an operator, or the reason why it has no kernel."""
    op_class, shape = operator.op_class, operator.shape
    if op_class == "collective":
        return "collectives need several devices"
    if operator.flops <= 0 and operator.bytes <= 0:
        return "moves nothing and computes nothing under this fusion policy"
    if "elements" in shape:
        return _EXTRA
    if op_class == "gemm" and {"m", "n", "k"} <= shape.keys():
        return _product(operator)
    if op_class == "experts" and {"m", "n", "k", "active"} <= shape.keys():
        return _experts(operator, model)
    if op_class == "recurrent":
        return _recurrent(operator, model)
    if operator.name in index_cases.NAMES:
        return index_cases.choose(operator, model, step)
    if op_class == "attention":
        return attention_cases.kernel(operator, model)
    rows: dict[str, Any] = {key: round(float(shape[key])) for key in ("m", "n") if key in shape}
    if len(rows) == 2:
        if op_class == "norm":
            return ("layer_norm" if model.norm.kind == "layer" else "rms_norm"), rows, {"bias": model.norm.bias}
        if op_class == "embedding":
            return "embedding", rows, {"rows": model.embedding_rows or model.vocab_size or 0}
        if op_class == "elementwise":
            return _elementwise(operator, model, rows)
    return f"no kernel for {operator.name} of class {op_class}"


def _product(operator: Operator) -> Chosen:
    sizes: dict[str, Any] = {key: int(operator.shape[key]) for key in ("m", "n", "k", "copies") if key in operator.shape}
    if operator.compute_dtype in ("fp8", "int8"):
        return ("scaled_experts" if "copies" in sizes else "scaled_gemm"), sizes, {"format": operator.weight_format}
    return ("grouped_gemm" if "copies" in sizes else "gemm"), sizes, {}


def _experts(operator: Operator, model: ModelProfile) -> Chosen:
    shape = operator.shape
    active = max(1, round(float(shape["active"])))
    sizes = {"rows": max(active, round(float(shape["m"] * shape["active"]))), "active": active}
    sizes |= {key: int(shape[key]) for key in ("n", "k")}
    own: dict[str, Any] = {}
    part = _part(operator, model)
    if model.routing_skew and part:
        own = {"skew": model.routing_skew, "experts": part.num_experts, "per_token": computing_per_token(part)}
    if operator.compute_dtype in ("fp8", "int8"):
        return "scaled_experts", sizes, own | {"format": operator.weight_format}
    return "experts", sizes, own


def _elementwise(operator: Operator, model: ModelProfile, rows: dict[str, Any]) -> Chosen | str:
    name, width, part = operator.name, rows["n"], _part(operator, model)
    if name in _ACTIVATIONS:
        gated = name != "activation"
        if part and name == "experts_activation":
            gated = part.gated
        if part and part.shared and name == "shared_activation":
            gated = part.shared.gated
        return ("gated_activation" if gated else "activation"), rows, {}
    if name in _GATES:
        return "gated_activation", rows, {"function": _GATES[name]} | _gate_width(operator, model)
    if name in _ROTARY:
        found = _rotated(operator, model)
        return (_ROTARY[name], rows, {"head_dim": found[0], "rotary_dim": found[1]}) if found else "its head size is not known"
    if name in ("latent_norm", "dt_b_c_norms"):
        parts = next((p for p in map(_normed_parts, _mixers(operator, model)) if sum(p) == width), None)
        return ("part_norms", rows, {"parts": parts}) if parts else "the parts that are normalised are not known"
    if name == "gated_norm":
        found_norm = next((n for n in (_normed_group(m, width // 2) for m in _mixers(operator, model)) if n), None)
        return ("gated_norm", rows, found_norm) if found_norm else "the group that is normalised is not known"
    if name in ("moe_permute", "moe_combine") and part:
        return name, rows, {"tokens": max(1, round(float(operator.shape["m"]) / computing_per_token(part)))}
    if name == "router_topk" and part:
        return "router_topk", rows, {"top": min(part.num_experts_per_token, width)}
    return ("kv_cache_write", rows, {}) if name == "kv_cache_write" else f"no kernel for {name}"


def _recurrent(operator: Operator, model: ModelProfile) -> Chosen | str:
    """Recurrent mixers that plain torch can stand in for."""
    name, form = operator.name, str(operator.detail.get("form", ""))
    sizes: dict[str, Any] = {key: int(value) for key, value in operator.shape.items()}
    if sizes.get("tokens", 0) % sizes.get("sequences", 1):
        return "requests of unequal length have no kernel yet"
    if name == "causal_conv1d":
        return "conv1d", sizes, {}
    if name in ("time_shift", "channel_shift"):
        mixes = round(float(operator.weight_bytes) / 2 / sizes["channels"])  # one 16-bit vector each
        return "token_shift", sizes, {"mixes": mixes}
    if name == "rg_lru":
        return "recurrence", sizes, {}
    if name == "selective_scan":
        return "selective_scan", sizes, {}
    if form not in ("stepwise", "chunked"):
        return f"no kernel for {name} in {form or 'this'} form"
    if name == "ssd_scan":
        return "ssd_scan", sizes, {"form": form}
    kernel = "step" if form == "stepwise" else "chunks"
    if name in ("gated_delta_rule", "kimi_delta_rule"):
        own = {"delta": True, "decay": "channel" if name == "kimi_delta_rule" else "head", "bonus": False}
        return f"delta_{kernel}", sizes, own
    version = next((m.version for m in _mixers(operator, model) if isinstance(m, Rwkv)), None)
    if version == 7:
        return "RWKV-7 removes by another vector than it writes by: no kernel yet"
    if name in ("lightning_attention", "rwkv_time_mix"):
        square = {"key_head_dim": sizes["head_dim"], "value_head_dim": sizes["head_dim"]}
        own = {"delta": False, "decay": "channel" if version else "head", "bonus": bool(version)}
        return f"decay_{kernel}", sizes | square, own
    return f"no kernel for {name}"


def _mixers(operator: Operator, model: ModelProfile) -> Iterator[Any]:
    kind = model.layer_kinds.get(operator.layers)
    yield from kind.mixers if kind else ()


def _part(operator: Operator, model: ModelProfile) -> Experts | None:
    """The mixture of experts of the operator's layer."""
    kind = model.layer_kinds.get(operator.layers)
    return next((p for p in (kind.feed_forwards if kind else ()) if isinstance(p, Experts)), None)


def _rotated(operator: Operator, model: ModelProfile) -> tuple[int, int] | None:
    """(head size, turned part of it) of the attention whose queries and keys an element-wise operator turns: the first of its layer
    whose heads divide the width."""
    for mixer in _mixers(operator, model):
        sizes = index_cases.rotated(mixer) if operator.name.startswith("index_") else _head(mixer)
        if sizes and operator.shape["n"] % sizes[0] == 0:
            return sizes
    return None


def _head(mixer: Any) -> tuple[int, int] | None:
    if isinstance(mixer, Heads):
        return mixer.head_dim, mixer.rotary_dim or mixer.head_dim
    if isinstance(mixer, LatentAttention) and mixer.qk_rope_head_dim:
        return mixer.qk_rope_head_dim, mixer.qk_rope_head_dim
    return (mixer.rotary_dim, mixer.rotary_dim) if isinstance(mixer, CompressedAttention) else None


def _gate_width(operator: Operator, model: ModelProfile) -> dict[str, int]:
    """One value a head where the mixer gates its heads; nothing where every channel has its own."""
    for mixer in _mixers(operator, model):
        if operator.name == "output_gate_mul" and getattr(mixer, "output_gate", "none") == "head":
            width = int(operator.shape["n"])
            return {"gate": width // (mixer.v_head_dim + 1)}
    return {}


def _normed_parts(mixer: Any) -> list[int]:
    if isinstance(mixer, LatentAttention):
        return [mixer.q_lora_rank, mixer.kv_lora_rank] if mixer.q_lora_rank else [mixer.kv_lora_rank]
    if isinstance(mixer, CompressedAttention):
        return [mixer.query_rank, mixer.head_dim]
    return [mixer.dt_rank, mixer.state_size, mixer.state_size] if isinstance(mixer, Mamba1) else []


def _normed_group(mixer: Any, width: int) -> dict[str, Any] | None:
    """Channels that share a norm behind a recurrent mixer."""
    if isinstance(mixer, Rwkv):
        return {"group": mixer.head_dim, "norm": "group"}
    if isinstance(mixer, GatedDeltaNet):
        return {"group": mixer.value_head_dim, "norm": "rms"}
    if isinstance(mixer, KimiDeltaAttention):
        return {"group": mixer.head_dim, "norm": "rms"}
    if isinstance(mixer, Mamba2):
        group = mixer.num_heads * mixer.head_dim // mixer.num_groups
        return {"group": group if width % group == 0 else width, "norm": "rms"}
    return {"group": width, "norm": "rms"} if isinstance(mixer, LightningAttention) else None
