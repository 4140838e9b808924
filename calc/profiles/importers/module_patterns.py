"""Which tensor roles the ignore lists and targets of a quantisation cover.

Lists name modules exactly, by a component (``lm_head``), by a glob or, after ``re:``, by a regular expression. Names are asked for
by role and layer, never expanded for all experts. Expressions that could run for long are not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from functools import cache

from calc.profiles.importers.draft import Draft
from calc.profiles.model import DenseFeedForward, Experts, LatentAttention, LayerKind

#: Where the layers of a text model stand.
_PREFIXES = ("model.layers.", "language_model.model.layers.", "model.language_model.layers.", "backbone.layers.")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})(?:\.|$)")
_OPEN_LAYER = re.compile(r"layers\\?\.\(?(\d{1,6})")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
#: Modules of each role, with the names that they have elsewhere.
_GQA = (
    ("q_proj", "qkv_proj", "query_key_value"),
    ("k_proj", "qkv_proj", "query_key_value"),
    ("v_proj", "qkv_proj", "query_key_value"),
    ("o_proj", "out_proj", "dense"),
)
_MLA = (("q_a_proj", "q_proj"), ("q_b_proj", "q_proj"), ("kv_a_proj_with_mqa",), ("kv_b_proj",), ("o_proj",))
_FFN = (("gate_proj", "w1", "gate_up_proj"), ("up_proj", "w3", "gate_up_proj"), ("down_proj", "w2"))
_LINEAR = (("in_proj", "in_proj_qkvz", "in_proj_qkv"), ("out_proj",))
#: Role → folders of its modules.
_FOLDERS = {
    "attention": ("self_attn", "attention", "attn"),
    "linear_attention": ("linear_attn", "mamba", "self_attn", "conv"),
    "feed_forward": ("mlp", "feed_forward"),
    "experts": ("mlp.experts.0", "mlp.experts", "block_sparse_moe.experts.0", "feed_forward.experts"),
    "shared_experts": ("mlp.shared_experts", "mlp.shared_expert", "feed_forward.shared_expert", "block_sparse_moe.shared_experts"),
}
ROLES = tuple(_FOLDERS)
#: Expressions that cannot run for long on a short name: no quantified groups, at most three quantifiers.
_RUNNABLE = re.compile(r"(?!.*\)[*+{])(?!(?:[^*+{]*[*+{]){4}).{1,300}", re.DOTALL)
MAX_OPEN = 256


class Patterns:
    """A list of module patterns, asked whether it names the modules of a role. ``whole_stack``: what is named in one layer holds for all
    (lists that are cut off)."""

    def __init__(self, patterns: Iterable[object], *, whole_stack: bool = False) -> None:
        self.plain: dict[str, set[int] | None] = {}  # components behind the layer, numbers as 0 → layers; None: all
        self.globs: dict[str, set[int] | None] = {}  # the same with wildcards
        self.open: list[tuple[re.Pattern[str], str]] = []  # (expression over whole names, how the number of its layer begins)
        self.unread: list[str] = []
        for pattern in patterns:
            self._add(str(pattern), whole_stack)

    def _add(self, pattern: str, whole_stack: bool) -> None:
        is_regular = pattern.startswith("re:")
        is_glob = not is_regular and any(mark in pattern for mark in "*?[")
        found = None if is_regular else _LAYER.search(pattern)
        if is_regular or (is_glob and found is None):
            self._add_open(pattern, is_regular)
            return
        rest = _NUMBER.sub("0", pattern[found.end() :] if found else pattern)
        named = self.globs if is_glob else self.plain
        if found is None or whole_stack:
            named[rest] = None
            return
        layers = named.setdefault(rest, set())
        if layers is not None:
            layers.add(int(found[1]))

    def _add_open(self, pattern: str, is_regular: bool) -> None:
        text = re.sub(r"(\.\*)+", ".*", pattern[3:]) if is_regular else f"(?:.*\\.)?{translate(pattern)}"
        try:
            if len(self.open) >= MAX_OPEN or (is_regular and not _RUNNABLE.fullmatch(text)):
                raise re.error("not run")
            number = _OPEN_LAYER.search(pattern)
            self.open.append((re.compile(text), number[1] if number else ""))
        except (re.error, RecursionError, OverflowError):
            self.unread.append(pattern)

    def share(self, role: str, draft: Draft) -> float:
        """Share of a role's modules that the list names, over the layers that have the role."""
        if not (self.plain or self.globs or self.open):
            return 0.0
        layers = [i for i, kind in enumerate(draft.layers) if has_role(kind, role)]
        if not layers:
            return 0.0
        modules = _modules(role, draft)
        return sum(self._named(spellings, layers) for spellings in modules) / (len(modules) * len(layers))

    def names(self, module: str) -> bool:
        """Whether a single module such as ``lm_head`` is named."""
        return self.plain.get(module, ...) is None or any(p.match(module) for p, _ in self.open)

    def _named(self, spellings: tuple[str, ...], layers: list[int]) -> int:
        """How many of the layers have the module, under one of its spellings, on the list."""
        named: set[int] = set()
        exact = [self.plain[part] for s in spellings for part in _parts(s) if part in self.plain] if self.plain else []
        wild = [found for rest, found in self.globs.items() if any(fnmatchcase(s, rest) for s in spellings)]
        for found in exact + wild:
            if found is None:
                return len(layers)
            named |= found
        for pattern, start in self.open:
            asked = [i for i in layers if str(i).startswith(start)] if start else layers[:1]
            hits = {i for i in asked[:256] if any(pattern.match(f"{p}{i}.{s}") for s in spellings for p in _PREFIXES)}
            if hits and not start:
                return len(layers)
            named |= hits
        return len(named.intersection(layers))


@cache
def _parts(name: str) -> tuple[str, ...]:
    """All runs of whole components; the empty run stands for the layer itself."""
    words = name.split(".")
    return ("", *(".".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)))


def has_role(kind: LayerKind, role: str) -> bool:
    """Whether a layer holds matrices of a role."""
    if role == "feed_forward":
        return any(isinstance(p, DenseFeedForward) for p in kind.feed_forwards)
    experts = [p for p in kind.feed_forwards if isinstance(p, Experts)]
    if role == "experts":
        return bool(experts)
    if role == "shared_experts":
        return any(p.shared for p in experts)
    linear = {"mamba1", "mamba2", "gated-delta-net", "kda", "lightning", "rwkv", "rg-lru", "short-conv"}
    tags = {str(m.__struct_config__.tag) for m in kind.mixers}
    return bool(tags & linear) if role == "linear_attention" else bool(tags - linear)


def _modules(role: str, draft: Draft) -> list[tuple[str, ...]]:
    """The modules of a role, each with its spellings."""
    if role in draft.module_folders:
        return _spellings(role, False, draft.module_folders[role])
    is_latent = role == "attention" and any(isinstance(m, LatentAttention) for kind in draft.layers for m in kind.mixers)
    return _spellings(role, is_latent)


@cache
def _spellings(role: str, is_latent: bool, folders: tuple[str, ...] | None = None) -> list[tuple[str, ...]]:
    modules: tuple[tuple[str, ...], ...] = {"attention": _MLA if is_latent else _GQA, "linear_attention": _LINEAR}.get(role, _FFN)
    return [tuple(f"{folder}.{name}" for folder in folders or _FOLDERS[role] for name in names) for names in modules]
