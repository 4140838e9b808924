"""The vision towers of Step-3 and Step-3.7."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.towers.counting import grid, layer_norm, linear, patches, transformer
from calc.profiles.model import Tower


def step3_flash(root: Config, v: Config, hidden_size: int) -> Tower:
    """Step-3.7: layer scales, no patch bias, no class token, a norm before the layers; each halving doubles the width."""
    width, inner, layers = v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("num_hidden_layers")
    v.ignore("num_attention_heads", "num_channels", "mlp_ratio", "max_position_embeddings")
    total = patches(v, width, bias=False) + grid(v) * width + layer_norm(width)
    total += transformer(width, inner, layers, extra=2 * width)
    total += linear(9 * width, 2 * width) + linear(9 * 2 * width, 4 * width)
    total += linear(4 * width, hidden_size, bias=root.flag("projector_bias"))
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers, tokens_per_item=grid(v))


def step3(root: Config, v: Config, hidden_size: int) -> Tower:
    """EVA-CLIP layers, two convolutions that halve the grid twice, one matrix."""
    width, inner, layers = v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("num_hidden_layers")
    v.ignore("num_attention_heads")
    output, tokens = v.integer("output_hidden_size"), grid(v)
    total = patches(v, width, bias=True) + width + (tokens + 1) * width + transformer(width, inner, layers)
    root.ignore("understand_projector_stride")
    total += linear(width * 2 * 2, output) + linear(output * 3 * 3, 2 * output)
    total += linear(2 * output, hidden_size, bias=root.flag("projector_bias"))
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers, tokens_per_item=tokens + 1)
