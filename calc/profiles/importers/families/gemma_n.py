"""Gemma 3n and 4: shared caches, embeddings per layer, global heads of their own, experts beside the dense part."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, Geometry, bias, full, geometry, rotary_dim, sliding
from calc.profiles.importers.mechanisms.decoder import Family, model, windows
from calc.profiles.importers.mechanisms.feed_forward import experts
from calc.profiles.importers.mechanisms.patterns import every
from calc.profiles.model import DenseFeedForward, Extra, FeedForward, LayerKind, Mixer


def _shared_from(c: Config, count: int) -> int:
    shared = c.count("num_kv_shared_layers")
    if shared >= count:
        raise c.fault("num_kv_shared_layers", f"is {shared} of {count} layers: none would store keys and values")
    return count - shared


def _per_layer_table(c: Config, count: int, hidden: int, width: int) -> list[Extra]:
    """A second embedding with one row per token and layer, a projection of the first one beside it, and a norm."""
    rows = c.integer("vocab_size_per_layer_input", "vocab_size")
    return [
        Extra(name="per_layer_embedding", elements=rows * count * width, kind="table"),
        Extra(name="per_layer_projection", elements=hidden * count * width, kind="matrix"),
        Extra(name="per_layer_projection_norm", elements=width, kind="vector"),
    ]


def _per_layer_input(hidden: int, width: int) -> list[Extra]:
    """What a layer does with its own embedding: a gate, a projection, a norm."""
    return [
        Extra(name="per_layer_gate_proj", elements=2 * hidden * width, kind="matrix"),
        Extra(name="per_layer_norm", elements=hidden, kind="vector"),
    ]


def gemma3n(c: Config) -> Draft:
    """AltUp streams, a low-rank side path (Laurel), the last layers read earlier caches but store key and value weights."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    words, window = windows(c, every(5))
    own = _shared_from(c, count)
    widths = c.per_layer("intermediate_size", count=count)
    streams, rank = c.integer("altup_num_inputs", default=4, maximum=64), c.integer("laurel_rank", default=64)
    c.ignore("altup_active_idx", "altup_correct_scale", "activation_sparsity_pattern")
    side = c.integer("hidden_size_per_layer_input", default=256)
    g = geometry(c, **bias(c.flag("attention_bias")), qk_norm="head")
    extras = [
        Extra(name="laurel_proj", elements=2 * hidden * rank, kind="matrix"),
        Extra(name="laurel_norm", elements=hidden, kind="vector"),
        Extra(name="altup_router", elements=hidden * streams, kind="matrix"),
        Extra(name="altup_coefficients", elements=streams**3 + streams**2 + 2 * hidden, kind="vector"),
        *_per_layer_input(hidden, side),
    ]

    def layer(i: int) -> LayerKind:
        shared = {"kv_source": "shared"} if i >= own else {}
        mixer: Mixer = sliding(g, window, **shared) if words[i] == "sliding" and window else full(g, **shared)
        return LayerKind(mixers=[mixer], feed_forwards=[DenseFeedForward(intermediate_size=widths[i])], norms=4, extras=extras)

    joined = Extra(name="altup_projections", elements=2 * (streams - 1) * hidden * hidden, kind="matrix")
    return model(c, [layer(i) for i in range(count)], tie=True, extras=[*_per_layer_table(c, count, hidden, side), joined])


def _global_heads(c: Config, g: Geometry) -> Geometry:
    """Full layers: a head size of their own; where keys serve as values, also fewer heads and no value weights."""
    size = _listed(c, "head_dim") or c.optional("global_head_dim") or g["head_dim"]
    same = c.flag("attention_k_eq_v")
    keys = c.optional("num_global_key_value_heads") or _listed(c, "num_key_value_heads")
    rope = c.section("rope_parameters")
    wide = rope.section("full_attention") if rope else None
    found = g | {"head_dim": size, "rotary_dim": rotary_dim(wide, size) if wide else None, "k_eq_v": same}
    if same and keys:
        if g["num_attention_heads"] % keys:
            raise c.fault("num_global_key_value_heads", f"{keys} cannot be shared evenly by {g['num_attention_heads']} query heads")
        found["num_key_value_heads"] = keys
    return found


def _listed(c: Config, key: str) -> int | None:
    """Newer files list what differs layer by layer: one value for all layers that are listed."""
    listed = c.section("per_layer_config")
    entries = [listed.section(number) for number in listed.data] if listed else []
    values = {value for entry in entries if entry and (value := entry.optional(key))}
    if len(values) > 1:
        raise c.fault("per_layer_config", f"gives {key} the values {sorted(values)}; one value is expected")
    return values.pop() if values else None


def gemma4(c: Config) -> Draft:
    """Experts beside the dense part in some sizes, embeddings per layer in others; a scalar a layer."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    words, window = windows(c, lambda i: "sliding" if (i + 1) % 6 and i < count - 1 else "full")  # the last layer is full
    own = _shared_from(c, count)
    near = geometry(c, **bias(c.flag("attention_bias")), qk_norm="head")
    far = _global_heads(c, near)
    side = c.count("hidden_size_per_layer_input")
    extras = [Extra(name="layer_scalar", elements=1, kind="vector")] + (_per_layer_input(hidden, side) if side else [])
    width, doubled = c.integer("intermediate_size"), c.flag("use_double_wide_mlp")
    sparse = c.flag("enable_moe_block")
    c.ignore("moe_intermediate_size", "expert_intermediate_size", "num_experts", "top_k_experts", "use_bidirectional_attention")
    routed: list[FeedForward] = []
    if sparse:
        part = experts(c, width=("moe_intermediate_size", "expert_intermediate_size"))
        routed = [part]
        extras.append(Extra(name="router_scales", elements=hidden + part.num_experts, kind="vector"))

    def layer(i: int) -> LayerKind:
        shared = {"kv_source": "shared"} if i >= own else {}
        mixer: Mixer = sliding(near, window, **shared) if words[i] == "sliding" and window else full(far, **shared)
        dense = DenseFeedForward(intermediate_size=width * (2 if doubled and shared else 1))
        return LayerKind(mixers=[mixer], feed_forwards=[dense, *routed], norms=7 if sparse else 4, extras=extras)

    tables = _per_layer_table(c, count, hidden, side) if side else []
    c.ignore("vocab_size_per_layer_input")
    found = model(c, [layer(i) for i in range(count)], tie=True, extras=tables)
    found.module_folders["experts"] = ("experts", "experts.0")
    return found


_GEMMA3N = {
    "vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "vocab_size_per_layer_input": 262144, "num_kv_shared_layers": 15,
    "max_position_embeddings": 32768,
}  # fmt: skip
_GEMMA4 = {
    "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "hidden_size_per_layer_input": 256,
    "max_position_embeddings": 131072,
}  # fmt: skip

FAMILIES = {"gemma3n_text": Family(gemma3n, _GEMMA3N), "gemma4_text": Family(gemma4, _GEMMA4)}
