"""Small models that keep a state, as llama.cpp's converter would write them, with the config.json of the same model."""

from __future__ import annotations

from typing import Any

from tests.support.gguf_models import (
    FF,
    HIDDEN,
    NORMS,
    QK_NORMS,
    RMS,
    VOCABULARY,
    Config,
    Model,
    attention,
    config,
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


TWINS = {
    "mamba": mamba, "mamba2": mamba2, "jamba": jamba, "nemotron_h": nemotron_h, "granitehybrid": granitehybrid, "falcon-h1": falcon_h1,
    "qwen3next": qwen3next, "qwen3next with split projections": lambda: qwen3next(split=True), "qwen35": qwen35, "lfm2": lfm2,
    "rwkv6": rwkv6, "rwkv7": rwkv7, "kimi-linear": kimi_linear,
}  # fmt: skip
