"""Configs as dicts: the shared ones, small ones made up here, and what the importer says of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from calc.errors import ProfileError
from calc.operators.parameters import Parameters, count_parameters
from calc.profiles.importers.hf_config import import_config
from calc.profiles.importers.json_file import parse_json
from calc.profiles.model import ModelProfile

DATA = Path(__file__).parents[1] / "data"
CONFIGS = DATA / "model_configs"


@cache
def _text(name: str) -> str:
    return (CONFIGS / f"{name}.json").read_text(encoding="utf-8")


def config(name: str, **changes: Any) -> dict[str, Any]:
    """A shared config by file name without suffix; a change to ``...`` takes the key away."""
    return changed(json.loads(_text(name)), **changes)


def changed(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A config with other values; ``...`` takes the key away."""
    found = {**data, **changes}
    return {key: value for key, value in found.items() if value is not ...}


def llama(**changes: Any) -> dict[str, Any]:
    """A small dense decoder."""
    return changed(
        {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "torch_dtype": "bfloat16",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "vocab_size": 1000,
            "max_position_embeddings": 4096,
        },
        **changes,
    )


def experts(**changes: Any) -> dict[str, Any]:
    """A small mixture of experts with latent attention and a dense first layer."""
    return changed(
        {
            "model_type": "deepseek_v3",
            "torch_dtype": "bfloat16",
            "hidden_size": 64,
            "intermediate_size": 128,
            "moe_intermediate_size": 32,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 8,
            "vocab_size": 1000,
        },
        **changes,
    )


def import_text(content: str | bytes) -> tuple[ModelProfile, tuple[str, ...]]:
    """(profile, warnings) of the text of a config."""
    return import_config(parse_json(content.encode() if isinstance(content, str) else content, "config.json"))


def imported(data: dict[str, Any]) -> tuple[ModelProfile, tuple[str, ...]]:
    """(profile, warnings) of a config."""
    return import_text(json.dumps(data))


def profile(data: dict[str, Any]) -> ModelProfile:
    """The profile of a config."""
    return imported(data)[0]


def parameters(data: dict[str, Any]) -> Parameters:
    """Parameter counts of a config."""
    return count_parameters(profile(data))


def refusal(data: dict[str, Any] | str) -> ProfileError:
    """The error that a config is refused with."""
    with pytest.raises(ProfileError) as caught:
        import_text(data if isinstance(data, str) else json.dumps(data))
    return caught.value
