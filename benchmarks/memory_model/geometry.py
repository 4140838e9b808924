"""A stand-in for a model that the library lacks, from what the record says of its geometry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from calc.profiles.model import ModelProfile

_QUERIES = 64  # query heads per key-value head: enough for any split, they cache nothing
_ROTARY = 64  # width of the rotary part of every published latent attention


def unlisted_model(geometry: Mapping[str, Any], name: str | None, positions: int | None) -> ModelProfile | None:
    """A model of attention layers alone; its parameters are those that its name states ("7B"), unknown otherwise.

    None where the record gives no geometry.
    """
    kinds = _layer_kinds(geometry)
    if not kinds:
        return None
    stated = re.search(r"(\d+(?:\.\d+)?)\s?[bB]\b", name or "")
    elements = int(float(stated[1]) * 1e9) if stated else 0
    data = {
        "id": "unlisted-model",
        "name": name or "unlisted model",
        "family": "unlisted",
        "hidden_size": geometry.get("hidden_size") or _width(geometry),
        "vocab_size": geometry.get("vocab_size"),
        "has_lm_head": False,
        "final_norm": False,
        "max_position_embeddings": positions,
        "layer_kinds": {kind: {"mixers": [mixer], "norms": 0} for kind, (mixer, _) in kinds.items()},
        "stack": [{"repeat": count, "layers": [kind]} for kind, (_, count) in kinds.items() if count],
        "extras": [{"name": "unlisted", "elements": elements, "kind": "matrix"}] if elements else [],
        "storage": {"dtype": "bf16"},
    }
    return msgspec.convert(data, ModelProfile)


def _width(geometry: Mapping[str, Any]) -> int:
    heads, head_dim = geometry.get("kv_heads"), geometry.get("head_dim")
    return int(heads * head_dim) if heads and head_dim else int(geometry.get("k_elems") or geometry.get("latent_dim") or 1)


def _layer_kinds(geometry: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], int]]:
    """Kind → (mixer, number of layers)."""
    if geometry.get("latent_dim"):
        layers = int(geometry["layers"])
        latent: dict[str, Any] = {
            "kind": "latent",
            "num_attention_heads": 128,
            "q_lora_rank": None,
            "kv_lora_rank": int(geometry["latent_dim"]) - _ROTARY,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": _ROTARY,
            "v_head_dim": 128,
        }
        if geometry.get("extra_bytes_per_token"):
            latent["indexer"] = {"num_heads": 64, "head_dim": 128, "topk": 2048}
        return {"latent": (latent, layers)}
    if geometry.get("k_elems"):
        keys, values = int(geometry["k_elems"]), int(geometry.get("v_elems") or 0)
        if not values:  # latents are cached as keys alone
            return _layer_kinds({"latent_dim": keys, "layers": geometry["layers"]})
        mixer = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": keys, "v_head_dim": values}
        return {"full": ({"kind": "full", **mixer}, int(geometry["layers"]))}
    if not (geometry.get("kv_layers") and geometry.get("kv_heads") and geometry.get("head_dim")):
        return {}
    heads = int(geometry["kv_heads"])
    mixer = {"num_attention_heads": heads * _QUERIES, "num_key_value_heads": heads, "head_dim": int(geometry["head_dim"])}
    sliding = int(geometry.get("sliding_layers") or 0)
    full = int(geometry["kv_layers"]) - sliding
    kinds = {"full": ({"kind": "full", **mixer}, full)}
    if sliding:
        kinds["sliding"] = ({"kind": "sliding", "window": int(geometry["window"]), **mixer}, sliding)
    return kinds
