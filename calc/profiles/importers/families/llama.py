"""Llama and its kin: RMSNorm, rotary positions, gated feed-forward, grouped-query attention; each with its own switches."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, bias, full, geometry
from calc.profiles.importers.mechanisms.decoder import LAYER_NORM, Family, decoder, windows
from calc.profiles.importers.mechanisms.feed_forward import experts, gated, plain
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import every, layer_words
from calc.profiles.model import LayerKind, Norm

SIZES_7B = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}


def llama(c: Config) -> Draft:
    """Bias by two flags; nothing else."""
    g = geometry(c, **bias(c.flag("attention_bias")))
    return decoder(c, g, gated(c, bias=c.flag("mlp_bias")))


def mistral(c: Config) -> Draft:
    """One window for all layers, or none."""
    words, window = windows(c, lambda _: "sliding")
    return decoder(c, geometry(c), gated(c), words=words, window=window)


def granite(c: Config) -> Draft:
    """Llama with multipliers."""
    return llama(c)


def arcee(c: Config) -> Draft:
    """A plain feed-forward part (squared ReLU)."""
    return decoder(c, geometry(c, **bias(c.flag("attention_bias"))), plain(c, bias=c.flag("mlp_bias")))


def apertus(c: Config) -> Draft:
    """Plain feed-forward with the two learned scalars of xIELU, norms on queries and keys."""
    scalars = 2 if c.word("hidden_act", default="xielu") == "xielu" else 0
    norm = "head" if c.flag("qk_norm", default=True) else "none"
    g = geometry(c, **bias(c.flag("attention_bias")), qk_norm=norm)
    c.ignore("mlp_bias")  # the class has none whatever the key says
    return decoder(c, g, plain(c, scalars=scalars))


def smollm3(c: Config) -> Draft:
    """Every fourth layer without positions: ``no_rope_layers`` holds 1 where they are used."""
    count = c.layers(*LAYERS)
    interval = c.integer("no_rope_layer_interval", default=4)
    rotary = c.integers("no_rope_layers", maximum=1)
    if rotary is not None:
        c.check_length("no_rope_layers", rotary, count)
    words, window = windows(c, lambda i: "full", switch="use_sliding_window")
    found = decoder(
        c, geometry(c, **bias(c.flag("attention_bias"))), gated(c, bias=c.flag("mlp_bias")), words=words, window=window, tie=True
    )
    used = [bool(flag) for flag in rotary] if rotary is not None else [(i + 1) % interval != 0 for i in range(count)]
    found.layers = _without_positions(found.layers, used)
    return found


def _without_positions(layers: list[LayerKind], rotary: list[bool]) -> list[LayerKind]:
    """Layers whose flag is false use no positions."""
    import msgspec

    def bare(kind: LayerKind) -> LayerKind:
        mixers = [msgspec.structs.replace(m, positions="none", rotary_dim=None) for m in kind.mixers]
        return msgspec.structs.replace(kind, mixers=mixers)

    return [kind if keeps else bare(kind) for kind, keeps in zip(layers, rotary, strict=True)]


def internlm(c: Config) -> Draft:
    """InternLM 1: one flag for the bias of all four projections."""
    return decoder(c, geometry(c, **bias(c.flag("bias", default=True))), gated(c))


def internlm2(c: Config) -> Draft:
    """Fused ``wqkv``; one flag for the bias of attention."""
    return decoder(c, geometry(c, **bias(c.flag("bias"))), gated(c))


def internlm3(c: Config) -> Draft:
    """A flag for q, k, v and one for everything else."""
    rest = c.flag("bias")
    return decoder(c, geometry(c, **bias(qkv=c.flag("qkv_bias"), out=rest)), gated(c, bias=rest))


def baichuan(c: Config) -> Draft:
    """Fused ``W_pack``. The 13B files give only ``model_max_length`` and use ALiBi."""
    positions = "rotary" if c.has("max_position_embeddings") else "alibi"
    return decoder(c, geometry(c, positions=positions), gated(c))


def minicpm(c: Config) -> Draft:
    """Llama with scaled residuals, tied; the 8x2B has experts as wide as ``intermediate_size``."""
    sparse = c.optional("num_experts", minimum=0)
    part = experts(c, width=("intermediate_size",)) if sparse else gated(c)
    return decoder(c, geometry(c, **bias(c.flag("attention_bias"))), part, tie=True)


def orion(c: Config) -> Draft:
    """Llama with LayerNorm."""
    return decoder(c, geometry(c, **bias(c.flag("attention_bias"))), gated(c), norm=LAYER_NORM)


def seed_oss(c: Config) -> Draft:
    """Bias on q, k and v."""
    g = geometry(c, **bias(qkv=c.flag("attention_bias", default=True), out=c.flag("attention_out_bias")))
    return decoder(c, g, gated(c, bias=c.flag("mlp_bias")))


def exaone(c: Config) -> Draft:
    """EXAONE 3: GPT names, Llama layers."""
    return decoder(c, geometry(c), gated(c))


def exaone4(c: Config) -> Draft:
    """Norms after the parts and on queries and keys; the pattern may be a text such as LLLG, and full layers then use no positions."""
    pattern = c.get("sliding_window_pattern")
    if isinstance(pattern, str):
        if set(pattern) - {"L", "G"} or not pattern:
            raise c.fault("sliding_window_pattern", f"{pattern!r:.60} holds other letters than L and G")
        words, window = windows(c, lambda i: "full" if pattern[i % len(pattern)] == "G" else "sliding")
    else:
        words, window = windows(c, every(c.integer("sliding_window_pattern", default=4)))
    found = decoder(c, geometry(c, qk_norm="head"), gated(c), words=words, window=window)
    if window:
        found.layers = _without_positions(found.layers, [word == "sliding" for word in words])
    return found


def ernie(c: Config) -> Draft:
    """ERNIE 4.5 dense: one flag for all bias, tied."""
    everywhere = c.flag("use_bias")
    return decoder(c, geometry(c, **bias(everywhere)), gated(c, bias=everywhere), tie=True)


def olmo(c: Config) -> Draft:
    """OLMo 1: LayerNorm without weights, so no norm is stored."""
    g = geometry(c, **bias(c.flag("attention_bias")))
    return decoder(c, g, gated(c), norms=0, norm=Norm(kind="layer"), final_norm=False)


def olmo2(c: Config) -> Draft:
    """Norms after the parts, and over the whole query and key projections."""
    return decoder(c, geometry(c, **bias(c.flag("attention_bias")), qk_norm="projection"), gated(c))


def olmo3(c: Config) -> Draft:
    """OLMo 2 with windows in three of four layers."""
    words, window = windows(c, every(4))
    g = geometry(c, **bias(c.flag("attention_bias")), qk_norm="projection")
    return decoder(c, g, gated(c), words=words, window=window)


def mimo(c: Config) -> Draft:
    """MiMo-7B: Qwen2 layers and a next-token layer of the same kind."""
    g = geometry(c, **bias(qkv=c.flag("attention_bias", default=True), out=False))
    c.ignore("max_window_layers", "sliding_window", "use_sliding_window")
    found = decoder(c, g, gated(c), words=layer_words(c, c.layers(*LAYERS), lambda _: "full"))
    count = c.count("num_nextn_predict_layers")
    if count:
        found.next_token = NextTokenDraft(
            count, [LayerKind(mixers=[full(g)], feed_forwards=[gated(c)])], joining(c.integer(*HIDDEN))
        )
    return found


def hunyuan_dense(c: Config) -> Draft:
    """Hunyuan dense: norms on queries and keys."""
    norm = "head" if c.flag("use_qk_norm", default=True) else "none"
    return decoder(c, geometry(c, **bias(c.flag("attention_bias")), qk_norm=norm), gated(c, bias=c.flag("mlp_bias")))


_MISTRAL = SIZES_7B | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "max_position_embeddings": 131072,
}
_INTERNLM3 = SIZES_7B | {
    "vocab_size": 128512, "intermediate_size": 10240, "num_hidden_layers": 48, "num_key_value_heads": 2, "head_dim": 128,
    "max_position_embeddings": 32768,
}  # fmt: skip
_ERNIE = {
    "vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072,
}  # fmt: skip
_OLMO = SIZES_7B | {"vocab_size": 50304}
_SMOLLM3 = {
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
    "num_key_value_heads": 4, "max_position_embeddings": 32768,
}  # fmt: skip
_SEED = SIZES_7B | {
    "vocab_size": 155136, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 80, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 524288,
}  # fmt: skip

FAMILIES = {
    "llama": Family(llama, SIZES_7B),
    "mistral": Family(mistral, _MISTRAL),
    "ministral": Family(mistral, _MISTRAL),
    "ministral3": Family(
        mistral, _MISTRAL | {"vocab_size": 131072, "num_hidden_layers": 34, "sliding_window": None, "head_dim": 128}
    ),
    "granite": Family(granite, SIZES_7B),
    "arcee": Family(arcee, SIZES_7B | {"hidden_size": 2560, "intermediate_size": 18432}),
    "apertus": Family(apertus, SIZES_7B | {"vocab_size": 131072, "intermediate_size": 14336, "max_position_embeddings": 65536}),
    "smollm3": Family(smollm3, _SMOLLM3),
    "internlm": Family(internlm, SIZES_7B | {"vocab_size": 103168}),
    "internlm2": Family(internlm2, SIZES_7B | {"vocab_size": 103168}),
    "internlm3": Family(internlm3, _INTERNLM3),
    "baichuan": Family(baichuan, {"vocab_size": 125696}),
    "minicpm": Family(minicpm, SIZES_7B),
    "orion": Family(orion, {}),
    "seed_oss": Family(seed_oss, _SEED),
    "exaone": Family(exaone, {}),
    "exaone4": Family(exaone4, SIZES_7B | {"vocab_size": 102400, "intermediate_size": 16384, "sliding_window": 4096}),
    "ernie4_5": Family(ernie, _ERNIE),
    "olmo": Family(olmo, _OLMO),
    "olmo2": Family(olmo2, _OLMO),
    "olmo3": Family(olmo3, _OLMO | {"sliding_window": 4096}),
    "mimo": Family(mimo, {}),
    "hunyuan_v1_dense": Family(hunyuan_dense, {"vocab_size": 290943}),
}
