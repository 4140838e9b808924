"""Vision and audio towers: parameters from their own configs. Which tower a wrapper carries, and how it is joined to the text model."""

from __future__ import annotations

from collections.abc import Callable

from calc.profiles.importers.config import Config
from calc.profiles.importers.towers import gemma, llama, moonvit, qwen, step, vit
from calc.profiles.model import Tower

#: Keys that a wrapper states about its towers without changing their size.
_HARMLESS = ("mm_tokens_per_image", "vision_soft_tokens_per_image", "audio_soft_tokens_per_image", "image_grid_pinpoints")
Law = Callable[[Config, Config, int], Tower]

_VISION: dict[str, Law] = {
    "gemma3": gemma.gemma3,
    "gemma3n": gemma.gemma3n_vision,
    "gemma4": gemma.gemma4_vision,
    "paligemma": vit.paligemma,
    "llava": vit.llava,
    "llava_next": vit.llava,
    "llava_onevision": vit.llava,
    "idefics3": vit.idefics3,
    "smolvlm": vit.idefics3,
    "minimax_m3_vl": vit.minimax_m3,
    "glm4v": vit.glm4v,
    "glm4v_moe": vit.glm4v,
    "mistral3": vit.mistral3,
    "ministral3": vit.mistral3,
    "internvl": vit.internvl,
    "internvl_chat": vit.internvl,
    "qwen2_vl": qwen.qwen2_vl,
    "qwen2_5_vl": qwen.qwen2_5_vl,
    "qwen3_vl": qwen.qwen3_vl,
    "qwen3_vl_moe": qwen.qwen3_vl,
    "qwen3_5": qwen.qwen3_vl,
    "qwen3_5_moe": qwen.qwen3_vl,
    "llama4": llama.llama4,
    "mllama": llama.mllama,
    "kimi_vl": moonvit.kimi,
    "kimi_k25": moonvit.kimi,
    "kimi_k3": moonvit.kimi_k3,
    "step3_vl": step.step3,
    "step3p7": step.step3_flash,
}
_AUDIO: dict[str, Law] = {"gemma3n": gemma.gemma3n_audio, "gemma4": gemma.gemma4_audio}

#: Wrappers whose text model is read although no law is known for their towers.
_UNCOUNTED = (
    "aya_vision",
    "cohere2_vision",
    "lfm2_vl",
    "voxtral",
    "qwen2_audio",
    "qwen2_5_omni",
    "qwen3_omni_moe",
    "ovis2",
)
#: Model types that wrap a text model.
WRAPPERS = frozenset({*_VISION, *_AUDIO, *_UNCOUNTED})


def towers_of(root: Config, hidden_size: int) -> list[Tower]:
    """Towers of a wrapper; ``hidden_size`` is that of the text model they feed."""
    wrapper = root.word("model_type") or ""
    root.ignore(*_HARMLESS)
    found: list[Tower] = []
    for key, laws in (("vision_config", _VISION), ("audio_config", _AUDIO)):
        section = root.section(key)
        if section is None:
            continue
        law = laws.get(wrapper)
        if law is None:
            root.warn(f"{key}: no law is known for the tower of {wrapper!r}; its parameters are not counted")
            section.used.update(section.data)
        else:
            found.append(law(root, section, hidden_size))
    return found
