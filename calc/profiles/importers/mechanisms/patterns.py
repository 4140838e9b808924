"""Which layer is of which kind: explicit lists, which win, and the older keys that a list is derived from."""

from __future__ import annotations

from collections.abc import Callable

from calc.profiles.importers.config import Config

#: Words of ``layer_types`` and its relatives → ours.
WORDS = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "global": "full",
    "sliding_attention": "sliding",
    "sliding_window_attention": "sliding",
    "local_attention": "sliding",
    "local": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "conv": "conv",
    "short_conv": "conv",
    "recurrent": "recurrent",
    "hybrid": "hybrid",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "compressed_sparse_attention": "compressed4",
    "heavily_compressed_attention": "compressed128",
    "hash_moe": "hashed",
    "moe": "experts",
    "mlp": "dense",
    "sparse": "experts",
    "dense": "dense",
}


def layer_words(
    c: Config,
    count: int,
    otherwise: Callable[[int], str],
    *,
    keys: tuple[str, ...] = ("layer_types",),
    allowed: tuple[str, ...] = ("full", "sliding"),
    beyond: int = 0,
) -> list[str]:
    """The kind of each layer: the explicit list where there is one, else what ``otherwise`` says of the index (from 0)."""
    given = c.items(*keys)
    if given is None:
        return [otherwise(i) for i in range(count)]
    key = next(k for k in keys if c.data.get(k) is not None)
    c.check_length(key, given, count, beyond=beyond)
    words = [WORDS.get(str(word)) for word in given[:count]]
    for word, given_word in zip(words, given, strict=False):
        if word is None:
            raise c.unknown(key, given_word, WORDS, "layer type")
        if word not in allowed:
            known = [k for k, v in WORDS.items() if v in allowed]
            raise c.unknown(key, given_word, known, f"layer type for model_type {c.data.get('model_type')!r}")
    return [word for word in words if word is not None]


def every(period: int, *, special: str = "full", other: str = "sliding") -> Callable[[int], str]:
    """The last of each ``period`` layers is special (Gemma 3: 6, Cohere 2: 4, Qwen3-Next: 4)."""
    return lambda i: other if (i + 1) % period else special


def window_of(c: Config, *keys: str, switch: str | None = None, limit: int | None = None) -> int | None:
    """The sliding window in tokens, or None where it is null, switched off, or so wide that it never bites."""
    spellings = keys or ("sliding_window", "sliding_window_size")
    if switch is not None and not c.flag(switch):
        c.ignore(*spellings)
        return None
    window = c.optional(*spellings, minimum=0)
    if not window or (limit is not None and window >= limit):
        return None
    return window


def indices(c: Config, key: str, count: int, *, first: int = 0) -> set[int] | None:
    """Layer numbers listed under a key (a list or a comma-separated text), counted from ``first``; None where absent."""
    value = c.get(key)
    if isinstance(value, str):
        try:
            value = [int(word) for word in value.split(",") if word.strip()]
        except ValueError:
            raise c.fault(key, f"must list layer numbers, not {value!r:.60}") from None
        numbers = value
    else:
        given = c.integers(key, maximum=1 << 20)
        if given is None:
            return None
        numbers = given
    found = {number - first for number in numbers}
    if found and (min(found) < 0 or max(found) >= count):
        raise c.fault(key, f"names layer {max(found) + first if max(found) >= count else min(found) + first} of {count} layers")
    return found
