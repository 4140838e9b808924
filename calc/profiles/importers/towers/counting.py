"""Parameter counts of the pieces that towers are made of."""

from __future__ import annotations

from calc.profiles.importers.config import Config


def linear(d_in: int, d_out: int, *, bias: bool = True) -> int:
    """A matrix and its bias."""
    return d_in * d_out + (d_out if bias else 0)


def layer_norm(width: int) -> int:
    """Gain and bias."""
    return 2 * width


def patches(c: Config, width: int, *, bias: bool, channels: int = 3, frames: int = 1) -> int:
    """The convolution that embeds a patch."""
    size = side(c, "patch_size")
    return linear(channels * frames * size * size, width, bias=bias)


def side(c: Config, key: str, default: int | None = None) -> int:
    """A square's side, given as a number or as a list of equal numbers."""
    value = c.get(key)
    if isinstance(value, list) and value:
        sides = c.integers(key, minimum=1, maximum=1 << 20) or [1]
        if len(set(sides)) > 1:
            raise c.fault(key, f"{sides} is not square")
        return sides[0]
    return c.integer(key, maximum=1 << 20) if default is None else c.integer(key, default=default, maximum=1 << 20)


def grid(c: Config) -> int:
    """Patches of one image."""
    image, patch = side(c, "image_size"), side(c, "patch_size")
    if image < patch:
        raise c.fault("patch_size", f"{patch} is larger than the image of {image}")
    return (image // patch) ** 2


def transformer(width: int, intermediate: int, layers: int, *, bias: bool = True, norm: int | None = None, extra: int = 0) -> int:
    """Layers of four square projections, a plain feed-forward part of two matrices, two norms and ``extra``."""
    attention = 4 * linear(width, width, bias=bias)
    part = linear(width, intermediate, bias=bias) + linear(intermediate, width, bias=bias)
    return layers * (attention + part + 2 * (layer_norm(width) if norm is None else norm) + extra)
