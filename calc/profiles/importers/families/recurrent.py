"""Models without attention: Mamba, Falcon-Mamba, Mamba-2 (also the original files), RWKV."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, stack_of
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, Family, model
from calc.profiles.importers.mechanisms.recurrent import mamba1, mamba2
from calc.profiles.model import ChannelMixing, DenseFeedForward, LayerKind, Mamba2, Rwkv


def _padded_vocabulary(c: Config) -> int:
    rows, multiple = c.integer("vocab_size", maximum=1 << 31), c.integer("pad_vocab_size_multiple", default=1, maximum=1 << 20)
    return -(-rows // multiple) * multiple


def mamba(c: Config) -> Draft:
    """One mixer and one norm a layer; ``intermediate_size`` counts where it and ``expand`` disagree."""
    hidden = c.integer(*HIDDEN)
    mixer = mamba1(c, hidden)
    layers = stack_of(c.layers(*LAYERS), lambda _: mixer, lambda _: None, norms=1)
    return model(c, layers, tie=True, vocab_size=_padded_vocabulary(c))


def mamba2_hf(c: Config) -> Draft:
    """Heads times head size must make ``expand`` times the hidden size."""
    hidden = c.integer(*HIDDEN)
    inner = int(c.number("expand", default=2) * hidden)
    mixer = mamba2(c, hidden, inner=inner, projection_bias=c.flag("use_bias"))
    layers = stack_of(c.layers(*LAYERS), lambda _: mixer, lambda _: None, norms=1)
    return model(c, layers, vocab_size=_padded_vocabulary(c))


def mamba_ssm(c: Config) -> Draft:
    """The original files of state-spaces: ``d_model``, ``ssm_cfg``, a padded vocabulary, no model type."""
    if c.items("attn_layer_idx"):
        raise c.fault("attn_layer_idx", "names attention layers, for which no law is known in this format")
    c.ignore("attn_cfg")
    hidden, s = c.integer("d_model"), c.section("ssm_cfg") or c
    kind = s.word("layer", default="Mamba1")
    if kind not in ("Mamba1", "Mamba2"):
        raise s.unknown("layer", kind, ("Mamba1", "Mamba2"), "layer type")
    mixer = mamba1(s, hidden, inner=()) if kind == "Mamba1" else _original_mamba2(s, hidden)
    width = c.count("d_intermediate")
    part = DenseFeedForward(intermediate_size=width) if width else None
    layers = stack_of(c.layers("n_layer"), lambda _: mixer, lambda _: part, norms=2 if part else 1)
    found = model(c, layers, vocab_size=_padded_vocabulary(c))
    found.tie_word_embeddings = c.flag("tie_embeddings", "tie_word_embeddings", default=True)
    return found


def _original_mamba2(s: Config, hidden: int) -> Mamba2:
    inner, head_dim = int(s.number("expand", default=2) * hidden), s.integer("headdim", default=64)
    if inner % head_dim:
        raise s.fault("headdim", f"{head_dim} does not divide the inner width {inner:,}")
    return Mamba2(
        num_heads=inner // head_dim,
        head_dim=head_dim,
        state_size=s.integer("d_state", default=128),
        num_groups=s.integer("ngroups", default=1),
        conv_kernel=s.integer("d_conv", default=4),
        chunk=s.integer("chunk_size", default=256),
    )


def _rwkv_sizes(c: Config) -> tuple[int, int, int]:
    """(attention width, head size, feed-forward width)."""
    hidden = c.integer(*HIDDEN)
    width = c.optional("attention_hidden_size", "dim_att") or hidden
    size = c.integer("head_size", "head_dim", default=64)
    if width % size:
        raise c.fault("head_size", f"{size} does not divide the attention width {width:,}")
    inner = c.optional("intermediate_size", "dim_ffn") or int(hidden * 3.5) // 32 * 32
    return width, size, inner


def rwkv5(c: Config) -> Draft:
    """Two LayerNorms a layer, one after the embedding, one before the head. Head and embedding are both stored, whatever the flag says."""
    return _rwkv(c, 5, 0)


def rwkv6(c: Config) -> Draft:
    """Data-dependent shifts and decay through low-rank matrices, wider at the size of 7B."""
    hidden = c.integer(*HIDDEN)
    width, _, _ = _rwkv_sizes(c)
    mix, decay = (64, 128) if hidden == 4096 else (32, 64)
    return _rwkv(c, 6, 10 * mix * hidden + decay * (hidden + width))


def _rwkv(c: Config, version: int, low_rank: int) -> Draft:
    width, size, inner = _rwkv_sizes(c)
    mixer = Rwkv(version=version, attention_size=width, head_dim=size, low_rank_parameters=low_rank)  # type: ignore[arg-type]
    part = ChannelMixing(intermediate_size=inner)
    c.ignore("context_length", "num_attention_heads", "rescale_every", "model_version")
    layers = stack_of(c.layers(*LAYERS), lambda _: mixer, lambda _: part)
    found = model(c, layers, norm=LAYER_NORM, embedding_norm=True)
    found.tie_word_embeddings = False
    found.max_position_embeddings = c.optional("context_length")
    return found


def rwkv7(c: Config) -> Draft:
    """Generalised delta rule; the first layer has no value residual."""
    hidden = c.integer(*HIDDEN)
    width, size, _ = _rwkv_sizes(c)
    inner = c.optional("intermediate_size") or int(c.number("hidden_ratio", default=4) * hidden)
    c.ignore("num_heads", "attn", "attn_mode", "norm_first", "value_dim", "expand_ratio", "fuse_norm")
    rank = {key: c.integer(f"{key}_low_rank_dim", default=default) for key, default in _RWKV7_RANKS.items()}
    common = (rank["decay"] + rank["a"] + rank["gate"]) * (hidden + width)
    residual = rank["v"] * (hidden + width) + width
    part = ChannelMixing(intermediate_size=inner, receptance=False, mix_vectors=1)

    def layer(i: int) -> LayerKind:
        low_rank = common + (residual if i else 0)
        return LayerKind(
            mixers=[Rwkv(version=7, attention_size=width, head_dim=size, low_rank_parameters=low_rank)], feed_forwards=[part]
        )

    return model(c, [layer(i) for i in range(c.layers(*LAYERS))], norm=LAYER_NORM, embedding_norm=True)


_RWKV7_RANKS = {"decay": 64, "a": 64, "v": 32, "gate": 128}
_MAMBA = {"vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 32}
_MAMBA2 = {"vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "n_groups": 8}

FAMILIES = {
    "mamba": Family(mamba, _MAMBA),
    "falcon_mamba": Family(mamba, _MAMBA),
    "mamba2": Family(mamba2_hf, _MAMBA2),
    "mamba_ssm": Family(mamba_ssm, {"pad_vocab_size_multiple": 8}),
    "rwkv5": Family(rwkv5, {"vocab_size": 65536}),
    "rwkv6": Family(rwkv6, {"vocab_size": 65536}),
    "rwkv7": Family(rwkv7, {}),
}
