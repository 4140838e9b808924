"""What a family says about a model before it is a profile: one layer kind per layer, in order, and what stands around the layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from calc.profiles.importers.config import Config
from calc.profiles.model import (
    Block,
    Encoder,
    Experts,
    Extra,
    FeedForward,
    Heads,
    LayerKind,
    Mixer,
    NextTokenLayers,
    Norm,
    Tower,
)

RMS_NORM = Norm()


@dataclass
class EncoderDraft:
    """The encoder of an encoder-decoder."""

    layers: list[LayerKind]
    tokens: int
    final_norm: bool = True
    extras: list[Extra] = field(default_factory=list)


@dataclass
class NextTokenDraft:
    """Multi-token-prediction modules: ``count`` times ``layers`` and ``extras``."""

    count: int
    layers: list[LayerKind]
    extras: list[Extra] = field(default_factory=list)


@dataclass
class Draft:
    """A model as its family reads it from the config. Names are those of the profile."""

    hidden_size: int
    vocab_size: int | None
    layers: list[LayerKind]
    norm: Norm = RMS_NORM
    tie_word_embeddings: bool = False
    max_position_embeddings: int | None = None
    has_lm_head: bool = True
    embedding_rows: int | None = None
    embedding_size: int | None = None
    lm_head_bias: bool = False
    position_embeddings: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    encoder: EncoderDraft | None = None
    next_token: NextTokenDraft | None = None
    towers: list[Tower] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)
    state_dtype: str | None = None
    quirks: list[str] = field(default_factory=list)
    storage_roles: dict[str, str] = field(default_factory=dict)  # formats that the family itself fixes
    module_folders: dict[str, tuple[str, ...]] = field(default_factory=dict)  # role → where its modules stand, where unusual


def stack_of(
    count: int,
    mixers: Callable[[int], Mixer | list[Mixer] | None],
    feed_forwards: Callable[[int], FeedForward | list[FeedForward] | None],
    **common: Any,
) -> list[LayerKind]:
    """One layer kind per layer from what its index says about its parts; ``common`` are the fields all layers share."""
    return [LayerKind(mixers=_as_list(mixers(i)), feed_forwards=_as_list(feed_forwards(i)), **common) for i in range(count)]


def _as_list(part: Any) -> list[Any]:
    return [] if part is None else part if isinstance(part, list) else [part]


def structure(draft: Draft) -> dict[str, Any]:
    """``layer_kinds``, ``stack``, ``encoder`` and ``next_token_layers`` of a profile: equal layers become one named kind."""
    namer = _Namer(draft.layers)
    names = [namer.name(kind) for kind in draft.layers]
    found: dict[str, Any] = {"stack": blocks(names)}
    if draft.encoder:
        layers = [namer.name(kind, "encoder") for kind in draft.encoder.layers]
        found["encoder"] = Encoder(
            stack=blocks(layers), tokens=draft.encoder.tokens, final_norm=draft.encoder.final_norm, extras=draft.encoder.extras
        )
    if draft.next_token:
        layers = [namer.name(kind, "next-token") for kind in draft.next_token.layers]
        found["next_token_layers"] = NextTokenLayers(count=draft.next_token.count, layers=layers, extras=draft.next_token.extras)
    found["layer_kinds"] = namer.kinds
    return found


class _Namer:
    """Gives each distinct layer kind a name that says what sets it apart from the others of the stack."""

    def __init__(self, layers: list[LayerKind]) -> None:
        self.kinds: dict[str, LayerKind] = {}
        self._names: dict[bytes, str] = {}
        distinct = {msgspec.json.encode(kind): kind for kind in layers}.values()
        self._mixers_vary = len({_mixer_label(kind) for kind in distinct}) > 1
        self._parts_vary = len({_part_label(kind) for kind in distinct}) > 1
        self._positions_vary = len({_is_positionless(kind) for kind in distinct if kind.mixers}) > 1

    def name(self, kind: LayerKind, fallback: str = "decoder") -> str:
        key = msgspec.json.encode(kind)
        if key not in self._names:
            label = fallback if fallback != "decoder" else self._label(kind) or fallback
            free, number = label, 2
            while free in self.kinds:
                free, number = f"{label}-{number}", number + 1
            self._names[key] = free
            self.kinds[free] = kind
        return self._names[key]

    def _label(self, kind: LayerKind) -> str:
        mixer = _mixer_label(kind) if self._mixers_vary else ""
        positions = "nope" if self._positions_vary and _is_positionless(kind) and mixer in ("", "full") else ""
        part = _part_label(kind) if self._parts_vary else ""
        return "-".join(word for word in (mixer, positions, part) if word)


def _mixer_label(kind: LayerKind) -> str:
    return "-".join(str(m.__struct_config__.tag) for m in kind.mixers)


def _part_label(kind: LayerKind) -> str:
    return "-".join("experts" if isinstance(p, Experts) else "dense" for p in kind.feed_forwards)


def _is_positionless(kind: LayerKind) -> bool:
    return any(isinstance(m, Heads) and m.positions == "none" for m in kind.mixers)


MAX_PERIOD = 64


def blocks(names: Sequence[str]) -> list[Block]:
    """A list of layer names as short repeated blocks: at each place the period that covers most is taken."""
    found: list[Block] = []
    start = 0
    loose: list[str] = []
    while start < len(names):
        period, repeat = _best_period(names, start)
        if repeat > 1:
            if loose:
                found.append(Block(layers=loose))
                loose = []
            found.append(Block(repeat=repeat, layers=list(names[start : start + period])))
            start += period * repeat
        else:
            loose.append(names[start])
            start += 1
            if len(loose) == 4096:
                found.append(Block(layers=loose))
                loose = []
    if loose:
        found.append(Block(layers=loose))
    return found


def _best_period(names: Sequence[str], start: int) -> tuple[int, int]:
    best, saved = (1, 1), 0
    rest = len(names) - start
    for period in range(1, min(MAX_PERIOD, rest // 2) + 1):
        end = start + period
        while end < len(names) and names[end] == names[end - period]:
            end += 1
        repeat = (end - start) // period
        if repeat > 1 and period * (repeat - 1) > saved:
            best, saved = (period, repeat), period * (repeat - 1)
    return best


def vocabulary(c: Config, *keys: str) -> int:
    """Rows of the vocabulary."""
    return c.integer(*(keys or ("vocab_size",)), maximum=1 << 31)


def positions_limit(c: Config, *keys: str) -> int | None:
    """Longest context of the config."""
    names = keys or (
        "max_position_embeddings",
        "max_position_embedding",
        "n_positions",
        "seq_length",
        "max_seq_len",
        "model_max_length",
    )
    return c.optional(*names)
