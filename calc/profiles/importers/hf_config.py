"""A Hugging Face ``config.json`` → model profile. No remote code, no network: the law of each family is in ``families``.

Faults (unknown model type, layer type, quantisation, contradictory sizes) are ProfileErrors that name the key; doubts are warnings.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from calc.errors import ProfileError, did_you_mean
from calc.profiles.importers.config import PROFILE_HINT, Config
from calc.profiles.importers.draft import Draft, structure
from calc.profiles.importers.families import family_of, known_types
from calc.profiles.importers.json_file import JsonDocument, read_json
from calc.profiles.importers.quantization import storage_of
from calc.profiles.importers.safetensors_index import stored_bytes
from calc.profiles.importers.towers import towers_of
from calc.profiles.importers.unknown_keys import warn_of_defaults, warn_of_unread
from calc.profiles.importers.wrappers import text_config
from calc.profiles.model import ModelProfile
from calc.profiles.model_faults import faults
from calc.profiles.schema import Source

CONFIG_NAME = "config.json"
QUANT_CONFIG_NAME = "hf_quant_config.json"


def import_config(
    document: JsonDocument, hub_id: str | None = None, quantization: JsonDocument | None = None
) -> tuple[ModelProfile, tuple[str, ...]]:
    """The profile that a config describes, and warnings. ``quantization`` is the hf_quant_config.json beside it."""
    root = Config(document, document.data)
    text, model_type = text_config(root)
    family = family_of(model_type)
    if family is None:
        raise unknown_model_type(text, model_type)
    text.defaults = family.defaults
    try:
        draft = family.build(text)
        draft.towers += towers_of(root, draft.hidden_size)
        _headless(root, text, draft)
        storage = storage_of(root, text, draft, quantization)
        profile = _profile(draft, root.word("model_type") or model_type, hub_id or _name_in(root) or "imported-model", storage)
    except RecursionError as error:
        raise ProfileError(f"{document.name}: nested too deeply", "is this a config.json?") from error
    warn_of_unread(root)
    if text is not root:
        warn_of_unread(text)
    warn_of_defaults(text, model_type)
    return profile, tuple(root.warnings)


def import_folder_or_file(source: Path) -> tuple[ModelProfile, tuple[str, ...]]:
    """Import ``config.json`` by its path or that of its folder, with what stands beside it: quantisation, safetensors files."""
    path = source / CONFIG_NAME if source.is_dir() else source
    if source.is_dir() and not path.is_file():
        raise ProfileError(f"{source}: holds no {CONFIG_NAME}", "name the folder of a downloaded model or the file itself")
    in_folder = path.name == CONFIG_NAME
    beside = path.parent / QUANT_CONFIG_NAME
    quantization = read_json(beside) if in_folder and beside.is_file() else None
    profile, warnings = import_config(read_json(path), hub_id_of(path), quantization)
    stored = stored_bytes(path.parent, profile.num_hidden_layers) if in_folder else None
    if stored:
        storage = msgspec.structs.replace(profile.storage, total_bytes=stored.total, role_bytes=stored.by_role)
        profile = msgspec.structs.replace(profile, storage=storage)
    named = f"{hub_id_of(path) or ''}/{path.name}".lstrip("/") if in_folder else path.name
    read = Source(url=named[:200], fields=["all"], date=date.today().isoformat(), access="read")
    return msgspec.structs.replace(profile, sources=[read]), warnings


def unknown_model_type(c: Config, model_type: str) -> ProfileError:
    """The error for a model type without a law."""
    near = did_you_mean(model_type, known_types())
    return c.fault("model_type", f"{model_type[:80]!r} is unknown", f"{near} Else {PROFILE_HINT}" if near else PROFILE_HINT)


def hub_id_of(path: Path) -> str | None:
    """What the path says about the repository: a Hub cache folder, ``org__name.json``, or the folder's name."""
    parts = path.absolute().parts
    for part in reversed(parts):
        if part.startswith("models--") and part.count("--") >= 2:
            return part.removeprefix("models--").replace("--", "/", 1)
    name = path.parent.absolute().name if path.name == CONFIG_NAME else path.stem
    organisation, _, repository = name.partition("__")
    return f"{organisation}/{repository}" if repository else name or None


def identifier(name: str) -> str:
    """A profile id from a repository name."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.rpartition("/")[2].lower()).strip("._-")[:120] or "imported-model"


def _name_in(root: Config) -> str | None:
    name = root.word("_name_or_path", "name_or_path")
    return name if name and re.fullmatch(r"[\w.-]+/[\w.-]+", name) else None


def _headless(root: Config, text: Config, draft: Draft) -> None:
    """Embedding models and classifiers are saved from classes without a language-model head."""
    for name in text.items("architectures") or root.items("architectures") or []:
        if isinstance(name, str) and re.search(
            r"For(Sequence|Token)Classification$|(?<!ChatGLM)(?<!Grok1)Model$|TextEncoder$", name
        ):
            draft.has_lm_head = False


def _profile(draft: Draft, model_type: str, name: str, storage: Any) -> ModelProfile:
    fields = structure(draft)
    own = {key: getattr(draft, key) for key in _SHARED_FIELDS}
    repository = name.rpartition("/")[2]
    profile = ModelProfile(
        id=identifier(name),
        name=repository,
        hub_id=name if name.count("/") == 1 else None,
        family=model_type,
        storage=storage,
        **own,
        **fields,
    )
    try:
        checked = msgspec.convert(msgspec.to_builtins(profile), ModelProfile)
    except msgspec.ValidationError as error:
        raise ProfileError(f"the config describes an impossible model: {error}", PROFILE_HINT) from error
    wrong = faults(checked)
    if wrong:
        raise ProfileError(f"the config describes an impossible model: {wrong[0][1]}", PROFILE_HINT)
    return checked


_SHARED_FIELDS = (
    "hidden_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings", "has_lm_head", "embedding_rows", "embedding_size",
    "lm_head_bias", "position_embeddings", "embedding_norm", "norm", "final_norm", "towers", "extras", "state_dtype", "quirks",
)  # fmt: skip
