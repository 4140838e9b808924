"""Small models whose layers differ or keep a state, as llama.cpp's converter would write them, with the config.json of the same model."""

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

#: Two heads of 512 channels, one group.
STATE = {"ssm.conv_kernel": 4, "ssm.inner_size": 1024, "ssm.state_size": 128, "ssm.time_step_rank": 16, "ssm.group_count": 1}
MAMBA1 = {
    "ssm_in": (HIDDEN, 2048), "ssm_conv1d": (4, 1024), "ssm_conv1d__bias": (1024,), "ssm_x": (1024, 32 + 2 * 16), "ssm_dt": (32, 1024),
    "ssm_dt__bias": (1024,), "ssm_a": (16, 1024), "ssm_d": (1024,), "ssm_out": (1024, HIDDEN),
}  # fmt: skip
MAMBA2 = {
    "ssm_in": (HIDDEN, 2 * 1024 + 2 * 128 + 16), "ssm_conv1d": (4, 1024 + 256), "ssm_conv1d__bias": (1280,), "ssm_dt__bias": (16,),
    "ssm_a": (1, 16), "ssm_d": (1, 16), "ssm_norm": (1024, 1), "ssm_out": (1024, HIDDEN),
}  # fmt: skip
MAMBA2_KEYS: Config = {
    "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False,
}  # fmt: skip
FULL_LAYERS = (1, 3)


def by_layer(layers: int, full: tuple[int, ...], value: int, otherwise: int = 0) -> list[int]:
    return [value if i in full else otherwise for i in range(layers)]


def mamba() -> tuple[Model, Config]:
    keys = {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 1024,
        "ssm.state_size": 16,
        "ssm.time_step_rank": 32,
        "attention.head_count": 0,
        **RMS,
    }
    model = Model("mamba", 4, {**keys, "feed_forward_length": 0})
    for i in range(4):
        model.block(i, attn_norm=(HIDDEN,), **MAMBA1)
    twin = {
        "model_type": "mamba", "hidden_size": HIDDEN, "num_hidden_layers": 4, "vocab_size": VOCABULARY, "intermediate_size": 1024,
        "state_size": 16, "time_step_rank": 32, "conv_kernel": 4, "expand": 2, "use_conv_bias": True, "use_bias": False,
        "tie_word_embeddings": True, "torch_dtype": "float16",
    }  # fmt: skip
    return model.ends(head=False), twin


def mamba2() -> tuple[Model, Config]:
    model = Model("mamba2", 4, {**STATE, "attention.head_count": 0, **RMS})
    for i in range(4):
        model.block(i, attn_norm=(HIDDEN,), **MAMBA2)
    twin = {
        "model_type": "mamba2", "hidden_size": HIDDEN, "num_hidden_layers": 4, "vocab_size": VOCABULARY, "num_heads": 16, "head_dim": 64,
        "state_size": 128, "n_groups": 1, "conv_kernel": 4, "expand": 2, "chunk_size": 256, "use_conv_bias": True, "use_bias": False,
        "tie_word_embeddings": False, "torch_dtype": "float16",
    }  # fmt: skip
    return model.ends(), twin


def jamba() -> tuple[Model, Config]:
    keys = heads(
        **{"attention.head_count_kv": by_layer(4, (1, 3), 2)}, expert_count=8, expert_used_count=2, feed_forward_length=256
    )
    keys |= {"ssm.conv_kernel": 4, "ssm.inner_size": 1024, "ssm.state_size": 16, "ssm.time_step_rank": 32, **RMS}
    model = Model("jamba", 4, keys)
    norms = {"ssm_dt_norm": (32,), "ssm_b_norm": (16,), "ssm_c_norm": (16,)}
    for i in range(4):
        mixer = attention() if i in FULL_LAYERS else {**MAMBA1, **norms}
        model.block(i, **NORMS, **mixer, **(experts() if i % 2 else gated(256)))
    return model.ends(), config(
        "jamba", intermediate_size=256, num_experts=8, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1,
        expert_layer_period=2, expert_layer_offset=1, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=32,
        mamba_conv_bias=True, mamba_proj_bias=False,
    )  # fmt: skip


def nemotron_h() -> tuple[Model, Config]:
    """One part a layer: arrays of heads and widths say which."""
    keys = heads(**{"attention.head_count_kv": [0, 2, 0, 0]}, feed_forward_length=[0, 0, FF, 0], **STATE, **RMS)
    model = Model("nemotron_h", 4, keys)
    parts: list[dict[str, tuple[int, ...]]] = [MAMBA2, attention(), {"ffn_up": (HIDDEN, FF), "ffn_down": (FF, HIDDEN)}, MAMBA2]
    for i, part in enumerate(parts):
        model.block(i, attn_norm=(HIDDEN,), **part)
    return model.ends(), config(
        "nemotron_h", hybrid_override_pattern="M*-M", ssm_state_size=128, mamba_num_heads=16, mamba_head_dim=64, n_groups=1,
        conv_kernel=4, chunk_size=256, use_conv_bias=True, use_bias=False, mlp_bias=False, expand=2,
    )  # fmt: skip


def granitehybrid() -> tuple[Model, Config]:
    keys = heads(**{"attention.head_count_kv": by_layer(4, FULL_LAYERS, 2)}, feed_forward_length=FF, **STATE, **RMS)
    keys |= {"rope.dimension_count": 0}
    model = Model("granitehybrid", 4, keys)
    for i in range(4):
        model.block(i, **NORMS, **(attention() if i in FULL_LAYERS else MAMBA2), **gated())
    words = ["attention" if i in FULL_LAYERS else "mamba" for i in range(4)]
    return model.ends(), config(
        "granitemoehybrid", layer_types=words, shared_intermediate_size=FF, num_local_experts=0, position_embedding_type="nope",
        **MAMBA2_KEYS,
    )  # fmt: skip


def falcon_h1() -> tuple[Model, Config]:
    model = Model("falcon-h1", 4, heads(feed_forward_length=FF, **STATE, **RMS))
    for i in range(4):
        model.block(i, **NORMS, **attention(), **MAMBA2, **gated())
    keys = MAMBA2_KEYS | {"mamba_d_ssm": 1024, "mamba_rms_norm": True}
    return model.ends(), config("falcon_h1", attention_bias=False, projectors_bias=False, mlp_bias=False, **keys)


#: 4 key heads and 8 value heads of 64.
DELTA_KEYS = {"ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 64, "ssm.time_step_rank": 8, "ssm.group_count": 4}
DELTA = {
    "ssm_conv1d": (4, 2 * 256 + 512), "ssm_dt__bias": (8,), "ssm_a": (8,), "ssm_norm": (64,), "ssm_out": (512, HIDDEN),
}  # fmt: skip
DELTA_CONFIG: Config = {
    "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "attn_output_gate": True, "partial_rotary_factor": 1.0,
}  # fmt: skip
GATED_QUERY = {**attention(), "attn_q": (HIDDEN, 2 * 512), **QK_NORMS}
AFTER = {"attn_norm": (HIDDEN,), "post_attention_norm": (HIDDEN,)}


def qwen3next(split: bool = False) -> tuple[Model, Config]:
    keys = heads(
        expert_count=8, expert_used_count=2, expert_feed_forward_length=256, expert_shared_feed_forward_length=256, **DELTA_KEYS
    )
    model = Model("qwen3next", 4, {**keys, **RMS})
    shared = {
        "ffn_gate_shexp": (HIDDEN, 256),
        "ffn_up_shexp": (HIDDEN, 256),
        "ffn_down_shexp": (256, HIDDEN),
        "ffn_gate_inp_shexp": (HIDDEN,),
    }
    into = {"attn_qkv": (HIDDEN, 1024), "attn_gate": (HIDDEN, 512)} if split else {"ssm_in": (HIDDEN, 1536)}
    for i in range(4):
        model.block(i, **AFTER, **(GATED_QUERY if i == 3 else {**DELTA, **into, "ssm_ba": (HIDDEN, 16)}), **experts(), **shared)
    return model.ends(), config(
        "qwen3_next", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, shared_expert_intermediate_size=256,
        decoder_sparse_step=1, mlp_only_layers=[], mtp_num_hidden_layers=0, **DELTA_CONFIG,
    )  # fmt: skip


def qwen35() -> tuple[Model, Config]:
    model = Model("qwen35", 4, heads(feed_forward_length=FF, **DELTA_KEYS, **RMS))
    into = {"attn_qkv": (HIDDEN, 1024), "attn_gate": (HIDDEN, 512), "ssm_beta": (HIDDEN, 8), "ssm_alpha": (HIDDEN, 8)}
    for i in range(4):
        model.block(i, **AFTER, **(GATED_QUERY if i == 3 else {**DELTA, **into}), **gated())
    return model.ends(), config("qwen3_5_text", **DELTA_CONFIG)


def lfm2() -> tuple[Model, Config]:
    model = Model("lfm2", 4, heads(**{"attention.head_count_kv": by_layer(4, FULL_LAYERS, 2), "shortconv.l_cache": 3, **RMS}))
    conv = {
        "shortconv__conv__weight": (3, HIDDEN), "shortconv__in_proj__weight": (HIDDEN, 3 * HIDDEN),
        "shortconv__out_proj__weight": (HIDDEN, HIDDEN),
    }  # fmt: skip
    for i in range(4):
        model.block(i, **NORMS, **({**attention(), **QK_NORMS} if i in FULL_LAYERS else conv), **gated())
    model.add("token_embd_norm.weight", HIDDEN)
    twin = config(
        "lfm2", layer_types=["full_attention" if i in FULL_LAYERS else "conv" for i in range(4)], conv_L_cache=3, conv_bias=False,
        block_auto_adjust_ff_dim=False, tie_word_embeddings=True, block_ff_dim=FF,
    )  # fmt: skip
    return model.ends(head=False, norm=False), twin


def rwkv6() -> tuple[Model, Config]:
    model = Model("rwkv6", 2, {"attention.head_count": 0, "wkv.head_size": 64, "attention.layer_norm_epsilon": 1e-5})
    square = (HIDDEN, HIDDEN)
    for i in range(2):
        model.block(
            i, attn_norm=(HIDDEN,), attn_norm__bias=(HIDDEN,), attn_norm_2=(HIDDEN,), attn_norm_2__bias=(HIDDEN,),
            time_mix_w1=(HIDDEN, 160), time_mix_w2=(32, HIDDEN, 5), time_mix_lerp_x=(HIDDEN, 1, 1), time_mix_lerp_fused=(HIDDEN, 1, 1, 5),
            time_mix_first=(64, 8), time_mix_decay=(HIDDEN,), time_mix_decay_w1=(HIDDEN, 64), time_mix_decay_w2=(64, HIDDEN),
            time_mix_key=square, time_mix_value=square, time_mix_receptance=square, time_mix_gate=square, time_mix_output=square,
            time_mix_ln=(HIDDEN,), time_mix_ln__bias=(HIDDEN,), channel_mix_lerp_k=(HIDDEN, 1, 1), channel_mix_lerp_r=(HIDDEN, 1, 1),
            channel_mix_key=(HIDDEN, 1792), channel_mix_value=(1792, HIDDEN), channel_mix_receptance=square,
        )  # fmt: skip
    model.add("token_embd_norm.weight", HIDDEN)
    model.add("token_embd_norm.bias", HIDDEN)
    twin = {
        "model_type": "rwkv6", "hidden_size": HIDDEN, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "head_size": 64,
        "intermediate_size": 1792, "context_length": 32768, "torch_dtype": "float16",
    }  # fmt: skip
    return model.ends(bias=True), twin


def rwkv7() -> tuple[Model, Config]:
    """The first layer carries a value residual that it never reads."""
    model = Model("rwkv7", 2, {"attention.head_count": 0, "wkv.head_size": 64, "attention.layer_norm_epsilon": 1e-5})
    square, ranks = (HIDDEN, HIDDEN), {"w": 64, "a": 64, "v": 32, "g": 128}
    for i in range(2):
        low = {f"time_mix_{k}{j}": ((HIDDEN, r), (r, HIDDEN))[j - 1] for k, r in ranks.items() for j in (1, 2)}
        vectors = {f"time_mix_{name}": (HIDDEN,) for name in ("w0", "a0", "v0", "k_k", "k_a", "r_k", "ln")}
        model.block(
            i, attn_norm=(HIDDEN,), attn_norm__bias=(HIDDEN,), attn_norm_2=(HIDDEN,), attn_norm_2__bias=(HIDDEN,), **low, **vectors,
            time_mix_lerp_fused=(HIDDEN, 1, 1, 6), time_mix_key=square, time_mix_value=square, time_mix_receptance=square,
            time_mix_output=square, time_mix_ln__bias=(HIDDEN,), channel_mix_lerp_k=(HIDDEN, 1, 1), channel_mix_key=(HIDDEN, 2048),
            channel_mix_value=(2048, HIDDEN),
        )  # fmt: skip
    model.add("token_embd_norm.weight", HIDDEN)
    model.add("token_embd_norm.bias", HIDDEN)
    twin = {
        "model_type": "rwkv7", "hidden_size": HIDDEN, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "head_dim": 64,
        "intermediate_size": 2048, "decay_low_rank_dim": 64, "a_low_rank_dim": 64, "v_low_rank_dim": 32, "gate_low_rank_dim": 128,
        "tie_word_embeddings": False, "torch_dtype": "float16", "max_position_embeddings": 32768,
    }  # fmt: skip
    return model.ends(bias=True), twin


def kimi_linear() -> tuple[Model, Config]:
    keys: dict[str, Any] = {
        "attention.head_count": 8, "attention.head_count_kv": [0, 0, 0, 1], "attention.kv_lora_rank": 256, "attention.key_length": 320,
        "attention.value_length": 256, "attention.key_length_mla": 192, "attention.value_length_mla": 128, "kda.head_dim": 64,
        "ssm.conv_kernel": 4, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 256, "expert_shared_count": 1,
        "leading_dense_block_count": 1, "rope.dimension_count": 64, **RMS,
    }  # fmt: skip
    model = Model("kimi-linear", 4, keys)
    width = 8 * 64
    delta = {f"ssm_conv1d_{letter}": (4, width) for letter in "qkv"} | {f"attn_{letter}": (HIDDEN, width) for letter in "qkv"}
    delta |= {
        "ssm_f_a": (HIDDEN, 64), "ssm_f_b": (64, width), "ssm_beta": (HIDDEN, 8), "ssm_a": (1, 8), "ssm_dt__bias": (width,),
        "ssm_g_a": (HIDDEN, 64), "ssm_g_b": (64, width), "ssm_norm": (64,), "attn_output": (width, HIDDEN),
    }  # fmt: skip
    latent = {
        "attn_q": (HIDDEN, 8 * 192), "attn_kv_a_mqa": (HIDDEN, 320), "attn_kv_a_norm": (256,), "attn_k_b": (128, 256, 8),
        "attn_v_b": (256, 128, 8), "attn_output": (8 * 128, HIDDEN),
    }  # fmt: skip
    shared = {"ffn_gate_shexp": (HIDDEN, 256), "ffn_up_shexp": (HIDDEN, 256), "ffn_down_shexp": (256, HIDDEN)}
    sparse = {**experts(), **shared, "exp_probs_b__bias": (8,)}
    for i in range(4):
        model.block(i, **NORMS, **(latent if i == 3 else delta), **(sparse if i else gated()))
    linear = {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 8, "head_dim": 64, "short_conv_kernel_size": 4}
    twin = config(
        "kimi_linear", q_lora_rank=None, kv_lora_rank=256, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, num_experts=8,
        num_experts_per_token=2, num_shared_experts=1, moe_intermediate_size=256, first_k_dense_replace=1, linear_attn_config=linear,
        mla_use_nope=True, moe_layer_freq=1,
    )  # fmt: skip
    twin.pop("head_dim")
    return model.ends(), twin


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
    widths = dict(
        attn_q=512, attn_k=512, attn_v=512, attn_output=512, ffn_up=2048, ffn_down=512, attn_output_norm=512, layer_output_norm=512
    )
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
    "mamba": mamba, "mamba2": mamba2, "jamba": jamba, "nemotron_h": nemotron_h, "granitehybrid": granitehybrid, "falcon-h1": falcon_h1,
    "qwen3next": qwen3next, "qwen3next with split projections": lambda: qwen3next(split=True), "qwen35": qwen35, "lfm2": lfm2,
    "rwkv6": rwkv6, "rwkv7": rwkv7, "kimi-linear": kimi_linear, "gemma3n": gemma3n, "gemma4": gemma4, "llama4": llama4,
    "step35": step35, "deci": deci, "glm-dsa": glm_dsa, "minimax-m2": minimax_m2, "exaone4 with windows": exaone4,
    "exaone4 without": lambda: exaone4(30), "olmo2": olmo2, "bert": bert, "smollm3": smollm3,
}  # fmt: skip
