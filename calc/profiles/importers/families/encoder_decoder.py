"""Encoder-decoders: T5, BART, Whisper. Decoder layers hold two attentions; the second cache is fixed by the input."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, EncoderDraft, vocabulary
from calc.profiles.importers.mechanisms.attention import Geometry, bias, full, geometry
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, RMS, Family
from calc.profiles.model import CrossAttention, DenseFeedForward, Extra, LayerKind


def _cross(g: Geometry, tokens: int) -> CrossAttention:
    return CrossAttention(**(g | {"positions": "none", "rotary_dim": None}), source_tokens=tokens)


def t5(c: Config) -> Draft:
    """RMSNorm, relative positions from a small table (of the first layer; in UMT5 of every layer), gated feed-forward in v1.1."""
    hidden, heads = c.integer("d_model"), c.integer("num_heads")
    depth = c.layers("num_layers")
    decoder_depth = c.integer("num_decoder_layers", default=depth, maximum=20_000)
    tokens = c.integer("n_positions", default=512)
    kind = c.word("feed_forward_proj", default="relu") or "relu"
    c.ignore("dense_act_fn", "is_gated_act", "relative_attention_max_distance")
    g = geometry(c, hidden=hidden, heads=("num_heads",), kv_heads=heads, head_dim=("d_kv",), positions="relative")
    part = DenseFeedForward(intermediate_size=c.integer("d_ff"), gated=kind.startswith("gated"))
    table = Extra(
        name="relative_positions", elements=c.integer("relative_attention_num_buckets", default=32) * heads, kind="vector"
    )
    everywhere = [table] if c.data.get("model_type") == "umt5" else []
    once = [] if everywhere else [table]
    encoder = LayerKind(mixers=[full(g, causal=False)], feed_forwards=[part], extras=everywhere)
    decoder = LayerKind(mixers=[full(g), _cross(g, tokens)], feed_forwards=[part], norms=3, extras=everywhere)
    return Draft(
        hidden_size=hidden,
        vocab_size=vocabulary(c),
        layers=[decoder] * decoder_depth,
        norm=RMS,
        tie_word_embeddings=c.flag("tie_word_embeddings", default=True),
        max_position_embeddings=tokens,
        encoder=EncoderDraft([encoder] * depth, tokens, extras=list(once)),
        extras=list(once),
    )


def _halves(c: Config, hidden: int, **traits: object) -> tuple[Geometry, Geometry]:
    own = {"positions": "learned", **traits}
    inner = geometry(
        c, hidden=hidden, heads=("encoder_attention_heads",), kv_heads=("encoder_attention_heads",), head_dim=(), **own
    )
    outer = geometry(
        c, hidden=hidden, heads=("decoder_attention_heads",), kv_heads=("decoder_attention_heads",), head_dim=(), **own
    )
    return inner, outer


def bart(c: Config) -> Draft:
    """Norms after the parts and after the embeddings, bias everywhere, position tables with two rows more; mBART ends with norms."""
    hidden, rows = c.integer("d_model"), c.integer("max_position_embeddings")
    c.ignore("num_hidden_layers", "num_attention_heads")
    inner, outer = _halves(c, hidden, **bias(True))
    final = c.data.get("model_type") == "mbart" or c.flag("add_final_layer_norm")
    encoder_part = DenseFeedForward(intermediate_size=c.integer("encoder_ffn_dim"), gated=False, bias=True)
    decoder_part = DenseFeedForward(intermediate_size=c.integer("decoder_ffn_dim"), gated=False, bias=True)
    encoder = LayerKind(mixers=[full(inner, causal=False)], feed_forwards=[encoder_part])
    decoder = LayerKind(mixers=[full(outer), _cross(outer, rows)], feed_forwards=[decoder_part], norms=3)
    tables = [
        Extra(name="encoder_positions", elements=(rows + 2) * hidden, kind="table"),
        Extra(name="encoder_embedding_norm", elements=2 * hidden, kind="vector"),
    ]
    return Draft(
        hidden_size=hidden,
        vocab_size=vocabulary(c),
        layers=[decoder] * c.layers("decoder_layers"),
        norm=LAYER_NORM,
        tie_word_embeddings=c.flag("tie_word_embeddings", default=True),
        max_position_embeddings=rows,
        position_embeddings=rows + 2,
        embedding_norm=True,
        final_norm=final,
        encoder=EncoderDraft([encoder] * c.layers("encoder_layers"), rows, final_norm=final, extras=tables),
    )


def whisper(c: Config) -> Draft:
    """Two convolutions over the spectrogram; no bias on keys; encoder positions are stored too."""
    hidden, frames = c.integer("d_model"), c.integer("max_source_positions", default=1500)
    rows, bands = c.integer("max_target_positions", default=448), c.integer("num_mel_bins", default=80)
    c.ignore("num_hidden_layers", "median_filter_width")
    inner, outer = _halves(c, hidden, q_bias=True, v_bias=True, o_bias=True)
    encoder_part = DenseFeedForward(intermediate_size=c.integer("encoder_ffn_dim"), gated=False, bias=True)
    decoder_part = DenseFeedForward(intermediate_size=c.integer("decoder_ffn_dim"), gated=False, bias=True)
    encoder = LayerKind(mixers=[full(inner, causal=False)], feed_forwards=[encoder_part])
    decoder = LayerKind(mixers=[full(outer), _cross(outer, frames)], feed_forwards=[decoder_part], norms=3)
    stem = [
        Extra(name="convolutions", elements=3 * hidden * (bands + hidden), kind="matrix"),
        Extra(name="convolution_bias", elements=2 * hidden, kind="vector"),
        Extra(name="encoder_positions", elements=frames * hidden, kind="table"),
    ]
    return Draft(
        hidden_size=hidden,
        vocab_size=vocabulary(c),
        layers=[decoder] * c.layers("decoder_layers"),
        norm=LAYER_NORM,
        tie_word_embeddings=c.flag("tie_word_embeddings", default=True),
        max_position_embeddings=rows,
        position_embeddings=rows,
        encoder=EncoderDraft([encoder] * c.layers("encoder_layers"), frames, extras=stem),
    )


_T5 = {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
_MT5 = _T5 | {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
_BART = {
    "vocab_size": 50265, "d_model": 1024, "max_position_embeddings": 1024, "encoder_layers": 12, "decoder_layers": 12,
    "encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096,
}  # fmt: skip
_WHISPER = {
    "vocab_size": 51865, "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6,
    "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
}  # fmt: skip

FAMILIES = {
    "t5": Family(t5, _T5),
    "mt5": Family(t5, _MT5),
    "umt5": Family(t5, _MT5),
    "bart": Family(bart, _BART),
    "mbart": Family(bart, _BART),
    "whisper": Family(whisper, _WHISPER),
}
