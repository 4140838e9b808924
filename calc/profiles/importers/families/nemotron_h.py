"""Nemotron-H and Nemotron 3: one part a layer, written as a text of letters."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft
from calc.profiles.importers.mechanisms.attention import HIDDEN, bias, full, geometry
from calc.profiles.importers.mechanisms.decoder import Family, model
from calc.profiles.importers.mechanisms.feed_forward import experts, plain, shared_bias
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import layer_words
from calc.profiles.importers.mechanisms.recurrent import mamba2, state_dtype
from calc.profiles.model import LayerKind, SharedExperts
from calc.profiles.model_faults import MAX_LAYERS

_MAMBA = {"linear": "mamba"}  # newer files call every recurrent layer linear attention
LETTERS = {"M": "mamba", "*": "full", "-": "dense", "E": "experts"}


def _words(c: Config, key: str, text: str) -> list[str]:
    for letter in text:
        if letter not in LETTERS:
            raise c.unknown(key, letter, LETTERS, "letter of the layer pattern")
    return [LETTERS[letter] for letter in text]


def _kind(c: Config, word: str) -> LayerKind:
    """The layer of a word; feed-forward parts and experts have no gate."""
    if word == "full":
        g = geometry(c, head_dim=("attention_head_dim", "head_dim"), **bias(c.flag("attention_bias")), positions="none")
        return LayerKind(mixers=[full(g)], norms=1)
    if word == "mamba":
        c.ignore("mamba_hidden_act", "expand")
        if not c.optional("mamba_head_dim"):
            raise c.fault("mamba_head_dim", "is missing")  # head_dim is that of attention
        return LayerKind(mixers=[mamba2(c, c.integer(*HIDDEN))], norms=1)
    everywhere = c.flag("mlp_bias")
    if word == "dense":
        return LayerKind(feed_forwards=[plain(c, bias=everywhere)], norms=1)
    number = c.count("n_shared_experts")
    width = c.integer("moe_shared_expert_intermediate_size", "moe_intermediate_size")
    c.ignore("moe_shared_expert_overlap")
    routed = experts(
        c,
        gated=False,
        correction_bias=True,
        latent_size=c.optional("moe_latent_size"),
        shared=SharedExperts(intermediate_size=number * width, gated=False) if number else None,
    )
    extras = [shared_bias(routed.shared, c.integer(*HIDDEN))] if everywhere and routed.shared else []
    return LayerKind(feed_forwards=[routed], norms=1, extras=extras)


_FOLDERS = {
    "attention": ("mixer",),
    "linear_attention": ("mixer",),
    "feed_forward": ("mixer",),
    "experts": ("mixer.experts.0",),
    "shared_experts": ("mixer.shared_experts",),
}
_TYPES = ("full", "mamba", "linear", "dense", "experts")


def _stack_words(c: Config) -> list[str]:
    pattern = c.word("hybrid_override_pattern")
    if pattern is not None:
        c.check_length("hybrid_override_pattern", pattern, c.layers("num_hidden_layers"))
        return _words(c, "hybrid_override_pattern", pattern)
    listed = c.items("layers_block_type") or []
    if not listed:
        raise c.fault("hybrid_override_pattern", "and layers_block_type are missing")
    count = c.integer("num_hidden_layers", default=len(listed), maximum=MAX_LAYERS)
    return [_MAMBA.get(word, word) for word in layer_words(c, count, lambda _: "", keys=("layers_block_type",), allowed=_TYPES)]


def _draft_words(c: Config) -> list[str]:
    pattern, listed = c.word("mtp_hybrid_override_pattern"), c.items("mtp_layers_block_type")
    if pattern is not None or not listed:
        return _words(c, "mtp_hybrid_override_pattern", pattern or "")
    found = layer_words(c, len(listed), lambda _: "", keys=("mtp_layers_block_type",), allowed=_TYPES)
    return [_MAMBA.get(word, word) for word in found]


def nemotron_h(c: Config) -> Draft:
    """``hybrid_override_pattern`` (M mamba, * attention, - feed-forward, E experts) or ``layers_block_type``."""
    words = _stack_words(c)
    modules = c.count("num_nextn_predict_layers")
    drafts = _draft_words(c) if modules else []
    kinds = {word: _kind(c, word) for word in {*words, *drafts}}
    c.ignore("mtp_layers_block_type", "mtp_hybrid_override_pattern", "intermediate_size", "moe_intermediate_size")
    found = model(c, [kinds[word] for word in words], state_dtype=state_dtype(c))
    found.module_folders.update(_FOLDERS)
    if drafts:
        found.next_token = NextTokenDraft(modules, [kinds[word] for word in drafts], joining(found.hidden_size))
    return found


_SIZES = {
    "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "chunk_size": 128,
}  # fmt: skip

FAMILIES = {"nemotron_h": Family(nemotron_h, _SIZES)}
