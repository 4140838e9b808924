"""Phi 1 to 4: the LayerNorm generation and the Llama-like one."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.mechanisms.attention import HIDDEN, bias, geometry
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, Family, decoder, windows
from calc.profiles.importers.mechanisms.feed_forward import gated, plain


def phi(c: Config) -> Draft:
    """Phi-1 and 2: one LayerNorm for attention and feed-forward side by side, bias everywhere, on the head too."""
    g = geometry(c, **bias(True))
    if c.flag("qk_layernorm"):
        g |= {"qk_norm": "head", "qk_norm_bias": True}
    part = plain(c, hidden=c.integer(*HIDDEN), bias=True)
    return decoder(c, g, part, norms=1, parallel=True, norm=LAYER_NORM, lm_head_bias=True)


def phi3(c: Config) -> Draft:
    """Fused qkv and gate_up in the weights; otherwise Llama."""
    words, window = windows(c, lambda _: "sliding")
    g = geometry(c, **bias(c.flag("attention_bias")))
    part = gated(c, bias=c.flag("mlp_bias"))
    return decoder(c, g, part, words=words, window=window, lm_head_bias=c.flag("lm_head_bias"))


def phi3small(c: Config) -> Draft:
    """LayerNorm, bias everywhere, gated, tied."""
    c.warn("block-sparse attention layers are counted as full attention: their cache is full, their reads and FLOPs an upper bound")
    c.ignore("dense_attention_every_n_layers", "blocksparse_block_size", "blocksparse_num_local_blocks", "blocksparse_vert_stride")
    part = gated(c, bias=True, keys=("ff_intermediate_size", "intermediate_size"))
    return decoder(c, geometry(c, **bias(True)), part, norm=LAYER_NORM, tie=True)


_PHI = {
    "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}  # fmt: skip
_PHI3 = _PHI | {"vocab_size": 32064, "hidden_size": 3072, "num_hidden_layers": 32, "max_position_embeddings": 4096}
_SMALL = {
    "vocab_size": 100352, "hidden_size": 4096, "ff_intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 8192,
}  # fmt: skip

FAMILIES = {
    "phi": Family(phi, _PHI),
    "phi-msft": Family(phi, {}),
    "phi3": Family(phi3, _PHI3),
    "phi3small": Family(phi3small, _SMALL),
}
