"""Qwen's vision transformers and their mergers of 2 x 2 patches."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.towers.counting import layer_norm, linear, patches, transformer
from calc.profiles.model import Tower


def _patches(v: Config, width: int, *, bias: bool) -> int:
    frames = v.integer("temporal_patch_size", default=2)
    return patches(v, width, bias=bias, channels=v.integer("in_channels", "in_chans", default=3), frames=frames)


def _merged(v: Config, width: int) -> int:
    return width * v.integer("spatial_merge_size", default=2) ** 2


def _mlp(merged: int, target: int) -> int:
    return linear(merged, merged) + linear(merged, target)


def qwen2_vl(root: Config, v: Config, hidden_size: int) -> Tower:
    """LayerNorm, plain feed-forward of ``mlp_ratio``; ``hidden_size`` is the width of the output."""
    v.defaults = {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "patch_size": 14}
    width, layers = v.integer("embed_dim"), v.layers("depth")
    v.ignore("num_heads")
    target = v.integer("hidden_size", default=hidden_size)
    inner = int(v.number("mlp_ratio", default=4) * width)
    total = _patches(v, width, bias=False) + transformer(width, inner, layers)
    total += layer_norm(width) + _mlp(_merged(v, width), target)
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers)


def qwen2_5_vl(root: Config, v: Config, hidden_size: int) -> Tower:
    """RMSNorm, gated feed-forward with bias, windowed attention in most layers."""
    v.defaults = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "patch_size": 14}
    width, inner, layers = v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("depth")
    v.ignore("num_heads", "window_size", "fullatt_block_indexes", "spatial_patch_size", "tokens_per_second")
    layer = 4 * linear(width, width) + 2 * linear(width, inner) + linear(inner, width) + 2 * width
    target = v.integer("out_hidden_size", default=hidden_size)
    total = _patches(v, width, bias=False) + layers * layer + width + _mlp(_merged(v, width), target)
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers)


def qwen3_vl(root: Config, v: Config, hidden_size: int) -> Tower:
    """Learned positions, LayerNorm, one merger and one more for each deepstack level, whose norm comes after the shuffle."""
    v.defaults = {
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [],
    }  # fmt: skip
    width, inner, layers = v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("depth")
    v.ignore("num_heads")
    target = v.integer("out_hidden_size", default=hidden_size)
    merged = _merged(v, width)
    levels = len(v.items("deepstack_visual_indexes") or [])
    total = _patches(v, width, bias=True) + v.integer("num_position_embeddings") * width
    total += transformer(width, inner, layers) + layer_norm(width) + _mlp(merged, target)
    total += levels * (layer_norm(merged) + _mlp(merged, target))
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers)
