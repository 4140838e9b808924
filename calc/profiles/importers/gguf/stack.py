"""What the metadata says about every layer of the stack: heads, windows, shared caches, positions."""

from __future__ import annotations

from dataclasses import dataclass

from calc.profiles.importers.config import Config
from calc.profiles.importers.gguf.architectures import Architecture, Positions


@dataclass(frozen=True)
class Stack:
    """Metadata by layer. Lists have one entry a layer; windows are in tokens, None where a layer sees everything."""

    config: Config  # keys of the architecture, without its name in front
    architecture: Architecture
    hidden_size: int
    layers: int
    heads: list[int]
    kv_heads: list[int]
    windows: list[int | None]
    shared_from: int  # layers from here on read earlier caches
    causal: bool

    def head_dims(self, layer: int) -> tuple[int, int]:
        """(key width, value width) of a head of a layer. Windowed layers may have widths of their own (Gemma 4)."""
        c = self.config
        by_heads = self.hidden_size // max(1, self.heads[layer]) or 1
        c.ignore("attention.key_length_swa", "attention.value_length_swa")
        key = c.integer("attention.key_length", default=by_heads)
        value = c.integer("attention.value_length", default=by_heads)
        if self.windows[layer] is not None:
            key = c.integer("attention.key_length_swa", default=key)
            value = c.integer("attention.value_length_swa", default=value)
        return key, value

    def positions(self, layer: int) -> Positions:
        """How a layer knows positions."""
        known = self.architecture
        if known.positions != "rotary":
            return known.positions
        bare = known.bare_full and self.windows[layer] is None and any(self.windows)
        if bare or (known.bare_period and (layer + 1) % known.bare_period == 0):
            return "none"
        return "none" if self.config.optional("rope.dimension_count", minimum=0) == 0 else "rotary"

    def rotary_dim(self, layer: int, head_dim: int) -> int | None:
        """Rotated part of a head where it is not the whole."""
        size = self.config.optional("rope.dimension_count", minimum=0)
        if self.windows[layer] is not None:
            size = self.config.optional("rope.dimension_count_swa", minimum=0) or size
        return size if size and size < head_dim else None


def read_stack(c: Config, architecture: Architecture) -> Stack:
    """Read what holds by layer. Arrays must be as long as the stack."""
    layers, hidden = c.layers("block_count"), c.integer("embedding_length")
    heads = c.per_layer("attention.head_count", count=layers, default=0, minimum=0)
    kv_heads = c.per_layer("attention.head_count_kv", count=layers, minimum=0) if c.has("attention.head_count_kv") else heads
    shared = c.count("attention.shared_kv_layers")
    if shared >= layers:
        raise c.fault("attention.shared_kv_layers", f"is {shared:,} of {layers:,} layers: none would store keys and values")
    own = architecture.own_kv_layers
    first_shared = layers - shared if shared or own is None else min(own, layers)
    return Stack(
        config=c,
        architecture=architecture,
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        windows=_windows(c, architecture, layers),
        shared_from=first_shared,
        causal=c.flag("attention.causal", default=architecture.decoder),
    )


def _windows(c: Config, known: Architecture, layers: int) -> list[int | None]:
    """The window of each layer: a list or a period from the file, else the period that the architecture fixes, else all alike."""
    window = c.optional("attention.sliding_window", minimum=0)
    limit = c.optional("context_length")
    given = c.get("attention.sliding_window_pattern")
    deep = known.window_layers is None or known.window_layers == layers or isinstance(given, (int, list))
    if window is None and deep and c.data.get("attention.sliding_window") is None:
        window = known.window
    if not window or not deep or (limit is not None and window >= limit):
        return [None] * layers
    if isinstance(given, list):
        c.check_length("attention.sliding_window_pattern", given, layers)
        slides = [bool(word) for word in given]
    else:
        period = c.optional("attention.sliding_window_pattern", minimum=0) or known.period
        slides = [_slides(i, period, known.full_first) for i in range(layers)]
        if period is None:
            c.warn(
                f"every layer is counted with the window of {window:,} tokens; llama.cpp keeps the whole context for this architecture"
            )
    return [window if word else None for word in slides]


def _slides(layer: int, period: int | None, full_first: bool) -> bool:
    if period is None:
        return True
    return layer % period != 0 if full_first else layer % period < period - 1
