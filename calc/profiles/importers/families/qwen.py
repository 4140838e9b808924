"""Qwen 1.5 to 3, dense."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.mechanisms.attention import bias, geometry
from calc.profiles.importers.mechanisms.decoder import Family, decoder, windows
from calc.profiles.importers.mechanisms.feed_forward import gated
from calc.profiles.model import DenseFeedForward


def qwen_windows(c: Config) -> tuple[list[str], int | None]:
    """The window is inert unless ``use_sliding_window``; then it holds from layer ``max_window_layers`` on."""
    first = c.count("max_window_layers", default=28)
    return windows(c, lambda i: "sliding" if i >= first else "full", switch="use_sliding_window")


def qwen(c: Config) -> Draft:
    """Qwen 1: bias on q, k and v; ``intermediate_size`` counts both halves of the gated part."""
    c.ignore("no_bias", "seq_length", "use_dynamic_ntk", "use_logn_attn")
    width = c.integer("intermediate_size")
    if width % 2:
        raise c.fault("intermediate_size", f"is {width:,}; an even number is expected")
    part = DenseFeedForward(intermediate_size=width // 2)
    return decoder(c, geometry(c, **bias(qkv=True, out=False)), part)


def qwen2(c: Config) -> Draft:
    """Bias on q, k and v, always."""
    words, window = qwen_windows(c)
    c.ignore("attention_bias", "qkv_bias")  # copies state what the class fixes
    return decoder(c, geometry(c, **bias(qkv=True, out=False)), gated(c), words=words, window=window)


def qwen3(c: Config) -> Draft:
    """Norms on queries and keys of each head, no bias."""
    words, window = qwen_windows(c)
    g = geometry(c, **bias(c.flag("attention_bias", "qkv_bias")), qk_norm="head")
    return decoder(c, g, gated(c), words=words, window=window)


SIZES = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "max_position_embeddings": 32768, "sliding_window": 4096,
}  # fmt: skip

FAMILIES = {
    "qwen": Family(qwen, {"vocab_size": 151936}),
    "qwen2": Family(qwen2, SIZES),
    "qwen3": Family(qwen3, SIZES | {"head_dim": 128}),
}
