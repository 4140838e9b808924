"""The towers of Gemma 3, 3n and 4."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.towers import vit
from calc.profiles.importers.towers.counting import grid, linear
from calc.profiles.model import Tower

#: Convolutional towers known by name only: parameters from the published checkpoint.
_NAMED = {"mobilenetv5_300m_enc": 294126912}


def gemma3(root: Config, v: Config, hidden_size: int) -> Tower:
    """SigLIP, a norm and one matrix; the patches of an image are pooled into ``mm_tokens_per_image``."""
    parameters, width = vit.siglip(v), v.integer("hidden_size")
    v.word("model_type")
    return Tower(
        modality="vision",
        parameters=parameters + width + width * hidden_size,
        hidden_size=width,
        num_layers=v.layers("num_hidden_layers"),
        tokens_per_item=grid(v),
        output_tokens_per_item=root.integer("mm_tokens_per_image", default=256),
    )


def _embedder(c: Config, width: int, hidden_size: int) -> int:
    """Gemma 3n: a table of special tokens with its norm, a norm of the soft tokens, one matrix."""
    c.ignore("vocab_offset")
    return c.integer("vocab_size", default=128) * width + 2 * width + width * hidden_size


def gemma3n_vision(root: Config, v: Config, hidden_size: int) -> Tower:
    """MobileNet-V5, known by name."""
    name = v.word("architecture", default="mobilenetv5_300m_enc") or ""
    if name not in _NAMED:
        raise v.unknown("architecture", name, _NAMED, "vision tower")
    width = v.integer("hidden_size", default=2048)
    tokens = root.integer("vision_soft_tokens_per_image", default=256)
    return Tower(
        modality="vision",
        parameters=_NAMED[name] + _embedder(v, width, hidden_size),
        hidden_size=width,
        output_tokens_per_item=tokens,
    )


def _conformer(width: int, heads: int, layers: int, kernel: int) -> int:
    """Two feed-forward parts of four times the width, attention with relative positions, a gated depthwise convolution."""
    feed_forward = 2 * (8 * width * width + 2 * width)
    attention = 5 * width * width + 2 * width + width // heads
    convolution = 3 * width * width + kernel * width + 2 * width
    return layers * (feed_forward + attention + convolution + width)


def _subsampling(channels: list[int], width: int, features: int) -> int:
    """Two 3 x 3 convolutions of stride 2 with group norms, and the matrix behind them."""
    first, second = [*channels, 128, 32][:2]
    return 9 * first + first + 9 * first * second + second + second * (features // 4) * width


def _audio(root: Config, a: Config, channels: tuple[str, ...], kernel: str, heads: str, layers: str) -> tuple[int, int, int]:
    width, number, depth = a.integer("hidden_size"), a.integer(heads), a.layers(layers)
    if width % number:
        raise a.fault(heads, f"{number} does not divide {width}")
    features = a.integer("input_feat_size", default=128)
    total = _conformer(width, number, depth, a.integer(kernel, default=5))
    return total + _subsampling(a.integers(*channels) or [], width, features), width, depth


def gemma3n_audio(root: Config, a: Config, hidden_size: int) -> Tower:
    """A conformer and the table and norms that lead into the text model."""
    a.ignore("conf_attention_chunk_size", "conf_attention_context_left", "conf_attention_context_right", "conf_reduction_factor")
    a.ignore("sscp_conv_kernel_size", "sscp_conv_stride_size")
    total, width, depth = _audio(
        root, a, ("sscp_conv_channel_size",), "conf_conv_kernel_size", "conf_num_attention_heads", "conf_num_hidden_layers"
    )
    tokens = root.integer("audio_soft_tokens_per_image", default=188)
    parameters = total + _embedder(a, width, hidden_size)
    return Tower(modality="audio", parameters=parameters, hidden_size=width, num_layers=depth, output_tokens_per_item=tokens)


def gemma4_audio(root: Config, a: Config, hidden_size: int) -> Tower:
    """The same conformer with an output projection, and one matrix into the text model."""
    a.ignore("attention_chunk_size", "attention_context_left", "attention_context_right", "use_clipped_linears")
    total, width, depth = _audio(
        root, a, ("subsampling_conv_channels",), "conv_kernel_size", "num_attention_heads", "num_hidden_layers"
    )
    output = a.integer("output_proj_dims", default=1536)
    parameters = total + linear(width, output) + output * hidden_size
    return Tower(modality="audio", parameters=parameters, hidden_size=width, num_layers=depth)


def gemma4_vision(root: Config, v: Config, hidden_size: int) -> Tower:
    """No bias, gated feed-forward, four norms, norms on queries and keys, one table of positions for each axis."""
    width, inner, layers = v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("num_hidden_layers")
    heads, size = v.integer("num_attention_heads"), v.integer("head_dim")
    keys = v.integer("num_key_value_heads", default=heads)
    v.ignore("global_head_dim", "pooling_kernel_size", "default_output_length", "max_position_embeddings", "use_clipped_linears")
    attention = 2 * width * heads * size + 2 * width * keys * size + 2 * size
    layer = attention + 3 * width * inner + 4 * width
    patch = 3 * v.integer("patch_size") ** 2 * width
    total = patch + 2 * v.integer("position_embedding_size", default=10240) * width + layers * layer
    total += 2 * width if v.flag("standardize") else 0
    tokens = root.optional("vision_soft_tokens_per_image")
    return Tower(
        modality="vision",
        parameters=total + width * hidden_size,
        hidden_size=width,
        num_layers=layers,
        output_tokens_per_item=tokens,
    )
