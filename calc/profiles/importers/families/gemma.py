"""Gemma 1 to 3: tied, head size from the config, four norms and windows from Gemma 2 on."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.mechanisms.attention import bias, geometry
from calc.profiles.importers.mechanisms.decoder import Family, decoder, windows
from calc.profiles.importers.mechanisms.feed_forward import gated
from calc.profiles.importers.mechanisms.patterns import every


def gemma(c: Config) -> Draft:
    """Two norms, full attention."""
    return decoder(c, geometry(c, **bias(c.flag("attention_bias"))), gated(c), tie=True)


def gemma2(c: Config) -> Draft:
    """Even layers slide."""
    words, window = windows(c, every(2))
    return decoder(c, geometry(c, **bias(c.flag("attention_bias"))), gated(c), words=words, window=window, norms=4, tie=True)


def gemma3(c: Config) -> Draft:
    """Five sliding layers, then a full one; norms on queries and keys."""
    words, window = windows(c, every(c.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)))
    g = geometry(c, **bias(c.flag("attention_bias")), qk_norm="head")
    return decoder(c, g, gated(c), words=words, window=window, norms=4, tie=True)


_GEMMA = {
    "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 16, "head_dim": 256, "max_position_embeddings": 8192,
}  # fmt: skip
_GEMMA2 = _GEMMA | {
    "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
    "sliding_window": 4096,
}  # fmt: skip

FAMILIES = {
    "gemma": Family(gemma, _GEMMA),
    "gemma2": Family(gemma2, _GEMMA2),
    "gemma3_text": Family(gemma3, _GEMMA2 | {"vocab_size": 262208, "max_position_embeddings": 131072}),
}
