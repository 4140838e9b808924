"""Plain vision transformers: SigLIP, CLIP, Pixtral, InternViT, and the projectors of the wrappers that use them."""

from __future__ import annotations

from collections.abc import Callable

from calc.profiles.importers.config import Config
from calc.profiles.importers.towers.counting import grid, layer_norm, linear, patches, transformer
from calc.profiles.model import Tower

_CLIP = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224, "patch_size": 32}
_SIGLIP = _CLIP | {"patch_size": 16}
_PIXTRAL = _CLIP | {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 1024, "patch_size": 16}


def _sizes(v: Config) -> tuple[int, int, int]:
    v.ignore("num_attention_heads", "num_channels", "projection_dim", "vocab_size", "head_dim")
    return v.integer("hidden_size"), v.integer("intermediate_size"), v.layers("num_hidden_layers")


def siglip(v: Config) -> int:
    """Patches with bias, learned positions, a final norm; the attention-pooling head only where asked for."""
    v.defaults = _SIGLIP
    width, intermediate, layers = _sizes(v)
    total = patches(v, width, bias=True) + grid(v) * width + transformer(width, intermediate, layers) + layer_norm(width)
    if v.flag("vision_use_head", default=False):
        pool = 4 * linear(width, width) + linear(width, intermediate) + linear(intermediate, width) + layer_norm(width) + width
        total += pool
    return total


def clip(v: Config) -> int:
    """Patches without bias, a class token, norms before and after the layers."""
    v.defaults = _CLIP
    width, intermediate, layers = _sizes(v)
    embedding = patches(v, width, bias=False) + width + (grid(v) + 1) * width
    return embedding + transformer(width, intermediate, layers) + 2 * layer_norm(width)


def pixtral(v: Config) -> int:
    """No bias, rotary positions, gated feed-forward, RMSNorm, a norm before the layers."""
    v.defaults = _PIXTRAL
    width, intermediate, layers = _sizes(v)
    v.ignore("image_size", "rope_parameters")
    return patches(v, width, bias=False) + width + layers * (4 * width * width + 3 * width * intermediate + 2 * width)


_MODELS: dict[str, Callable[[Config], int]] = {
    "siglip_vision_model": siglip,
    "clip_vision_model": clip,
    "pixtral": pixtral,
}


def _tower(v: Config) -> tuple[int, int]:
    """(parameters, width) of the tower by its own model type."""
    kind = v.word("model_type") or "clip_vision_model"
    law = _MODELS.get(kind)
    if law is None:
        raise v.unknown("model_type", kind, _MODELS, "vision tower")
    return law(v), v.integer("hidden_size")


def _image_tokens(v: Config, *, dynamic: bool) -> int | None:
    return None if dynamic else grid(v)


def llava(root: Config, v: Config, hidden_size: int) -> Tower:
    """Two linear layers; LLaVA-NeXT and OneVision add a learned line break."""
    parameters, width = _tower(v)
    bias = root.flag("multimodal_projector_bias", default=True)
    levels = root.get("vision_feature_layer")
    sources = len(levels) if isinstance(levels, list) else 1
    parameters += linear(width * sources, hidden_size, bias=bias) + linear(hidden_size, hidden_size, bias=bias)
    if root.word("model_type") in ("llava_next", "llava_onevision"):
        parameters += hidden_size
    tokens = _image_tokens(v, dynamic=v.word("model_type") == "pixtral")
    return Tower(
        modality="vision",
        parameters=parameters,
        hidden_size=width,
        num_layers=v.layers("num_hidden_layers"),
        tokens_per_item=tokens and tokens + 1,
        output_tokens_per_item=tokens,
    )


def mistral3(root: Config, v: Config, hidden_size: int) -> Tower:
    """A norm and a merger of ``spatial_merge_size`` squared patches before the two linear layers."""
    parameters, width = _tower(v)
    bias = root.flag("multimodal_projector_bias", default=False)
    merge = root.integer("spatial_merge_size", default=2)
    parameters += width + merge * merge * width * width
    parameters += linear(width, hidden_size, bias=bias) + linear(hidden_size, hidden_size, bias=bias)
    return Tower(modality="vision", parameters=parameters, hidden_size=width, num_layers=v.layers("num_hidden_layers"))


def paligemma(root: Config, v: Config, hidden_size: int) -> Tower:
    """SigLIP and one linear layer."""
    parameters, width = _tower(v)
    target = root.integer("projection_dim", default=hidden_size)
    tokens = grid(v)
    return Tower(
        modality="vision",
        parameters=parameters + linear(width, target),
        hidden_size=width,
        num_layers=v.layers("num_hidden_layers"),
        tokens_per_item=tokens,
        output_tokens_per_item=tokens,
    )


def idefics3(root: Config, v: Config, hidden_size: int) -> Tower:
    """SigLIP; ``scale_factor`` squared patches are shuffled into one before a single matrix."""
    parameters, width = siglip(v), v.integer("hidden_size")
    v.ignore("model_type", "size", "max_image_size", "tie_word_embeddings")
    scale = root.integer("scale_factor", default=2, maximum=64)
    return Tower(
        modality="vision",
        parameters=parameters + width * scale * scale * hidden_size,
        hidden_size=width,
        num_layers=v.layers("num_hidden_layers"),
        tokens_per_item=grid(v),
        output_tokens_per_item=max(1, grid(v) // (scale * scale)),
    )


def minimax_m3(root: Config, v: Config, hidden_size: int) -> Tower:
    """CLIP layers without class token and tables of positions; patches of two frames; two mergers of two matrices each."""
    width, intermediate, layers = _sizes(v)
    v.ignore("image_size", "rope_mode", "position_embedding_type", "vision_segment_max_frames", "model_type")
    compression = v.section("img_token_compression_config") or v
    merge = compression.integer("spatial_merge_size", default=2, maximum=64)
    total = patches(v, width, bias=False, frames=compression.integer("temporal_patch_size", default=2, maximum=64))
    total += layer_norm(width) + transformer(width, intermediate, layers)
    inner = root.integer("projector_hidden_size", default=hidden_size)
    total += linear(width, inner) + linear(inner, hidden_size)
    total += linear(merge * merge * hidden_size, inner) + linear(inner, hidden_size)
    compression.ignore("image_token_compression_method")
    root.ignore("merged_hidden_size", "img_token_compression_config", "multimodal_projector_bias")
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers)


def glm4v(root: Config, v: Config, hidden_size: int) -> Tower:
    """Gated layers as wide as the output, RMSNorm, learned positions; a convolution that merges, and a gated merger behind it."""
    width, layers = v.integer("hidden_size"), v.layers("depth")
    output, inner = v.integer("out_hidden_size", default=hidden_size), v.integer("intermediate_size")
    biased = v.flag("attention_bias")
    v.ignore("num_heads")
    merge = v.integer("spatial_merge_size", default=2, maximum=64)
    frames = v.integer("temporal_patch_size", default=2, maximum=64)
    total = patches(v, width, bias=True, frames=frames, channels=v.integer("in_channels", default=3)) + grid(v) * width
    layer = linear(width, 3 * width, bias=biased) + width * width + 3 * width * output + 2 * width
    total += layers * layer + 2 * width  # a norm before the layers and one after them
    total += linear(merge * merge * width, output) + output * output + layer_norm(output) + 3 * output * inner
    return Tower(modality="vision", parameters=total, hidden_size=width, num_layers=layers)


def internvl(root: Config, v: Config, hidden_size: int) -> Tower:
    """InternViT with layer scales; patches are shuffled into ``1 / downsample_ratio`` squared channels before two linear layers."""
    width, intermediate, layers = _sizes(v)
    rms = v.word("norm_type", default="layer_norm") == "rms_norm"
    norm = width if rms else layer_norm(width)
    biased = v.flag("attention_bias", "qkv_bias", default=True)
    normed = v.flag("use_qk_norm", "qk_normalization", default=False)
    extra = 2 * width + (2 * width if normed else 0) - (0 if biased else 3 * width)
    tokens = grid(v)
    total = patches(v, width, bias=True) + width + (tokens + 1) * width
    total += transformer(width, intermediate, layers, norm=norm, extra=extra)
    ratio = root.number("downsample_ratio", default=0.5)
    if not 0 < ratio <= 1:
        raise root.fault("downsample_ratio", f"is {ratio}; a share of the side is expected")
    shuffled = int(width / (ratio * ratio))
    total += layer_norm(shuffled) + linear(shuffled, hidden_size) + linear(hidden_size, hidden_size)
    v.ignore("use_absolute_position_embeddings", "layer_scale_init_value")
    return Tower(
        modality="vision",
        parameters=total,
        hidden_size=width,
        num_layers=layers,
        tokens_per_item=tokens + 1,
        output_tokens_per_item=int(tokens * ratio * ratio),
    )
