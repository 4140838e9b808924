"""Decoders between GPT and Llama: LayerNorm with rotary positions. Cohere, StableLM, StarCoder2, Nemotron."""

from __future__ import annotations

import msgspec

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.mechanisms.attention import bias, geometry
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, PLAIN_LAYER_NORM, Family, decoder, windows
from calc.profiles.importers.mechanisms.feed_forward import gated, plain
from calc.profiles.importers.mechanisms.patterns import every


def cohere(c: Config) -> Draft:
    """One norm without bias for attention and feed-forward side by side, tied; Command-R+ normalises whole projections."""
    norm = "projection" if c.flag("use_qk_norm") else "none"
    g = geometry(c, **bias(c.flag("attention_bias")), qk_norm=norm)
    return decoder(c, g, gated(c), norms=1, parallel=True, norm=PLAIN_LAYER_NORM, tie=True)


def cohere2(c: Config) -> Draft:
    """Every fourth layer is full and without positions."""
    words, window = windows(c, every(c.integer("sliding_window_pattern", "_sliding_window_pattern", default=4)))
    g = geometry(c, **bias(c.flag("attention_bias")))
    found = decoder(c, g, gated(c), words=words, window=window, norms=1, parallel=True, norm=PLAIN_LAYER_NORM, tie=True)
    if window:
        bare = {word: [_bare(m) for m in kind.mixers] for word, kind in zip(words, found.layers, strict=True) if word == "full"}
        found.layers = [
            msgspec.structs.replace(kind, mixers=bare[word]) if word in bare else kind
            for word, kind in zip(words, found.layers, strict=True)
        ]
    return found


def _bare(mixer: object) -> object:
    return msgspec.structs.replace(mixer, positions="none", rotary_dim=None)  # type: ignore[type-var]


def stablelm(c: Config) -> Draft:
    """Bias on q, k, v by a flag; the norms of queries and keys have no bias and one gain per head."""
    parallel = c.flag("use_parallel_residual")
    norm = "projection" if c.flag("qk_layernorm") else "none"
    g = geometry(c, **bias(qkv=c.flag("use_qkv_bias"), out=False), qk_norm=norm)
    return decoder(c, g, gated(c), norms=1 if parallel else 2, parallel=parallel, norm=LAYER_NORM)


def starcoder2(c: Config) -> Draft:
    """Bias everywhere, plain feed-forward, one window for all layers."""
    everywhere = c.flag("use_bias", default=True)
    kind = c.word("mlp_type", default="default")
    if kind != "default":
        raise c.unknown("mlp_type", kind, ["default"], "kind of feed-forward part")
    words, window = windows(c, lambda _: "sliding")
    g = geometry(c, **bias(everywhere))
    return decoder(c, g, plain(c, bias=everywhere), words=words, window=window, norm=LAYER_NORM, tie=True)


def nemotron(c: Config) -> Draft:
    """Nemotron-4 and Minitron: plain feed-forward (squared ReLU)."""
    g = geometry(c, **bias(c.flag("attention_bias")))
    return decoder(c, g, plain(c, bias=c.flag("mlp_bias")), norm=LAYER_NORM)


_COHERE = {
    "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64,
    "max_position_embeddings": 8192,
}  # fmt: skip
_STABLELM = {
    "vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "max_position_embeddings": 4096, "partial_rotary_factor": 0.25,
}  # fmt: skip
_STARCODER2 = {
    "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30, "num_attention_heads": 24,
    "num_key_value_heads": 2, "max_position_embeddings": 4096,
}  # fmt: skip
_NEMOTRON = {
    "vocab_size": 256000, "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 32, "num_attention_heads": 48,
    "max_position_embeddings": 4096, "partial_rotary_factor": 0.5,
}  # fmt: skip

FAMILIES = {
    "cohere": Family(cohere, _COHERE),
    "cohere2": Family(cohere2, _COHERE | {"sliding_window": 4096}),
    "stablelm": Family(stablelm, _STABLELM),
    "starcoder2": Family(starcoder2, _STARCODER2),
    "nemotron": Family(nemotron, _NEMOTRON),
}
