"""Kimi delta attention beside latent attention: Kimi-Linear, Kimi K3, Ling 3."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft
from calc.profiles.importers.families.moe import mixed
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, latent
from calc.profiles.importers.mechanisms.decoder import Family, model
from calc.profiles.importers.mechanisms.feed_forward import experts, shared_by_count, sparse_after_first
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import every, indices, layer_words
from calc.profiles.importers.mechanisms.recurrent import kimi_delta
from calc.profiles.model import Experts, Extra, KimiDeltaAttention, LayerKind


def _routed(c: Config) -> Experts:
    width = c.integer("moe_intermediate_size")
    latent_size = c.optional("routed_expert_hidden_size")
    shared = shared_by_count(c, width, "num_shared_experts", "n_shared_experts")
    return experts(c, shared=shared, correction_bias=True, latent_size=latent_size)


def _kimi_layers(c: Config, count: int) -> tuple[set[int], KimiDeltaAttention]:
    """(layers with latent attention from 0, the mixer of the others): a section that counts from 1, or ``layer_types``."""
    s = c.section("linear_attn_config")
    if s is None:
        if not c.has("layer_types"):
            raise c.fault("linear_attn_config", "and layer_types are missing")
        words = layer_words(c, count, lambda _: "full", allowed=("full", "linear"))
        kernel = c.integer("linear_conv_kernel_dim", default=4)
        mixer = kimi_delta(c.integer("linear_num_heads"), c.integer("linear_head_dim"), kernel)
        return {i for i, word in enumerate(words) if word == "full"}, mixer
    attended, linear = indices(s, "full_attn_layers", count, first=1), indices(s, "kda_layers", count, first=1)
    if attended is None:
        raise s.fault("full_attn_layers", "is missing")
    if linear is not None and (attended & linear or attended | linear != set(range(count))):
        raise s.fault("kda_layers", "and full_attn_layers together are not each layer once")
    s.ignore("gate_lower_bound")
    kernel = s.integer("short_conv_kernel_size", default=4)
    return attended, kimi_delta(s.integer("num_heads"), s.integer("head_dim"), kernel, full_output=s.flag("use_full_rank_gate"))


def kimi_linear(c: Config) -> Draft:
    """Layer numbers count from 1. K3 adds latent experts with a norm, an output gate, and attention over residuals: a norm and a score
    vector before the mixer, before the feed-forward part and before the head. Its decay rates are stored head_dim wide, one per head is
    used (tensor names and shapes of the checkpoint, as SGLang's kimi_k3.py loads them)."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "mla_use_nope", "use_grouped_topk")
    attended, mixer = _kimi_layers(c, count)
    gate = "elementwise" if c.flag("mla_use_output_gate") else "none"
    attention = latent(c, output_gate=gate)
    parts = mixed(c, sparse_after_first(c, count), _routed(c))
    is_k3 = c.has("attn_res_block_size")
    residual = [Extra(name="residual_attention", elements=4 * hidden, kind="vector")] if is_k3 else []
    unused = max(0, mixer.head_dim - mixer.num_heads) if is_k3 else 0
    normed = c.flag("latent_moe_use_norm")

    def layer(i: int) -> LayerKind:
        part, extras = parts[i], list(residual)
        if normed and isinstance(part, Experts) and part.latent_size:
            extras.append(Extra(name="latent_norm", elements=part.latent_size, kind="vector"))
        if unused and i not in attended:
            extras.append(Extra(name="unused_decay", elements=unused, kind="vector"))
        return LayerKind(mixers=[attention if i in attended else mixer], feed_forwards=[part], extras=extras)

    found = model(c, [layer(i) for i in range(count)])
    if is_k3:
        found.extras.append(Extra(name="residual_attention", elements=2 * hidden, kind="vector"))
    return _with_next_token(c, found, attention, _routed(c))


def bailing_hybrid(c: Config) -> Draft:
    """Ling 3: both gates of the delta attention are full matrices, latent attention has a gate per head."""
    count = c.layers(*LAYERS)
    words = layer_words(c, count, every(c.integer("layer_group_size", default=6), other="linear"), allowed=("full", "linear"))
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "kda_safe_gate", "kda_lower_bound")
    mixer = kimi_delta(
        c.integer("linear_num_heads", "num_attention_heads"),
        c.integer("linear_head_dim"),
        c.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4),
        full_decay=True,
        full_output=True,
    )
    c.ignore("short_conv_kernel_size")
    attention = latent(c, output_gate="head")
    routed = _routed(c)
    parts = mixed(c, sparse_after_first(c, count), routed)
    layers = [LayerKind(mixers=[attention if words[i] == "full" else mixer], feed_forwards=[parts[i]]) for i in range(count)]
    return _with_next_token(c, model(c, layers), attention, routed)


def _with_next_token(c: Config, found: Draft, attention: object, routed: Experts) -> Draft:
    modules = c.count("num_nextn_predict_layers")
    if modules:
        layer = LayerKind(mixers=[attention], feed_forwards=[routed])  # type: ignore[list-item]
        found.next_token = NextTokenDraft(modules, [layer], joining(found.hidden_size))
    return found


_KIMI = {
    "vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_hidden_layers": 27,
    "num_attention_heads": 32, "num_shared_experts": 1, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "qk_nope_head_dim": 128, "num_experts_per_token": 8, "num_experts": 256,
}  # fmt: skip
_LING = _KIMI | {
    "vocab_size": 157184, "hidden_size": 2560, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 42,
    "first_k_dense_replace": 2, "num_experts": 512, "linear_head_dim": 128, "linear_num_heads": 32,
}  # fmt: skip

FAMILIES = {"kimi_linear": Family(kimi_linear, _KIMI), "bailing_hybrid": Family(bailing_hybrid, _LING)}
