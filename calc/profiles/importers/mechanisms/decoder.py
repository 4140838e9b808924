"""The plain decoder: one attention geometry, one feed-forward part, full and windowed layers by a pattern."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import RMS_NORM, Draft, positions_limit, stack_of, vocabulary
from calc.profiles.importers.mechanisms.attention import HIDDEN, LAYERS, Geometry, of_kind
from calc.profiles.importers.mechanisms.patterns import layer_words, window_of
from calc.profiles.model import FeedForward, Norm

#: Fields of LayerKind that ``decoder`` passes on; the rest belong to the model.
_LAYER_FIELDS = ("norms", "parallel", "extras", "reductions")

RMS = RMS_NORM
LAYER_NORM = Norm(kind="layer", bias=True)
PLAIN_LAYER_NORM = Norm(kind="layer", bias=False)


@dataclass(frozen=True)
class Family:
    """How configs of a model type are read, and what their class takes absent keys to be."""

    build: Callable[[Config], Draft]
    defaults: Mapping[str, Any]


def model(c: Config, layers: list[Any], *, tie: bool = False, **fields: Any) -> Draft:
    """What stands around the layers of most decoders: embedding, head, tying, context limit."""
    return Draft(
        hidden_size=c.integer(*HIDDEN),
        vocab_size=fields.pop("vocab_size", None) or vocabulary(c),
        layers=layers,
        tie_word_embeddings=c.flag("tie_word_embeddings", default=tie),
        max_position_embeddings=positions_limit(c),
        **fields,
    )


def decoder(
    c: Config,
    g: Geometry,
    part: FeedForward | list[FeedForward] | Sequence[FeedForward | list[FeedForward]],
    *,
    words: Sequence[str] | None = None,
    window: int | None = None,
    per_layer: bool = False,
    **fields: Any,
) -> Draft:
    """A stack of equal layers, but for the pattern of ``words`` (full, sliding). ``per_layer``: ``part`` holds one entry a layer."""
    count = c.layers(*LAYERS)
    common = {key: fields.pop(key) for key in _LAYER_FIELDS if key in fields}
    if words is None and "sliding_attention" in (c.items("layer_types") or ()):
        words, window = windows(c, lambda _: "full")
    kinds = words or layer_words(c, count, lambda _: "full")
    mixers = {word: of_kind(g, word, window) for word in set(kinds)}
    parts: Any = part
    layers = stack_of(count, lambda i: mixers[kinds[i]], lambda i: parts[i] if per_layer else parts, **common)
    return model(c, layers, **fields)


def windows(
    c: Config, otherwise: Callable[[int], str], *keys: str, switch: str | None = None, beyond: int = 0
) -> tuple[list[str], int | None]:
    """(word of each layer, window): the pattern with windows that never bite taken out."""
    count = c.layers(*LAYERS)
    window = window_of(c, *keys, switch=switch, limit=positions_limit(c))
    words = layer_words(c, count, otherwise if window else lambda _: "full", beyond=beyond)
    if window:
        return words, window
    spellings = keys or ("sliding_window", "sliding_window_size")
    if "sliding" in words and not any(c.data.get(key) for key in spellings):
        raise c.fault("layer_types", f"has sliding layers, but {spellings[0]} is null or absent")
    return ["full"] * count, None
