"""The vision towers of Llama 3.2 and Llama 4."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.towers.counting import grid, layer_norm, linear, patches, transformer
from calc.profiles.model import Tower


def llama4(root: Config, v: Config, hidden_size: int) -> Tower:
    """CLIP-like layers, a pixel shuffle with two matrices, and one that leads to the text model."""
    v.defaults = {
        "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 448, "patch_size": 14,
        "projector_input_dim": 4096, "projector_output_dim": 4096, "vision_output_dim": 7680,
    }  # fmt: skip
    width, inner, layers = v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("num_hidden_layers")
    v.ignore("num_attention_heads", "num_channels")
    ratio = v.number("pixel_shuffle_ratio", default=0.5)
    if not 0 < ratio <= 1:
        raise v.fault("pixel_shuffle_ratio", f"is {ratio}; a share of the side is expected")
    tokens = grid(v)
    total = patches(v, width, bias=False) + width + (tokens + 1) * width + 2 * layer_norm(width)
    total += transformer(width, inner, layers)
    shuffled, middle, output = int(width / ratio**2), v.integer("projector_input_dim"), v.integer("projector_output_dim")
    total += shuffled * middle + middle * output + v.integer("vision_output_dim") * hidden_size
    return Tower(
        modality="vision",
        parameters=total,
        hidden_size=width,
        num_layers=layers,
        tokens_per_item=tokens + 1,
        output_tokens_per_item=int(tokens * ratio**2),
    )


def mllama(root: Config, v: Config, hidden_size: int) -> Tower:
    """Local and gated global layers without attention bias, tables of positions for up to ``max_num_tiles`` tiles."""
    v.defaults = {
        "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8, "image_size": 448,
        "patch_size": 14, "max_num_tiles": 4, "vision_output_dim": 7680,
    }  # fmt: skip
    width, inner, layers = v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("num_hidden_layers")
    wide = v.layers("num_global_layers")
    v.ignore("attention_heads", "num_attention_heads", "num_channels", "intermediate_layers_indices")
    tiles, positions = v.integer("max_num_tiles"), grid(v) + 1
    ratios = len(v.items("supported_aspect_ratios") or [0] * 8) + 1
    layer = 4 * width * width + linear(width, inner) + linear(inner, width) + 2 * layer_norm(width)
    total = patches(v, width, bias=False) + width + positions * width + 1  # the table of one tile and its gate
    total += ratios * tiles * positions * width + 2 * (ratios * tiles * width + 1)  # tile positions, before and after the layers
    total += 2 * layer_norm(width) + layers * layer + wide * (layer + 2)
    total += linear(v.integer("vision_output_dim"), hidden_size)
    return Tower(
        modality="vision",
        parameters=total,
        hidden_size=width,
        num_layers=layers + wide,
        tokens_per_item=tiles * positions,
        output_tokens_per_item=tiles * positions,
    )
