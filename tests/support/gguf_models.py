"""Small models as llama.cpp's converter would write them: metadata and tensor lists by architecture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.gguf import Spec

HIDDEN, VOCABULARY, HEADS, KV_HEADS, HEAD, FF = 512, 1024, 8, 2, 64, 1024


@dataclass
class Model:
    """Metadata without the architecture's name in front, tensors with blocks numbered."""

    architecture: str
    layers: int
    keys: dict[str, Any] = field(default_factory=dict)
    tensors: list[Spec] = field(default_factory=list)

    @property
    def metadata(self) -> dict[str, Any]:
        own = {"block_count": self.layers, "embedding_length": HIDDEN, "context_length": 32768, **self.keys}
        tokens = {"tokenizer.ggml.tokens": [f"t{i}" for i in range(16)]}
        return {"general.architecture": self.architecture} | {f"{self.architecture}.{k}": v for k, v in own.items()} | tokens

    def add(self, name: str, *shape: int, kind: str | None = None) -> None:
        """Matrices in Q4_K, vectors in fp32, as files have them."""
        wide = len(shape) > 1 and shape[0] % 256 == 0
        self.tensors.append((name, shape, kind or ("q4_k" if wide else "fp32")))

    def block(self, index: int, **shapes: tuple[int, ...]) -> None:
        """Tensors of a layer; ``__`` stands for a dot, a name without a dot gets ``.weight``."""
        for name, shape in shapes.items():
            dotted = name.replace("__", ".")
            bare = dotted.startswith(("ssm_a", "ssm_d")) and dotted in ("ssm_a", "ssm_d")
            self.add(f"blk.{index}.{dotted}" + ("" if bare or "." in dotted else ".weight"), *shape)

    def ends(self, *, head: bool = True, norm: bool = True, bias: bool = False) -> Model:
        self.add("token_embd.weight", HIDDEN, VOCABULARY)
        if norm:
            self.add("output_norm.weight", HIDDEN)
            if bias:
                self.add("output_norm.bias", HIDDEN)
        if head:
            self.add("output.weight", HIDDEN, VOCABULARY, kind="q6_k")
        return self


def attention(heads: int = HEADS, kv: int = KV_HEADS, head: int = HEAD, value: int | None = None) -> dict[str, tuple[int, ...]]:
    value = value or head
    return {
        "attn_q": (HIDDEN, heads * head),
        "attn_k": (HIDDEN, kv * head),
        "attn_v": (HIDDEN, kv * value),
        "attn_output": (heads * value, HIDDEN),
    }


def heads(**more: Any) -> dict[str, Any]:
    return {
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        **more,
    }


def gated(width: int = FF) -> dict[str, tuple[int, ...]]:
    return {"ffn_gate": (HIDDEN, width), "ffn_up": (HIDDEN, width), "ffn_down": (width, HIDDEN)}


def experts(number: int = 8, width: int = 256) -> dict[str, tuple[int, ...]]:
    return {
        "ffn_gate_inp": (HIDDEN, number),
        "ffn_gate_exps": (HIDDEN, width, number),
        "ffn_up_exps": (HIDDEN, width, number),
        "ffn_down_exps": (width, HIDDEN, number),
    }


NORMS = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)}
QK_NORMS = {"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)}
RMS = {"attention.layer_norm_rms_epsilon": 1e-5}


def biases(**widths: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}__bias": (width,) for name, width in widths.items()}


def decoder(
    architecture: str, layers: int = 4, *, head: bool = True, keys: dict[str, Any] | None = None, **parts: tuple[int, ...]
) -> Model:
    """A plain decoder: attention, a gated part, two norms, and whatever ``parts`` adds."""
    model = Model(architecture, layers, heads(feed_forward_length=FF, **RMS, **(keys or {})))
    for index in range(layers):
        model.block(index, **NORMS, **attention(), **gated(), **parts)
    return model.ends(head=head)


# --- decoders with the config.json of the same model ------------------------------------------------------------------------

Config = dict[str, Any]
BASE: Config = {
    "hidden_size": HIDDEN, "vocab_size": VOCABULARY, "num_hidden_layers": 4, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD, "intermediate_size": FF, "max_position_embeddings": 32768, "tie_word_embeddings": False, "torch_dtype": "float16",
    "hidden_act": "silu",
}  # fmt: skip


def config(model_type: str, **more: Any) -> Config:
    return BASE | {"model_type": model_type} | more


def llama() -> tuple[Model, Config]:
    model = decoder("llama")
    model.add("rope_freqs.weight", HEAD // 2)
    return model, config("llama")


def mixtral() -> tuple[Model, Config]:
    model = Model("llama", 4, heads(expert_count=8, expert_used_count=2, feed_forward_length=256, **RMS))
    for i in range(4):
        model.block(i, **NORMS, **attention(), **experts())
    return model.ends(), config("mixtral", num_local_experts=8, num_experts_per_tok=2, intermediate_size=256, sliding_window=None)


def old_mixtral() -> tuple[Model, Config]:
    """Each expert's matrices as tensors of their own."""
    model, twin = Model("llama", 4, heads(expert_count=8, expert_used_count=2, **RMS)), mixtral()[1]
    for i in range(4):
        model.block(i, **NORMS, **attention(), ffn_gate_inp=(HIDDEN, 8))
        for expert in range(8):
            model.add(f"blk.{i}.ffn_gate.{expert}.weight", HIDDEN, 256)
            model.add(f"blk.{i}.ffn_up.{expert}.weight", HIDDEN, 256)
            model.add(f"blk.{i}.ffn_down.{expert}.weight", 256, HIDDEN)
    return model.ends(), twin


def qwen2() -> tuple[Model, Config]:
    model = decoder("qwen2", head=False, **biases(attn_q=512, attn_k=128, attn_v=128))
    return model, config("qwen2", tie_word_embeddings=True, use_sliding_window=False)


def qwen3() -> tuple[Model, Config]:
    return decoder("qwen3", **QK_NORMS), config("qwen3", use_sliding_window=False)


def qwen2moe() -> tuple[Model, Config]:
    keys = heads(expert_count=8, expert_used_count=2, expert_feed_forward_length=256, expert_shared_feed_forward_length=512, **RMS)
    model = Model("qwen2moe", 4, keys)
    shared = {
        "ffn_gate_shexp": (HIDDEN, 512),
        "ffn_up_shexp": (HIDDEN, 512),
        "ffn_down_shexp": (512, HIDDEN),
        "ffn_gate_inp_shexp": (HIDDEN,),
    }
    for i in range(4):
        model.block(i, **NORMS, **attention(), **experts(), **shared, **biases(attn_q=512, attn_k=128, attn_v=128))
    return model.ends(), config(
        "qwen2_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, shared_expert_intermediate_size=512,
        decoder_sparse_step=1, use_sliding_window=False,
    )  # fmt: skip


def qwen3moe() -> tuple[Model, Config]:
    model = Model("qwen3moe", 4, heads(expert_count=8, expert_used_count=2, expert_feed_forward_length=256, **RMS))
    for i in range(4):
        model.block(i, **NORMS, **attention(), **experts(), **QK_NORMS)
    return model.ends(), config(
        "qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, decoder_sparse_step=1, mlp_only_layers=[],
        use_sliding_window=False,
    )  # fmt: skip


def gemma2() -> tuple[Model, Config]:
    keys = {"attention.sliding_window": 4096}
    model = decoder("gemma2", head=False, keys=keys, post_attention_norm=(HIDDEN,), post_ffw_norm=(HIDDEN,))
    return model, config("gemma2", tie_word_embeddings=True, sliding_window=4096)


def gemma3() -> tuple[Model, Config]:
    model = decoder(
        "gemma3", 8, head=False, keys={"attention.sliding_window": 1024},
        post_attention_norm=(HIDDEN,), post_ffw_norm=(HIDDEN,), **QK_NORMS,
    )  # fmt: skip
    return model, config(
        "gemma3_text", num_hidden_layers=8, tie_word_embeddings=True, sliding_window=1024, sliding_window_pattern=6
    )


def phi3() -> tuple[Model, Config]:
    model = Model("phi3", 4, heads(feed_forward_length=FF, **{"rope.dimension_count": 64}, **RMS))
    for i in range(4):
        model.block(
            i, **NORMS, attn_qkv=(HIDDEN, 512 + 2 * 128), attn_output=(512, HIDDEN), ffn_up=(HIDDEN, 2 * FF), ffn_down=(FF, HIDDEN)
        )
    model.add("rope_factors_long.weight", 32)
    model.add("rope_factors_short.weight", 32)
    return model.ends(), config("phi3", sliding_window=None)


def command_r() -> tuple[Model, Config]:
    model = Model("command-r", 4, heads(**{"attention.layer_norm_epsilon": 1e-5}))
    for i in range(4):
        model.block(i, attn_norm=(HIDDEN,), **attention(), **gated())
    return model.ends(head=False), config("cohere", tie_word_embeddings=True, use_qk_norm=False)


def cohere2() -> tuple[Model, Config]:
    model = Model("cohere2", 4, heads(**{"attention.layer_norm_epsilon": 1e-5, "attention.sliding_window": 4096}))
    for i in range(4):
        model.block(i, attn_norm=(HIDDEN,), **attention(), **gated())
    return model.ends(head=False), config("cohere2", tie_word_embeddings=True, sliding_window=4096, sliding_window_pattern=4)


def starcoder2() -> tuple[Model, Config]:
    model = Model("starcoder2", 4, heads(**{"attention.layer_norm_epsilon": 1e-5}))
    widths = {
        "attn_q": 512,
        "attn_k": 128,
        "attn_v": 128,
        "attn_output": 512,
        "ffn_up": FF,
        "ffn_down": 512,
        "attn_norm": 512,
        "ffn_norm": 512,
    }
    for i in range(4):
        model.block(i, **NORMS, **attention(), ffn_up=(HIDDEN, FF), ffn_down=(FF, HIDDEN), **biases(**widths))
    return model.ends(head=False, bias=True), config("starcoder2", tie_word_embeddings=True, use_bias=True, sliding_window=None)


def gptneox() -> tuple[Model, Config]:
    keys = {
        "attention.head_count": 8,
        "attention.layer_norm_epsilon": 1e-5,
        "use_parallel_residual": True,
        "rope.dimension_count": 16,
    }
    model = Model("gptneox", 4, keys)
    widths = {"attn_qkv": 1536, "attn_output": 512, "ffn_up": FF, "ffn_down": 512, "attn_norm": 512, "ffn_norm": 512}
    for i in range(4):
        model.block(
            i,
            **NORMS,
            attn_qkv=(HIDDEN, 1536),
            attn_output=(512, HIDDEN),
            ffn_up=(HIDDEN, FF),
            ffn_down=(FF, HIDDEN),
            **biases(**widths),
        )
    return model.ends(bias=True), config("gpt_neox", num_key_value_heads=8, rotary_pct=0.25, use_parallel_residual=True)


def gpt2() -> tuple[Model, Config]:
    model = Model("gpt2", 4, {"attention.head_count": 8, "attention.layer_norm_epsilon": 1e-5, "context_length": 1024})
    widths = {"attn_qkv": 1536, "attn_output": 512, "ffn_up": 2048, "ffn_down": 512, "attn_norm": 512, "ffn_norm": 512}
    for i in range(4):
        model.block(
            i, **NORMS, attn_qkv=(HIDDEN, 1536), attn_output=(512, HIDDEN), ffn_up=(HIDDEN, 2048), ffn_down=(2048, HIDDEN),
            **biases(**widths),
        )  # fmt: skip
    model.add("position_embd.weight", HIDDEN, 1024, kind="fp32")
    twin = {
        "model_type": "gpt2", "n_embd": HIDDEN, "n_layer": 4, "n_head": 8, "n_positions": 1024, "vocab_size": VOCABULARY,
        "torch_dtype": "float16",
    }  # fmt: skip
    return model.ends(head=False, bias=True), twin


def falcon() -> tuple[Model, Config]:
    keys = {"attention.head_count": 8, "attention.head_count_kv": 1, "attention.layer_norm_epsilon": 1e-5}
    model = Model("falcon", 4, keys)
    for i in range(4):
        model.block(
            i, attn_norm=(HIDDEN,), attn_norm__bias=(HIDDEN,), attn_qkv=(HIDDEN, 512 + 128), attn_output=(512, HIDDEN),
            ffn_up=(HIDDEN, 2048), ffn_down=(2048, HIDDEN),
        )  # fmt: skip
    twin = {
        "model_type": "falcon", "hidden_size": HIDDEN, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": VOCABULARY,
        "multi_query": True, "bias": False, "parallel_attn": True, "new_decoder_architecture": False, "torch_dtype": "float16",
        "max_position_embeddings": 32768,
    }  # fmt: skip
    return model.ends(head=False, bias=True), twin


def gpt_oss() -> tuple[Model, Config]:
    keys = heads(expert_count=8, expert_used_count=4, expert_feed_forward_length=256, **RMS, **{"attention.sliding_window": 128})
    model = Model("gpt-oss", 4, keys)
    widths = {"attn_q": 512, "attn_k": 128, "attn_v": 128, "attn_output": 512, "ffn_gate_inp": 8}
    for i in range(4):
        model.block(
            i, attn_norm=(HIDDEN,), post_attention_norm=(HIDDEN,), **attention(), attn_sinks=(8,), **experts(), **biases(**widths)
        )
        for part, width in (("gate", 256), ("up", 256), ("down", 512)):
            model.add(f"blk.{i}.ffn_{part}_exps.bias", width, 8, kind="fp32")
    for j, (name, shape, _) in enumerate(model.tensors):
        if name.endswith("_exps.weight"):
            model.tensors[j] = (name, shape, "mxfp4")
    twin = config(
        "gpt_oss", num_local_experts=8, num_experts_per_tok=4, intermediate_size=256, sliding_window=128, attention_bias=True
    )
    return model.ends(), twin


def glm4moe() -> tuple[Model, Config]:
    """A dense layer first, and a module that predicts a further token, counted in block_count."""
    keys = heads(
        expert_count=8, expert_used_count=2, expert_feed_forward_length=256, expert_shared_count=1, leading_dense_block_count=1,
        nextn_predict_layers=1, feed_forward_length=FF, **RMS,
    )  # fmt: skip
    model = Model("glm4moe", 5, keys)
    shared = {"ffn_gate_shexp": (HIDDEN, 256), "ffn_up_shexp": (HIDDEN, 256), "ffn_down_shexp": (256, HIDDEN)}
    sparse = {**experts(), **shared, "exp_probs_b__bias": (8,)}
    norms = {"attn_norm": (HIDDEN,), "post_attention_norm": (HIDDEN,)}
    for i in range(5):
        model.block(
            i, **norms, **attention(), **QK_NORMS, **biases(attn_q=512, attn_k=128, attn_v=128), **(sparse if i else gated())
        )
    model.block(4, nextn__eh_proj__weight=(2 * HIDDEN, HIDDEN))
    for name in ("enorm", "hnorm", "shared_head_norm"):
        model.add(f"blk.4.nextn.{name}.weight", HIDDEN)
    return model.ends(), config(
        "glm4_moe", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, n_shared_experts=1, first_k_dense_replace=1,
        num_nextn_predict_layers=1, use_qk_norm=True, attention_bias=True, partial_rotary_factor=1.0,
    )  # fmt: skip


def granitemoe() -> tuple[Model, Config]:
    keys = heads(expert_count=8, expert_used_count=2, feed_forward_length=256, expert_shared_feed_forward_length=512, **RMS)
    model = Model("granitemoe", 4, keys)
    shared = {"ffn_gate_shexp": (HIDDEN, 512), "ffn_up_shexp": (HIDDEN, 512), "ffn_down_shexp": (512, HIDDEN)}
    for i in range(4):
        model.block(i, **NORMS, **attention(), **experts(), **shared)
    return model.ends(head=False), config(
        "granitemoeshared", num_local_experts=8, num_experts_per_tok=2, intermediate_size=256, shared_intermediate_size=512,
        tie_word_embeddings=True,
    )  # fmt: skip


def _latent_parts(absorbed: bool, low_rank: bool) -> dict[str, tuple[int, ...]]:
    parts: dict[str, tuple[int, ...]] = {
        "attn_kv_a_mqa": (HIDDEN, 256 + 64), "attn_kv_a_norm": (256,), "attn_output": (8 * 128, HIDDEN),
    }  # fmt: skip
    if low_rank:
        parts |= {"attn_q_a": (HIDDEN, 256), "attn_q_a_norm": (256,), "attn_q_b": (256, 8 * 192)}
    else:
        parts |= {"attn_q": (HIDDEN, 8 * 192)}
    if absorbed:
        return parts | {"attn_k_b": (128, 256, 8), "attn_v_b": (256, 128, 8)}
    return parts | {"attn_kv_b": (256, 8 * 256)}


def deepseek2(absorbed: bool = True, low_rank: bool = True) -> tuple[Model, Config]:
    keys: dict[str, Any] = {
        "attention.head_count": 8, "attention.kv_lora_rank": 256, "rope.dimension_count": 64, "expert_count": 8, "expert_used_count": 2,
        "expert_feed_forward_length": 256, "expert_shared_count": 1, "leading_dense_block_count": 1, "feed_forward_length": FF, **RMS,
    }  # fmt: skip
    if low_rank:
        keys["attention.q_lora_rank"] = 256
    if absorbed:
        keys |= {"attention.key_length": 320, "attention.value_length": 256, "attention.head_count_kv": 1}
        keys |= {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    else:
        keys |= {"attention.key_length": 192, "attention.value_length": 128, "attention.head_count_kv": 8}
    model = Model("deepseek2", 4, keys)
    shared = {"ffn_gate_shexp": (HIDDEN, 256), "ffn_up_shexp": (HIDDEN, 256), "ffn_down_shexp": (256, HIDDEN)}
    sparse = {**experts(), **shared} | ({"exp_probs_b__bias": (8,)} if low_rank else {})
    for i in range(4):
        model.block(i, **NORMS, **_latent_parts(absorbed, low_rank), **(sparse if i else gated()))
    return model.ends(), config(
        "deepseek_v3" if low_rank else "deepseek_v2", q_lora_rank=256 if low_rank else None, kv_lora_rank=256, qk_rope_head_dim=64,
        qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=256,
        first_k_dense_replace=1, topk_method="noaux_tc" if low_rank else "greedy", num_key_value_heads=8, moe_layer_freq=1,
    )  # fmt: skip


TWINS = {
    "llama": llama, "mixtral": mixtral, "old mixtral": old_mixtral, "qwen2": qwen2, "qwen3": qwen3, "qwen2moe": qwen2moe,
    "qwen3moe": qwen3moe, "gemma2": gemma2, "gemma3": gemma3, "phi3": phi3, "command-r": command_r, "cohere2": cohere2,
    "starcoder2": starcoder2, "gptneox": gptneox, "gpt2": gpt2, "falcon": falcon, "gpt-oss": gpt_oss, "glm4moe": glm4moe,
    "granitemoe": granitemoe, "deepseek2": deepseek2, "deepseek2 before latent tensors": lambda: deepseek2(absorbed=False),
    "deepseek2 lite": lambda: deepseek2(low_rank=False),
}  # fmt: skip
