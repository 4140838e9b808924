"""ChatGLM and GLM-4, dense."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, vocabulary
from calc.profiles.importers.mechanisms.attention import bias, geometry
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, RMS, Family, decoder
from calc.profiles.importers.mechanisms.feed_forward import gated


def chatglm(c: Config) -> Draft:
    """Names of its own: ``kv_channels``, ``multi_query_group_num``, ``padded_vocab_size``; bias on q, k and v only."""
    everywhere = c.flag("add_bias_linear")
    groups: tuple[str, ...] | int = ("num_attention_heads",)
    if c.flag("multi_query_attention"):
        groups = ("multi_query_group_num",)
    c.ignore("multi_query_group_num")
    g = geometry(c, kv_heads=groups, **bias(everywhere, qkv=everywhere or c.flag("add_qkv_bias")))
    return decoder(
        c,
        g,
        gated(c, bias=everywhere, keys=("ffn_hidden_size",)),
        norm=RMS if c.flag("rmsnorm", default=True) else LAYER_NORM,
        final_norm=c.flag("post_layer_norm", default=True),
        vocab_size=vocabulary(c, "padded_vocab_size", "vocab_size"),
    )


def glm(c: Config) -> Draft:
    """GLM-4-9B: bias on q, k and v by a flag."""
    return decoder(c, geometry(c, **bias(qkv=c.flag("attention_bias", default=True), out=False)), gated(c))


def glm4(c: Config) -> Draft:
    """GLM-4-0414: norms before and after each part."""
    return decoder(c, geometry(c, **bias(qkv=c.flag("attention_bias", default=True), out=False)), gated(c), norms=4)


_CHATGLM = {
    "padded_vocab_size": 65024, "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28, "num_attention_heads": 32,
    "kv_channels": 128, "seq_length": 2048,
}  # fmt: skip
_GLM = {
    "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "partial_rotary_factor": 0.5, "max_position_embeddings": 131072,
}  # fmt: skip

FAMILIES = {
    "chatglm": Family(chatglm, _CHATGLM),
    "glm": Family(glm, _GLM),
    "glm4": Family(glm4, _GLM),
    "glm4v_text": Family(glm4, _GLM),
}
