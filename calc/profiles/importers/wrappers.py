"""Finds the text model of a config: the object itself, or the part of a vision or audio wrapper that describes it."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.families import family_of, known_types
from calc.profiles.importers.towers import WRAPPERS

TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
#: Keys that a wrapper states for its text model.
_INHERITED = ("tie_word_embeddings", "torch_dtype", "dtype", "vocab_size", "hidden_size")


def text_config(root: Config) -> tuple[Config, str]:
    """(config of the text model, its model type)."""
    text = root
    for name in TEXT_SECTIONS:
        section = root.section(name)
        if section is not None:
            text = section
            break
    if text is not root:
        for key in _INHERITED:
            root.ignore(key)
            if key in root.data and text.data.get(key) is None:
                text.data = {**text.data, key: root.data[key]}
    return text, _model_type(root, text)


#: Class of the text model where a wrapper's section does not name it.
_TEXT_TYPES = {
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "paligemma": "gemma", "llava": "llama",
    "llava_next": "llama", "llava_onevision": "qwen2", "idefics3": "llama", "smolvlm": "llama", "mistral3": "mistral",
    "internvl": "qwen2", "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "llama4": "llama4_text",
    "mllama": "mllama_text_model", "kimi_vl": "deepseek_v3", "kimi_k25": "kimi_k2", "kimi_k3": "kimi_linear", "step3_vl": "step3_text",
    "step3p7": "step3p5", "minimax_m3_vl": "minimax_m3", "glm4v": "glm4v_text", "glm4v_moe": "glm4v_moe_text", "voxtral": "llama",
}  # fmt: skip


def _model_type(root: Config, text: Config) -> str:
    wrapper, named = root.word("model_type"), text.word("model_type")
    architectures = text.items("architectures") or root.items("architectures") or []
    # Grok-2's config carries the model type of another class: the architecture decides.
    if any(str(name).startswith("Grok1") for name in architectures):
        return "grok-1"
    if text is not root and wrapper is not None:
        if wrapper not in WRAPPERS and family_of(wrapper) is None:
            raise root.unknown("model_type", wrapper, [*WRAPPERS, *known_types()], "model type")
        named = named or _TEXT_TYPES.get(wrapper)
    if not named:
        if "ssm_cfg" in text.data:
            return "mamba_ssm"
        raise text.fault("model_type", "is missing", "a config.json names its class in model_type")
    return named
