"""MoonViT of Kimi-VL, Kimi-K2.5 and Kimi-K3."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.towers.counting import layer_norm, linear, patches, transformer
from calc.profiles.model import Tower


def kimi(root: Config, v: Config, hidden_size: int) -> Tower:
    """SigLIP-like layers, a table of positions that is interpolated, a merger of ``merge_kernel_size`` patches."""
    width = v.integer("vt_hidden_size", "hidden_size")
    inner = v.integer("vt_intermediate_size", "intermediate_size")
    layers = v.layers("vt_num_hidden_layers", "num_hidden_layers")
    v.ignore(
        "vt_num_attention_heads", "num_attention_heads", "init_pos_emb_time", "merge_type", "mm_projector_type", "text_hidden_size"
    )
    v.ignore("mm_hidden_size", "video_attn_type", "pos_emb_type", "projector_ln_eps")
    rows = v.integer("init_pos_emb_height", default=64) * v.integer("init_pos_emb_width", default=64)
    kernel = v.integers("merge_kernel_size", minimum=1, maximum=64) or [2, 2]
    merged = width * kernel[0] * kernel[-1]
    total = patches(v, width, bias=True) + rows * width + transformer(width, inner, layers) + layer_norm(width)
    total += layer_norm(width) + linear(merged, merged) + linear(merged, hidden_size)
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers)


def kimi_k3(root: Config, v: Config, hidden_size: int) -> Tower:
    """Heads together wider or narrower than the layers, RMS norms, no biases; a merger without a norm before it and one behind it
    (MoonViT3d and PatchMergerMLPV2, as in SGLang's kimi_k3_vl.py)."""
    for key, known in (("mlp_type", "mlp2"), ("mm_projector_type", "patchmergerv2"), ("norm_type", "rmsnorm")):
        if (word := v.word(key, default=known)) != known:
            raise v.unknown(key, word, (known,), "part of the tower")
    width, inner, layers = v.integer("vt_hidden_size"), v.integer("vt_intermediate_size"), v.layers("vt_num_hidden_layers")
    heads, merged = v.integer("qkv_hidden_size", default=width), v.integer("mm_hidden_size", default=width)
    v.ignore("vt_num_attention_heads", "init_pos_emb_time", "merge_type", "text_hidden_size", "projector_ln_eps", "pos_emb_type")
    v.ignore("activation_func", "projector_hidden_act", "pos_emb_interpolation_mode")
    rows = v.integer("init_pos_emb_height", default=64) * v.integer("init_pos_emb_width", default=64)
    kernel = v.integers("merge_kernel_size", minimum=1, maximum=64) or [2, 2]
    merged *= kernel[0] * kernel[-1]
    attention_bias, part_bias = v.flag("attn_bias"), v.flag("linear_bias")
    layer = linear(width, 3 * heads, bias=attention_bias) + linear(heads, width, bias=attention_bias)
    layer += linear(width, inner, bias=part_bias) + linear(inner, width, bias=part_bias) + 2 * width
    total = patches(v, width, bias=v.flag("patch_embed_proj_bias")) + rows * width + layers * layer + width
    total += linear(merged, merged, bias=False) + linear(merged, hidden_size, bias=False) + hidden_size
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers)
