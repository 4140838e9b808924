"""The families of models: which module reads which ``model_type``. Modules are loaded when a config asks for them."""

from __future__ import annotations

from importlib import import_module

from calc.profiles.importers.mechanisms.decoder import Family

#: Module → the model types that it reads.
MODULES: dict[str, tuple[str, ...]] = {
    "llama": (
        "llama", "mistral", "ministral", "ministral3", "granite", "arcee", "apertus", "smollm3", "internlm", "internlm2", "internlm3",
        "baichuan", "minicpm", "seed_oss", "exaone", "exaone4", "ernie4_5", "olmo", "olmo2", "olmo3", "mimo", "hunyuan_v1_dense",
    ),
    "qwen": ("qwen2", "qwen3"),
    "gemma": ("gemma", "gemma2", "gemma3_text"),
    "phi": ("phi", "phi-msft", "phi3", "phi3small"),
    "layer_norm": ("cohere", "cohere2", "stablelm", "starcoder2", "nemotron"),
    "glm": ("chatglm", "glm", "glm4"),
    "gpt": ("gpt2", "gpt_bigcode", "opt", "gpt_neox", "gptj", "bloom", "mpt", "falcon"),
}  # fmt: skip
_MODULE_OF = {model_type: module for module, types in MODULES.items() for model_type in types}
#: Names under which the same classes are found.
ALIASES: dict[str, str] = {"Yi": "llama", "RefinedWeb": "falcon", "RefinedWebModel": "falcon", "qwen3_vl_text": "qwen3"}


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
