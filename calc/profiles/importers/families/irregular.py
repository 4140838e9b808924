"""Stacks whose layers differ one by one (Nemotron-NAS, DeciLM) and Llama 3.2 Vision's text model."""

from __future__ import annotations

import math

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, stack_of
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, full, geometry, sliding
from calc.profiles.importers.mechanisms.decoder import Family, model
from calc.profiles.importers.mechanisms.feed_forward import gated
from calc.profiles.importers.mechanisms.patterns import indices
from calc.profiles.importers.towers.counting import grid
from calc.profiles.model import CrossAttention, DenseFeedForward, Extra, FeedForward, LayerKind, Mixer


def _block(c: Config, entry: Config, hidden: int, heads: int) -> LayerKind:
    """One entry of ``block_configs``: each part may be replaced by a matrix or dropped with its norm."""
    attention, ffn = entry.section("attention"), entry.section("ffn")
    if attention is None or ffn is None:
        raise entry.fault("attention", "or ffn is missing")
    mixers: list[Mixer] = []
    parts: list[FeedForward] = []
    extras: list[Extra] = []
    norms = 0
    if attention.flag("replace_with_linear"):
        extras.append(Extra(name="attention_matrix", elements=hidden * hidden, kind="matrix"))
        norms += 1
    elif not attention.flag("no_op"):
        group = attention.integer("n_heads_in_group")
        if heads % group:
            raise attention.fault("n_heads_in_group", f"{group} does not divide {heads} heads")
        g = geometry(c, kv_heads=heads // group)
        window = attention.optional("window_length")
        mixers.append(sliding(g, window) if window else full(g))
        norms += 1
    if ffn.flag("replace_with_linear"):
        extras.append(Extra(name="ffn_matrix", elements=hidden * hidden, kind="matrix"))
        norms += 1
    elif not ffn.flag("no_op"):
        parts.append(DenseFeedForward(intermediate_size=_width(ffn, hidden)))
        norms += 1
    return LayerKind(mixers=mixers, feed_forwards=parts, norms=norms, extras=extras)


def _width(ffn: Config, hidden: int) -> int:
    given = ffn.optional("intermediate_size")
    if given:
        return given
    factor = ffn.number("ffn_mult", default=0)
    if not 0 < factor < 1000:
        raise ffn.fault("ffn_mult", f"is {factor}")
    return 256 * max(1, math.ceil(int(2 * factor * hidden / 3) / 256))


def nemotron_nas(c: Config) -> Draft:
    """``block_configs``, one a layer."""
    count, hidden, heads = c.layers(*LAYERS), c.integer(*HIDDEN), c.integer("num_attention_heads")
    entries = c.items("block_configs")
    if entries is None:
        raise c.fault("block_configs", "is missing")
    c.check_length("block_configs", entries, count)
    c.ignore("intermediate_size", "num_key_value_heads")
    layers: list[LayerKind] = []
    known: list[tuple[object, LayerKind]] = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise c.fault("block_configs", f"entry {number} is not an object")
        kind = next((k for e, k in known if e == entry), None)
        if kind is None:
            kind = _block(c, Config(c.document, entry, c, f"block_configs[{number}]"), hidden, heads)
            known = [*known[-63:], (entry, kind)]
        layers.append(kind)
    return model(c, layers)


def deci(c: Config) -> Draft:
    """DeciLM: Llama with key-value heads per layer."""
    count = c.layers(*LAYERS)
    keys = c.per_layer("num_key_value_heads_per_layer", "num_key_value_heads", count=count)
    mixers = {k: full(geometry(c, kv_heads=k)) for k in set(keys)}
    dense = gated(c)
    return model(c, stack_of(count, lambda i: mixers[keys[i]], lambda _: dense))


def mllama(c: Config) -> Draft:
    """Cross-attention layers to the image, gated by a scalar on each part; eight embedding rows more than the head has."""
    count = c.layers(*LAYERS)
    crossing = indices(c, "cross_attention_layers", count) or set()
    g = geometry(c)
    image = c.parent.section("vision_config") if c.parent else None
    tokens = image.integer("max_num_tiles", default=4) * (grid(image) + 1) if image else 4 * 1025
    cross = CrossAttention(
        **(g | {"positions": "none", "rotary_dim": None, "qk_norm": "head"}), source_tokens=tokens, tanh_gate=True
    )
    dense, own = gated(c), full(g)
    found = model(c, stack_of(count, lambda i: cross if i in crossing else own, lambda _: dense))
    found.embedding_rows = (found.vocab_size or 0) + 8
    return found


_MLLAMA = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 8, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "max_position_embeddings": 131072,
}  # fmt: skip

FAMILIES = {
    "nemotron-nas": Family(nemotron_nas, {}),
    "deci": Family(deci, {}),
    "mllama_text_model": Family(mllama, _MLLAMA),
}
