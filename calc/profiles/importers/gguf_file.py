"""A ``.gguf`` file → model profile. Only headers are read: the metadata say how layers attend, the tensor list says what they hold.

Faults (unknown architecture, tensors and metadata that contradict each other) are ProfileErrors that name the key or the tensor.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from calc.errors import ProfileError
from calc.profiles.importers.config import PROFILE_HINT, Config
from calc.profiles.importers.draft import Draft, NextTokenDraft, structure
from calc.profiles.importers.gguf import encoder_decoder
from calc.profiles.importers.gguf.architectures import ARCHITECTURES, REFUSED, Architecture
from calc.profiles.importers.gguf.header import Header
from calc.profiles.importers.gguf.layers import Layer, read_layer
from calc.profiles.importers.gguf.outside import read_outside
from calc.profiles.importers.gguf.parts import read_parts, stem_of
from calc.profiles.importers.gguf.stack import Stack, read_stack
from calc.profiles.importers.gguf.storage import storage_of, stored_beyond
from calc.profiles.importers.gguf.tensor_list import Group, Ledger, sort_tensors
from calc.profiles.importers.hf_config import identifier
from calc.profiles.importers.json_file import JsonDocument
from calc.profiles.importers.unknown_keys import warn_of_unread
from calc.profiles.model import DenseFeedForward, Experts, LayerKind, ModelProfile, Norm, ParameterFacts
from calc.profiles.model_faults import faults
from calc.profiles.schema import Source

#: Keys that change neither tensors nor caches, or repeat what the tensor list says.
_SAID_ELSEWHERE = re.compile(
    r"vocab_size|expert_(weights|gating|group)\w*|(logit|embedding|residual)_scale|\w*softcapping|pooling_type|altup\.\w+|classifier\..+"
    r"|embedding_length_(out|per_layer_input)|activation_sparsity_scale|attention\.(clamp_kqv|max_alibi_bias|scale|output_scale)|rope\..+"
    r"|attention\.temperature_\w+|attention\.\w*norm_\w*(epsilon|groups)|n_deepstack_layers|swiglu_\w+|tensor_data_layout|xielu\..+|dense_\w+"
    r"|decoder_start_token_id|attention\.relative_buckets_count|moe_every_n_layers|full_attention_interval|experts_per_group"
)


def import_gguf(path: Path) -> tuple[ModelProfile, tuple[str, ...], str]:
    """(profile, warnings, digest of the header) of a file, or of all parts of a split model. Raises ProfileError."""
    header = read_parts(path)
    root = Config(JsonDocument(header.metadata, header.name), header.metadata)
    name, known = _architecture(root)
    prefix = f"{name}."
    own = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    c = Config(root.document, own, root, name)
    if not header.tensors:
        raise ProfileError(f"{path}: lists no tensors", "a vocabulary alone says nothing about a model")
    profile = _read(header, root, c, known)
    c.ignore(*(key for key in own if _SAID_ELSEWHERE.fullmatch(key)))
    warn_of_unread(c)
    if header.missing_bytes:
        root.warn(f"{header.missing_bytes:,} bytes of tensor data are not in the file: the sizes are those that its header states")
    return profile, tuple(root.warnings), header.sha256


def _architecture(root: Config) -> tuple[str, Architecture]:
    name, kind = root.word("general.architecture"), root.word("general.type", default="model")
    if kind != "model":
        raise root.fault("general.type", f"is {kind!r:.40}: this file holds no model", "give the model's own .gguf file")
    if not name:
        raise root.fault("general.architecture", "is missing", PROFILE_HINT)
    if name in REFUSED:
        raise root.fault("general.architecture", f"is {name!r}: {REFUSED[name]}", PROFILE_HINT)
    if name not in ARCHITECTURES:
        raise root.unknown("general.architecture", name, ARCHITECTURES, "architecture")
    return name, ARCHITECTURES[name]


def _read(header: Header, root: Config, c: Config, known: Architecture) -> ModelProfile:
    two_stacks = encoder_decoder.is_encoder_decoder(known)
    draft, ledger = encoder_decoder.read(header, c, known) if two_stacks else _one_stack(header, c, known)
    storage = storage_of(ledger, root.get("general.file_type"), tied=draft.tie_word_embeddings)
    facts = ParameterFacts(
        total=ledger.elements, total_source="the tensor list of the file", stored_beyond_architecture=stored_beyond(ledger)
    )
    return _profile(draft, storage=storage, parameters=facts, family=_family(known, draft), **_names(root, Path(header.name)))


def _one_stack(header: Header, c: Config, known: Architecture) -> tuple[Draft, Ledger]:
    stack = read_stack(c, known)
    ledger, outside, blocks = sort_tensors(header.name, header.tensors, stack.layers)
    norm = Norm(kind=_norm_kind(c), bias="output_norm.bias" in outside or "attn_norm.bias" in blocks[0])
    layers = _layers(stack, blocks, norm)
    _check_widths(c, [layer.kind for layer in layers])
    modules = c.count("nextn_predict_layers")
    if modules >= stack.layers:
        raise c.fault("nextn_predict_layers", f"is {modules:,} of {stack.layers:,} layers")
    own = stack.layers - modules
    draft = Draft(
        hidden_size=stack.hidden_size,
        vocab_size=None,
        layers=[layer.kind for layer in layers[:own]],
        norm=norm,
        max_position_embeddings=c.optional("context_length"),
    )
    read_outside(stack, outside, draft)
    if modules:
        draft.next_token = NextTokenDraft(modules, [layers[own].kind], layers[own].joining)
    return draft, ledger


def _norm_kind(c: Config) -> Any:
    c.ignore("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
    plain = c.data.get("attention.layer_norm_epsilon") is not None and c.data.get("attention.layer_norm_rms_epsilon") is None
    return "layer" if plain else "rms"


def _layers(stack: Stack, blocks: list[Group], norm: Norm) -> list[Layer]:
    found = []
    for index, group in enumerate(blocks):
        if not group.left and stack.architecture.family != "deci":
            raise ProfileError(
                f"{group.ledger.name}: block_count is {stack.layers:,}, but layer {index} has no tensors",
                "is the tensor list complete?",
            )
        found.append(read_layer(stack, group, index, norm_bias=norm.bias))
    return found


def _check_widths(c: Config, kinds: list[LayerKind]) -> None:
    """A list of feed-forward widths must be that of the tensors; a single width may be that of another part and says nothing."""
    given = c.get("feed_forward_length")
    if not isinstance(given, list):
        return
    stated = c.per_layer("feed_forward_length", count=len(kinds), minimum=0)
    for index, (width, kind) in enumerate(zip(stated, kinds, strict=True)):
        held = [p.intermediate_size for p in kind.feed_forwards if isinstance(p, (DenseFeedForward, Experts))]
        if width not in (held or [0]) and not (held and not width):
            raise c.fault(
                "feed_forward_length", f"gives layer {index} the width {width:,}; its tensors have {held[0] if held else 0:,}"
            )


def _family(known: Architecture, draft: Draft) -> str:
    sparse = any(isinstance(part, Experts) for kind in draft.layers for part in kind.feed_forwards)
    return known.sparse if sparse and known.sparse else known.family


def _names(root: Config, path: Path) -> dict[str, Any]:
    """Names by the file, which says the quantisation too; the repository where the metadata know it."""
    hub_id = None
    for key in ("general.repo_url", "general.source.repo_url", "general.source.url", "general.url"):
        found = re.match(r"https?://huggingface\.co/([\w.-]+/[\w.-]+)/?$", root.word(key) or "")
        hub_id = hub_id or (found[1] if found else None)
    stem = stem_of(path)
    address = f"https://huggingface.co/{hub_id}" if hub_id else path.name
    read = date.today().isoformat()
    source = Source(url=address, fields=["all"], date=read, access="read", note=f"header of {path.name[:200]}")
    return {"id": identifier(stem), "name": stem[:200] or "imported-model", "hub_id": hub_id, "sources": [source]}


def _profile(draft: Draft, **fields: Any) -> ModelProfile:
    shared = {name: getattr(draft, name) for name in _OF_DRAFT}
    try:
        profile = ModelProfile(**shared, **structure(draft), **fields)
        checked = msgspec.convert(msgspec.to_builtins(profile), ModelProfile)
    except msgspec.ValidationError as error:
        raise ProfileError(f"the file describes an impossible model: {error}", PROFILE_HINT) from error
    wrong = faults(checked)
    if wrong:
        raise ProfileError(f"the file describes an impossible model: {wrong[0][1]}", PROFILE_HINT)
    return checked


_OF_DRAFT = (
    "hidden_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings", "has_lm_head", "embedding_rows", "lm_head_bias",
    "position_embeddings", "embedding_norm", "norm", "final_norm", "towers", "extras", "quirks",
)  # fmt: skip
