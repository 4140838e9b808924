"""Encoders for embeddings and classification: BERT, RoBERTa, DistilBERT, ModernBERT. Prefill only, no cache."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, vocabulary
from calc.profiles.importers.mechanisms.attention import bias, full, geometry, sliding
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, PLAIN_LAYER_NORM, Family
from calc.profiles.importers.mechanisms.patterns import layer_words
from calc.profiles.model import DenseFeedForward, Extra, LayerKind, Mixer


def _head(c: Config, hidden: int, *, pooler: bool) -> list[Extra]:
    """A pooler for embedding models; a transform, a norm and the vocabulary's bias for masked language models."""
    names = [str(name) for name in c.items("architectures") or []]
    if any(name.endswith("ForMaskedLM") for name in names):
        return [
            Extra(name="mlm_transform", elements=hidden * hidden, kind="matrix"),
            Extra(name="mlm_vectors", elements=3 * hidden + vocabulary(c), kind="vector"),
        ]
    if not pooler:
        return []
    return [
        Extra(name="pooler", elements=hidden * hidden, kind="matrix"),
        Extra(name="pooler_bias", elements=hidden, kind="vector"),
    ]


def bert(c: Config) -> Draft:
    """Norms after the parts, learned positions, segment embeddings, bias everywhere."""
    hidden = c.integer("hidden_size", "dim")
    kind = c.word("position_embedding_type", default="absolute")
    if kind != "absolute":
        raise c.unknown("position_embedding_type", kind, ["absolute"], "kind of positions")
    distilled = c.data.get("model_type") == "distilbert"
    g = geometry(c, hidden=hidden, heads=("num_attention_heads", "n_heads"), positions="learned", causal=False, **bias(True))
    part = DenseFeedForward(intermediate_size=c.integer("intermediate_size", "hidden_dim"), gated=False, bias=True)
    segments = 0 if distilled else c.count("type_vocab_size", default=2)
    rows = c.integer("max_position_embeddings")
    extras = _head(c, hidden, pooler=not distilled)
    if segments:
        extras.append(Extra(name="segment_embedding", elements=segments * hidden, kind="table"))
    return Draft(
        hidden_size=hidden,
        vocab_size=vocabulary(c),
        layers=[LayerKind(mixers=[full(g)], feed_forwards=[part])] * c.layers("num_hidden_layers", "n_layers"),
        norm=LAYER_NORM,
        tie_word_embeddings=True,
        has_lm_head=False,
        max_position_embeddings=rows,
        position_embeddings=rows,
        embedding_norm=True,
        final_norm=False,
        extras=extras,
    )


def modernbert(c: Config) -> Draft:
    """Rotary, gated, no bias; every third layer is global, the others see half a window to each side; the first has one norm."""
    hidden, count = c.integer("hidden_size"), c.layers("num_hidden_layers")
    every, window = c.integer("global_attn_every_n_layers", default=3), c.integer("local_attention", default=128)
    c.ignore("classifier_bias", "decoder_bias", "norm_bias", "mlp_bias", "deterministic_flash_attn", "reference_compile")
    g = geometry(c, causal=False, **bias(c.flag("attention_bias")))
    part = DenseFeedForward(intermediate_size=c.integer("intermediate_size"), bias=c.flag("mlp_bias"))
    far: Mixer = full(g)
    near: Mixer = sliding(g, window)
    words = layer_words(c, count, lambda i: "sliding" if i % every else "full")
    mixers = {"sliding": near, "full": far}
    layers = [LayerKind(mixers=[mixers[word]], feed_forwards=[part], norms=2 if i else 1) for i, word in enumerate(words)]
    return Draft(
        hidden_size=hidden,
        vocab_size=vocabulary(c),
        layers=layers,
        norm=LAYER_NORM if c.flag("norm_bias") else PLAIN_LAYER_NORM,
        tie_word_embeddings=True,
        has_lm_head=False,
        max_position_embeddings=c.optional("max_position_embeddings"),
        embedding_norm=True,
        extras=_modern_head(c, hidden),
    )


def _modern_head(c: Config, hidden: int) -> list[Extra]:
    if not any(str(name).endswith("ForMaskedLM") for name in c.items("architectures") or []):
        return []
    bias_rows = vocabulary(c) if c.flag("decoder_bias", default=True) else 0
    return [
        Extra(name="mlm_transform", elements=hidden * hidden, kind="matrix"),
        Extra(name="mlm_vectors", elements=hidden + bias_rows, kind="vector"),
    ]


_BERT = {
    "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "max_position_embeddings": 512,
}  # fmt: skip
_ROBERTA = _BERT | {"vocab_size": 50265}
_DISTIL = {"vocab_size": 30522, "dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12, "max_position_embeddings": 512}
_MODERN = _BERT | {"vocab_size": 50368, "intermediate_size": 1152, "num_hidden_layers": 22, "max_position_embeddings": 8192}

FAMILIES = {
    "bert": Family(bert, _BERT),
    "roberta": Family(bert, _ROBERTA),
    "xlm-roberta": Family(bert, _BERT),
    "distilbert": Family(bert, _DISTIL),
    "modernbert": Family(modernbert, _MODERN),
}
