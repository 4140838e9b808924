"""DeepSeek-V4: a window beside compressed entries, hyper-connections, hashed routing in the first layers."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, NextTokenDraft
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS
from calc.profiles.importers.mechanisms.decoder import Family, model
from calc.profiles.importers.mechanisms.feed_forward import experts, shared_by_count
from calc.profiles.importers.mechanisms.next_token import joining
from calc.profiles.importers.mechanisms.patterns import layer_words
from calc.profiles.model import CompressedAttention, Extra, Indexer, LayerKind

INDEXED_RATIO = 4  # only these layers are fine-grained enough to need a selection


def _attention(c: Config, ratio: int) -> CompressedAttention:
    indexer = None
    if ratio == INDEXED_RATIO:
        indexer = Indexer(num_heads=c.integer("index_n_heads"), head_dim=c.integer("index_head_dim"), topk=c.integer("index_topk"))
    return CompressedAttention(
        num_attention_heads=c.integer("num_attention_heads"),
        head_dim=c.integer("head_dim"),
        rotary_dim=c.integer("qk_rope_head_dim"),
        query_rank=c.integer("q_lora_rank"),
        output_rank=c.integer("o_lora_rank"),
        output_groups=c.integer("o_groups"),
        window=c.integer("sliding_window"),
        ratio=max(1, ratio),
        indexer=indexer,
    )


def _hyper_connections(streams: int, hidden: int) -> list[Extra]:
    """Around each of the two parts of a layer: mixing weights of all streams, their offsets and three scales."""
    outputs = 2 * streams + streams * streams
    return [
        Extra(name="hyper_connection", elements=2 * outputs * streams * hidden, kind="matrix"),
        Extra(name="hyper_connection_scales", elements=2 * (outputs + 3), kind="vector"),
    ]


def _stream_head(streams: int, hidden: int) -> list[Extra]:
    """Joins the streams before the final norm."""
    return [
        Extra(name="stream_head", elements=streams * streams * hidden, kind="matrix"),
        Extra(name="stream_head_scales", elements=streams + 1, kind="vector"),
    ]


_COMPRESSED = {"compressed4": "compressed_sparse_attention", "compressed128": "heavily_compressed_attention"}


def _ratios(c: Config, count: int, modules: int) -> list[int]:
    """One ratio a layer, 0 for the window alone: ``compress_ratios``, or ``layer_types`` with ``compress_rates``."""
    given = c.integers("compress_ratios", maximum=1 << 20)
    if given is not None:
        c.check_length("compress_ratios", given, count, beyond=modules)
        return given
    if not c.has("layer_types"):
        raise c.fault("compress_ratios", "and layer_types are missing")
    words = layer_words(c, count, lambda _: "sliding", allowed=("sliding", *_COMPRESSED), beyond=modules)
    rates = c.section("compress_rates")
    if rates is None:
        raise c.fault("compress_rates", "is missing")
    rate = {word: rates.integer(name) for word, name in _COMPRESSED.items() if word in words}
    return [rate.get(word, 0) for word in words]


def _hashed(c: Config, count: int) -> int:
    """How many layers, from the first, choose experts by a table of token ids."""
    number = c.count("num_hash_layers")
    if c.has("mlp_layer_types"):
        words = layer_words(c, count, lambda _: "", keys=("mlp_layer_types",), allowed=("experts", "hashed"), beyond=64)
        number = words.count("hashed")
        if "hashed" in words[number:]:
            raise c.fault("mlp_layer_types", "has hashed layers after others")
    if number > count:
        raise c.fault("num_hash_layers", f"is {number} of {count} layers")
    return number


def deepseek_v4(c: Config) -> Draft:
    """Ratio 4 has an indexer, 128 has none; the streams of hyper-connections are joined before the head."""
    count, hidden = c.layers(*LAYERS), c.integer(*HIDDEN)
    modules = c.count("num_nextn_predict_layers")
    c.ignore("num_key_value_heads", "intermediate_size", "hc_sinkhorn_iters", "layer_types")
    ratios, hashed = _ratios(c, count, modules), _hashed(c, count)
    streams = c.integer("hc_mult", default=1)
    shared = shared_by_count(c, c.integer("moe_intermediate_size"))
    learned = experts(c, shared=shared, correction_bias=True)
    by_table = experts(c, shared=shared, router="hash")
    connections = _hyper_connections(streams, hidden)
    table = Extra(name="expert_table", elements=c.integer("vocab_size") * learned.num_experts_per_token, kind="table")
    mixers = {ratio: _attention(c, ratio) for ratio in {*ratios, 0}}

    def layer(i: int) -> LayerKind:
        parts, extras = ([by_table], [*connections, table]) if i < hashed else ([learned], connections)
        return LayerKind(mixers=[mixers[ratios[i]]], feed_forwards=list(parts), extras=extras)

    found = model(c, [layer(i) for i in range(count)], extras=_stream_head(streams, hidden))
    found.module_folders.update(experts=("ffn.experts.0", "ffn.experts", "mlp.experts.0"), shared_experts=("ffn.shared_experts",))
    if c.word("expert_dtype") == "fp4":
        found.storage_roles["experts"] = "fp4-block"
    if modules:
        ratio = ratios[count] if len(ratios) > count else 0
        kind = LayerKind(mixers=[mixers[ratio]], feed_forwards=[learned], extras=connections)
        found.next_token = NextTokenDraft(modules, [kind], [*joining(hidden), *_stream_head(streams, hidden)])
    return found


_SIZES = {
    "vocab_size": 129280, "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43, "num_attention_heads": 64,
    "head_dim": 512, "q_lora_rank": 1024, "qk_rope_head_dim": 64, "num_experts_per_tok": 6, "n_routed_experts": 256,
    "n_shared_experts": 1, "hc_mult": 4, "sliding_window": 128, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64,
    "index_head_dim": 128, "index_topk": 512, "max_position_embeddings": 1048576,
}  # fmt: skip

FAMILIES = {"deepseek_v4": Family(deepseek_v4, _SIZES)}
