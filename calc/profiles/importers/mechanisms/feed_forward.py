"""Feed-forward parts from config keys: dense, routed experts, shared experts, and which layers are sparse."""

from __future__ import annotations

from typing import Any

from calc.profiles.importers.config import Config
from calc.profiles.importers.mechanisms.patterns import indices, layer_words
from calc.profiles.model import DenseFeedForward, Experts, Extra, SharedExperts

WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")


def gated(c: Config, *, bias: bool = False, keys: tuple[str, ...] = WIDTH, **fields: Any) -> DenseFeedForward:
    """SwiGLU, GeGLU: three matrices."""
    return DenseFeedForward(intermediate_size=c.integer(*keys), bias=bias, **fields)


def plain(
    c: Config, *, hidden: int | None = None, bias: bool = False, keys: tuple[str, ...] = WIDTH, **fields: Any
) -> DenseFeedForward:
    """Two matrices; ``hidden`` gives the width 4 x hidden where the key is null or absent."""
    width = c.integer(*keys) if hidden is None else c.optional(*keys) or 4 * hidden
    return DenseFeedForward(intermediate_size=width, gated=False, bias=bias, **fields)


def experts(
    c: Config, *, width: tuple[str, ...] = ("moe_intermediate_size",), shared: SharedExperts | None = None, **fields: Any
) -> Experts:
    """Routed experts; ``width`` are the spellings of one expert's size, which differ most between families."""
    number = c.integer(*EXPERTS, maximum=1 << 20)
    chosen = c.integer(*PER_TOKEN, maximum=1 << 20)
    if chosen > number + fields.get("zero_experts", 0):
        key = next((k for k in PER_TOKEN if k in c.data), PER_TOKEN[0])
        raise c.fault(key, f"is {chosen:,}; there are {number:,} experts")
    return Experts(num_experts=number, num_experts_per_token=chosen, intermediate_size=c.integer(*width), shared=shared, **fields)


def shared_by_count(c: Config, width: int, *keys: str, **fields: Any) -> SharedExperts | None:
    """Shared experts given as a number of experts of the routed width (DeepSeek and its kin)."""
    number = c.optional(*(keys or SHARED), minimum=0) or 0
    return SharedExperts(intermediate_size=number * width, **fields) if number else None


def shared_by_width(c: Config, *keys: str, **fields: Any) -> SharedExperts | None:
    """A shared expert given by its width; 0 or absent means none."""
    width = c.optional(*keys, minimum=0)
    return SharedExperts(intermediate_size=width, **fields) if width else None


def shared_bias(shared: SharedExperts, hidden: int) -> Extra:
    """Bias of the matrices of shared experts, which the part itself does not describe."""
    return Extra(name="shared_experts_bias", elements=(2 if shared.gated else 1) * shared.intermediate_size + hidden, kind="vector")


def sparse_after_first(c: Config, count: int, *, default_first: int = 0) -> list[bool]:
    """``mlp_layer_types``, else DeepSeek's rule: dense layers first, then every ``moe_layer_freq``-th sparse, or a 0/1 list."""
    if c.has("mlp_layer_types"):
        c.ignore("first_k_dense_replace", "moe_layer_freq")
        words = layer_words(c, count, lambda _: "", keys=("mlp_layer_types",), allowed=("experts", "dense"), beyond=64)
        return [word == "experts" for word in words]
    frequency = c.get("moe_layer_freq")
    if isinstance(frequency, list):
        flags = c.integers("moe_layer_freq", maximum=1) or []
        c.check_length("moe_layer_freq", flags, count, beyond=64)
        c.ignore("first_k_dense_replace")
        return [bool(flag) for flag in flags[:count]]
    first = c.count("first_k_dense_replace", default=default_first)
    step = c.integer("moe_layer_freq", default=1)
    return [i >= first and i % step == 0 for i in range(count)]


def sparse_by_step(c: Config, count: int) -> list[bool]:
    """Qwen's rule: every ``decoder_sparse_step``-th layer unless listed in ``mlp_only_layers``."""
    step = c.integer("decoder_sparse_step", default=1)
    dense = indices(c, "mlp_only_layers", count) or set()
    return [i not in dense and (i + 1) % step == 0 for i in range(count)]
