"""Small models whose layers differ, as llama.cpp's converter would write them, with the config.json of the same model."""

from __future__ import annotations

from typing import Any

from tests.support.gguf_models import (
    FF,
    HEAD,
    HIDDEN,
    NORMS,
    QK_NORMS,
    RMS,
    VOCABULARY,
    Config,
    Model,
    attention,
    biases,
    config,
    decoder,
    experts,
    gated,
    heads,
)


def gemma3n() -> tuple[Model, Config]:
    """Side paths and embeddings per layer; the layers after the 20th read earlier caches and store key and value weights."""
    layers, side, rank, streams = 25, 64, 16, 4
    model = Model("gemma3n", layers, heads(**{"attention.sliding_window": 512, "altup.num_inputs": 4, **RMS}))
    own = {
        "post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,), **QK_NORMS, "inp_gate": (HIDDEN, side), "proj": (side, HIDDEN),
        "post_norm": (HIDDEN,), "laurel_l": (HIDDEN, rank), "laurel_r": (rank, HIDDEN), "laurel_post_norm": (HIDDEN,),
        "altup_correct_coef": (streams, streams), "altup_correct_scale": (HIDDEN,), "altup_predict_coef": (streams, streams**2),
        "altup_router": (HIDDEN, streams), "altup_router_norm": (HIDDEN,),
    }  # fmt: skip
    for i in range(layers):
        model.block(i, **NORMS, **attention(), **gated(), **own)
    model.add("per_layer_token_embd.weight", layers * side, VOCABULARY, kind="q8_0")
    model.add("per_layer_model_proj.weight", HIDDEN, layers * side)
    model.add("per_layer_proj_norm.weight", side)
    model.add("altup_proj.weight", HIDDEN, HIDDEN, streams - 1)
    model.add("altup_unembd_proj.weight", HIDDEN, HIDDEN, streams - 1)
    words = ["sliding_attention" if (i + 1) % 5 else "full_attention" for i in range(layers)]
    twin = config(
        "gemma3n_text", num_hidden_layers=layers, tie_word_embeddings=True, sliding_window=512, layer_types=words,
        num_kv_shared_layers=5, vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=side, altup_num_inputs=streams,
        laurel_rank=rank,
    )  # fmt: skip
    return model.ends(head=False), twin


def gemma4() -> tuple[Model, Config]:
    """Windowed layers have heads of their own; full ones use their keys as values; the last two layers share caches."""
    keys = heads(**{
        "attention.head_count_kv": [4, 4, 2, 4, 4, 2], "attention.key_length": 128, "attention.value_length": 128,
        "attention.key_length_swa": 64, "attention.value_length_swa": 64, "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": [True, True, False, True, True, False], "attention.shared_kv_layers": 2,
        "rope.dimension_count": 128, "rope.dimension_count_swa": 64, "feed_forward_length": [FF] * 6, **RMS,
    })  # fmt: skip
    model = Model("gemma4", 6, keys)
    for i in range(6):
        full, shared = i % 3 == 2, i >= 4
        head, kv = (128, 2) if full else (64, 4)
        mixer = {"attn_q": (HIDDEN, 8 * head), "attn_output": (8 * head, HIDDEN), "attn_q_norm": (head,)}
        if not shared:
            mixer |= {"attn_k": (HIDDEN, kv * head), "attn_k_norm": (head,)} | ({} if full else {"attn_v": (HIDDEN, kv * head)})
        after = {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,), "layer_output_scale": (1,)}
        model.block(i, **NORMS, **after, **mixer, **gated())
    return model.ends(head=False), {}


def llama4() -> tuple[Model, Config]:
    keys = heads(
        expert_count=8,
        expert_used_count=1,
        expert_feed_forward_length=256,
        interleave_moe_layer_step=2,
        feed_forward_length=FF,
        **RMS,
    )
    model = Model("llama4", 4, keys)
    shared = {"ffn_gate_shexp": (HIDDEN, 256), "ffn_up_shexp": (HIDDEN, 256), "ffn_down_shexp": (256, HIDDEN)}
    for i in range(4):
        model.block(i, **NORMS, **attention(), **({**experts(), **shared} if i % 2 else gated()))
    return model.ends(), {}


def step35() -> tuple[Model, Config]:
    """Heads by layer, a gate per head, a window by a list."""
    keys = heads(**{
        "attention.head_count": [8, 12, 12, 12], "attention.head_count_kv": [2, 4, 4, 4], "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [0, 1, 1, 1], **RMS,
    })  # fmt: skip
    model = Model("step35", 4, keys)
    for i in range(4):
        count, kv = (12, 4) if i else (8, 2)
        model.block(i, **NORMS, **attention(count, kv), **QK_NORMS, attn_gate=(HIDDEN, count), **gated())
    return model.ends(), {}


def deci() -> tuple[Model, Config]:
    """Layers without attention, with a linear map in its place, or without anything."""
    keys = heads(
        **{"attention.head_count": [8, 0, 8, 0], "attention.head_count_kv": [2, 0, 0, 0], **RMS},
        feed_forward_length=[FF, 256, FF, 0],
    )
    model = Model("deci", 4, keys)
    model.block(0, **NORMS, **attention(), **gated())
    model.block(1, ffn_norm=(HIDDEN,), **gated(256))
    model.block(2, **NORMS, attn_output=(HIDDEN, HIDDEN), **gated())
    return model.ends(), {}


def glm_dsa() -> tuple[Model, Config]:
    keys: dict[str, Any] = {
        "attention.head_count": 8, "attention.head_count_kv": 1, "attention.key_length": 320, "attention.value_length": 256,
        "attention.key_length_mla": 192, "attention.value_length_mla": 128, "attention.kv_lora_rank": 256, "attention.q_lora_rank": 256,
        "attention.indexer.head_count": 4, "attention.indexer.key_length": 64, "attention.indexer.top_k": 512, **RMS,
    }  # fmt: skip
    model = Model("glm-dsa", 2, keys)
    parts = {
        "attn_kv_a_mqa": (HIDDEN, 320), "attn_kv_a_norm": (256,), "attn_output": (8 * 128, HIDDEN), "attn_q_a": (HIDDEN, 256),
        "attn_q_a_norm": (256,), "attn_q_b": (256, 8 * 192), "attn_k_b": (128, 256, 8), "attn_v_b": (256, 128, 8),
        "indexer__attn_q_b__weight": (256, 4 * 64), "indexer__attn_k__weight": (HIDDEN, 64), "indexer__proj__weight": (HIDDEN, 4),
        "indexer__k_norm__weight": (64,), "indexer__k_norm__bias": (64,),
    }  # fmt: skip
    for i in range(2):
        model.block(i, **NORMS, **parts, **gated())
    return model.ends(), config(
        "glm_moe_dsa", num_hidden_layers=2, q_lora_rank=256, kv_lora_rank=256, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
        n_routed_experts=None, index_topk=512, index_n_heads=4, index_head_dim=64, num_nextn_predict_layers=0,
    )  # fmt: skip


def minimax_m2() -> tuple[Model, Config]:
    keys = heads(expert_count=8, expert_used_count=2, expert_feed_forward_length=256, **RMS, **{"rope.dimension_count": 32})
    model = Model("minimax-m2", 4, keys)
    norms = {"attn_q_norm": (8 * HEAD,), "attn_k_norm": (2 * HEAD,), "exp_probs_b__bias": (8,)}
    for i in range(4):
        model.block(i, **NORMS, **attention(), **norms, **experts())
    return model.ends(), config(
        "minimax_m2", num_local_experts=8, num_experts_per_tok=2, intermediate_size=256, use_qk_norm=True, rotary_dim=32,
        use_mtp=False, qk_norm_type="per_layer", use_routing_bias=True,
    )  # fmt: skip


def exaone4(layers: int = 64) -> tuple[Model, Config]:
    keys = heads(**{"attention.sliding_window": 4096, **RMS})
    model = Model("exaone4", layers, keys)
    for i in range(layers):
        model.block(i, post_attention_norm=(HIDDEN,), post_ffw_norm=(HIDDEN,), **attention(), **QK_NORMS, **gated())
    window = 4096 if layers == 64 else None
    return model.ends(), config("exaone4", num_hidden_layers=layers, sliding_window=window, sliding_window_pattern=4)


def olmo2() -> tuple[Model, Config]:
    model = Model("olmo2", 4, heads(**RMS))
    norms = {"attn_q_norm": (8 * HEAD,), "attn_k_norm": (2 * HEAD,)}
    for i in range(4):
        model.block(i, post_attention_norm=(HIDDEN,), post_ffw_norm=(HIDDEN,), **attention(), **norms, **gated())
    return model.ends(), config("olmo2")


def bert() -> tuple[Model, Config]:
    keys = {
        "attention.head_count": 8,
        "attention.layer_norm_epsilon": 1e-12,
        "attention.causal": False,
        "context_length": 512,
        "pooling_type": 2,
    }
    model = Model("bert", 2, keys)
    widths = {
        "attn_q": 512,
        "attn_k": 512,
        "attn_v": 512,
        "attn_output": 512,
        "ffn_up": 2048,
        "ffn_down": 512,
        "attn_output_norm": 512,
        "layer_output_norm": 512,
    }
    for i in range(2):
        model.block(
            i, **attention(8, 8), ffn_up=(HIDDEN, 2048), ffn_down=(2048, HIDDEN), attn_output_norm=(HIDDEN,), layer_output_norm=(HIDDEN,),
            **biases(**widths),
        )  # fmt: skip
    model.add("position_embd.weight", HIDDEN, 512, kind="fp16")
    model.add("token_types.weight", HIDDEN, 2, kind="fp32")
    model.add("token_embd_norm.weight", HIDDEN)
    model.add("token_embd_norm.bias", HIDDEN)
    return model.ends(head=False, norm=False), {}


def smollm3() -> tuple[Model, Config]:
    return decoder("smollm3", head=False), config("smollm3", tie_word_embeddings=True, no_rope_layers=[1, 1, 1, 0])


TWINS = {
    "gemma3n": gemma3n, "gemma4": gemma4, "llama4": llama4, "step35": step35, "deci": deci, "glm-dsa": glm_dsa,
    "minimax-m2": minimax_m2, "exaone4 with windows": exaone4, "exaone4 without": lambda: exaone4(30), "olmo2": olmo2, "bert": bert,
    "smollm3": smollm3,
}  # fmt: skip
