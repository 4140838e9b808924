"""The families of models: which module reads which ``model_type``. Modules are loaded when a config asks for them."""

from __future__ import annotations

from importlib import import_module

from calc.profiles.importers.mechanisms.decoder import Family

#: Module → the model types that it reads.
MODULES: dict[str, tuple[str, ...]] = {
    "llama": (
        "llama", "mistral", "ministral", "ministral3", "granite", "arcee", "apertus", "smollm3", "internlm", "internlm2", "internlm3",
        "baichuan", "minicpm", "orion", "seed_oss", "exaone", "exaone4", "ernie4_5", "olmo", "olmo2", "olmo3", "mimo", "hunyuan_v1_dense",
    ),
    "qwen": ("qwen", "qwen2", "qwen3"),
    "gemma": ("gemma", "gemma2", "gemma3_text"),
    "phi": ("phi", "phi-msft", "phi3", "phi3small"),
    "layer_norm": ("cohere", "cohere2", "stablelm", "starcoder2", "nemotron"),
    "glm": ("chatglm", "glm", "glm4", "glm4v_text"),
    "moe": (
        "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "granitemoeshared", "phimoe", "gpt_oss", "dbrx", "grok-1",
        "ernie4_5_moe", "deepseek", "dots1", "glm4_moe", "glm4v_moe_text", "bailing_moe", "hunyuan_v1_moe", "hunyuan",
    ),
    "sparse_decoders": ("llama4_text", "minimax_m2", "minimax_m3", "mimo_v2_flash", "step3_text", "step3p5", "step3p7"),
    "latent": (
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite", "minicpm3", "longcat_flash",
    ),
    "deepseek_v4": ("deepseek_v4",),
    "recurrent": ("mamba", "falcon_mamba", "mamba2", "mamba_ssm", "rwkv5", "rwkv6", "rwkv7"),
    "state_hybrids": ("jamba", "bamba", "granitemoehybrid", "falcon_h1", "zamba2"),
    "nemotron_h": ("nemotron_h",),
    "linear_hybrids": (
        "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "minimax", "minimax_m1", "lfm2", "lfm2_moe", "recurrent_gemma",
    ),
    "kimi_linear": ("kimi_linear", "bailing_hybrid"),
    "gemma_n": ("gemma3n_text", "gemma4_text"),
    "irregular": ("nemotron-nas", "deci", "mllama_text_model"),
    "encoder_decoder": ("t5", "mt5", "umt5", "bart", "mbart", "whisper"),
    "encoder_only": ("bert", "roberta", "xlm-roberta", "distilbert", "modernbert"),
    "gpt": ("gpt2", "gpt_bigcode", "opt", "gpt_neox", "gptj", "bloom", "mpt", "falcon"),
}  # fmt: skip
_MODULE_OF = {model_type: module for module, types in MODULES.items() for model_type in types}
#: Names under which the same classes are found.
ALIASES: dict[str, str] = {
    "Yi": "llama",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "step3p5_flash": "step3p5",
    "bailing_moe_v2": "bailing_moe",
    "deepseek_ref": "deepseek_v4",
    "minimax_m3_vl_text": "minimax_m3",
}


def known_types() -> list[str]:
    """All model types that have a law."""
    return sorted({*_MODULE_OF, *ALIASES})


def family_of(model_type: str) -> Family | None:
    """The family that reads a model type, or None."""
    name = ALIASES.get(model_type, model_type)
    module = _MODULE_OF.get(name)
    if module is None:
        return None
    families: dict[str, Family] = import_module(f"{__name__}.{module}").FAMILIES
    return families[name]
