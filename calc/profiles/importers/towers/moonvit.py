"""MoonViT of Kimi-VL and Kimi-K2.5."""

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
