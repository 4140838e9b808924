"""Finds the text model of a config: the object itself, or the part of a vision or audio wrapper that describes it."""

from __future__ import annotations

from calc.profiles.importers.config import Config
from calc.profiles.importers.families import family_of

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


def _model_type(root: Config, text: Config) -> str:
    named = text.word("model_type") or ""
    root.ignore("model_type")
    architectures = text.items("architectures") or root.items("architectures") or []
    # Grok-2's config carries the model type of another class: the architecture decides.
    if any(str(name).startswith("Grok1") for name in architectures):
        return "grok-1"
    if not named:
        if "ssm_cfg" in text.data:
            return "mamba_ssm"
        raise text.fault("model_type", "is missing", "a config.json names its class in model_type")
    if text is not root and family_of(named) is None:
        return root.word("model_type") or named
    return named
