"""The GPT generation: LayerNorm with bias, plain feed-forward of 4 x hidden, learned positions, ALiBi or partly rotary."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.mechanisms.attention import HEADS, HIDDEN, bias, geometry
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, PLAIN_LAYER_NORM, Family, decoder
from calc.profiles.importers.mechanisms.feed_forward import plain
from calc.profiles.model import DenseFeedForward, Extra


def gpt2(c: Config) -> Draft:
    """Learned positions, bias everywhere, tied."""
    g = geometry(c, **bias(True), positions="learned")
    part = plain(c, hidden=c.integer(*HIDDEN), bias=True)
    return decoder(c, g, part, norm=LAYER_NORM, tie=True, position_embeddings=c.integer("n_positions", "n_ctx"))


def gpt_bigcode(c: Config) -> Draft:
    """GPT-2 with one key-value head (``multi_query``)."""
    kv = 1 if c.flag("multi_query", default=True) else c.integer(*HEADS)
    c.ignore("num_key_value_heads")
    g = geometry(c, kv_heads=kv, **bias(True), positions="learned")
    part = plain(c, hidden=c.integer(*HIDDEN), bias=True)
    return decoder(c, g, part, norm=LAYER_NORM, tie=True, position_embeddings=c.integer("n_positions"))


def opt(c: Config) -> Draft:
    """The position table has two rows more; 350M embeds in a narrower space and has no final norm."""
    hidden = c.integer(*HIDDEN)
    everywhere = c.flag("enable_bias", default=True)
    affine = c.flag("layer_norm_elementwise_affine", default=True)  # without it norms hold no weights
    width = c.optional("word_embed_proj_dim")
    found = decoder(
        c,
        geometry(c, **bias(everywhere), positions="learned"),
        plain(c, hidden=hidden, bias=everywhere),
        norm=LAYER_NORM,
        norms=2 if affine else 0,
        tie=True,
        position_embeddings=c.integer("max_position_embeddings") + 2,
        final_norm=affine and c.flag("do_layer_norm_before", default=True) and not c.flag("_remove_final_layer_norm"),
    )
    if width and width != hidden:
        found.embedding_size = width
        found.extras.append(Extra(name="project_out", elements=width * hidden, kind="matrix"))
    return found


def gpt_neox(c: Config) -> Draft:
    """Partly rotary, attention and feed-forward side by side with a norm each, untied."""
    everywhere = c.flag("attention_bias", default=True)
    parallel = c.flag("use_parallel_residual", default=True)
    part = plain(c, hidden=c.integer(*HIDDEN), bias=True)
    return decoder(c, geometry(c, **bias(everywhere)), part, norm=LAYER_NORM, parallel=parallel)


def gptj(c: Config) -> Draft:
    """One norm, no attention bias, bias on the head."""
    part = plain(c, hidden=c.integer(*HIDDEN), bias=True)
    return decoder(c, geometry(c), part, norm=LAYER_NORM, norms=1, parallel=True, lm_head_bias=True)


def bloom(c: Config) -> Draft:
    """ALiBi, a norm after the embedding, tied."""
    part = plain(c, hidden=c.integer(*HIDDEN), bias=True)
    return decoder(c, geometry(c, **bias(True), positions="alibi"), part, norm=LAYER_NORM, tie=True, embedding_norm=True)


def mpt(c: Config) -> Draft:
    """ALiBi, which makes ``learned_pos_emb`` inert; ``no_bias`` takes all bias away, that of the norms too."""
    hidden, everywhere = c.integer("d_model"), not c.flag("no_bias", default=True)
    attention = c.section("attn_config")
    alibi, kv, norm = True, c.integer("n_heads"), "none"
    if attention:
        alibi = attention.flag("alibi", default=True)
        grouped = attention.word("attn_type", default="multihead_attention")
        known = {
            "multihead_attention": kv,
            "multiquery_attention": 1,
            "grouped_query_attention": attention.optional("kv_n_heads") or kv,
        }
        if grouped not in known:
            raise attention.unknown("attn_type", grouped, known, "attention kind")
        kv = known[str(grouped)]
        norm = "projection" if attention.flag("qk_ln") else "none"
    learned = c.flag("learned_pos_emb", default=True) and not alibi
    return decoder(
        c,
        geometry(
            c, kv_heads=kv, **bias(everywhere), positions="alibi" if alibi else "learned" if learned else "none", qk_norm=norm
        ),
        DenseFeedForward(intermediate_size=int(c.number("expansion_ratio", default=4) * hidden), gated=False, bias=everywhere),
        norm=LAYER_NORM if everywhere else PLAIN_LAYER_NORM,
        tie=True,
        position_embeddings=c.integer("max_seq_len") if learned else 0,
    )


def falcon(c: Config) -> Draft:
    """Old style: one norm, one key-value head whatever ``num_kv_heads`` says; new style: two norms, ``num_kv_heads``. Tied."""
    new, parallel, everywhere = c.flag("new_decoder_architecture"), c.flag("parallel_attn", default=True), c.flag("bias")
    heads = c.integer(*HEADS)
    several = c.flag("multi_query", default=True)
    kv = c.integer("num_kv_heads", "n_head_kv", default=heads) if new else 1 if several else heads
    c.ignore("num_kv_heads", "n_head_kv")
    norms = 2 if not parallel or (new and c.integer("num_ln_in_parallel_attn", default=2) == 2) else 1
    g = geometry(c, kv_heads=kv, **bias(everywhere), positions="alibi" if c.flag("alibi") else "rotary")
    part = plain(c, hidden=c.integer(*HIDDEN), bias=everywhere, keys=("ffn_hidden_size",))
    return decoder(c, g, part, norm=LAYER_NORM, norms=norms, parallel=parallel, tie=True)


_GPT2 = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
_OPT = {
    "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072, "num_attention_heads": 12,
    "max_position_embeddings": 2048,
}  # fmt: skip
_NEOX = {
    "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64, "intermediate_size": 24576,
    "max_position_embeddings": 2048, "rotary_pct": 0.25,
}  # fmt: skip
_GPTJ = {"vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64}
_MPT = {"vocab_size": 50368, "d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048}
_FALCON = {
    "vocab_size": 65024,
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "max_position_embeddings": 2048,
}

FAMILIES = {
    "gpt2": Family(gpt2, _GPT2),
    "gpt_bigcode": Family(gpt_bigcode, _GPT2),
    "opt": Family(opt, _OPT),
    "gpt_neox": Family(gpt_neox, _NEOX),
    "gptj": Family(gptj, _GPTJ),
    "bloom": Family(bloom, {"vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8}),
    "mpt": Family(mpt, _MPT),
    "falcon": Family(falcon, _FALCON),
}
