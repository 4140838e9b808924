"""The work of one step: groups of requests that each bring new tokens on top of tokens already cached.

One description covers prefill, chunked prefill, a prefix hit, decode, verification of drafts and mixed steps. All counts may be
Python numbers or numpy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.arrays import Number, as_floats, ceil_div, clamp, maximum, minimum


@dataclass(frozen=True, slots=True)
class Requests:
    """``count`` requests, each with ``new`` tokens on top of ``cached`` ones; ``logit_rows`` rows of logits per request."""

    count: Number
    new: Number
    cached: Number
    logit_rows: Number = 1
    writes_source: bool = False  # the encoder ran in this step: cross-attention keys and values are made and stored

    def __post_init__(self) -> None:
        # Integer arrays would wrap around silently in the products of long contexts.
        for name in ("count", "new", "cached", "logit_rows"):
            object.__setattr__(self, name, as_floats(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Work:
    """What one step does; ``phase`` is a label (prefill, decode)."""

    phase: str
    groups: tuple[Requests, ...]

    @property
    def tokens(self) -> Number:
        """New tokens of the step: the rows of every projection."""
        return sum(g.count * g.new for g in self.groups)

    @property
    def sequences(self) -> Number:
        """Requests in the step."""
        return sum(g.count for g in self.groups)

    @property
    def logit_rows(self) -> Number:
        """Rows for which logits are made."""
        return sum(g.count * g.logit_rows for g in self.groups)


def prefill(batch_size: Number, input_len: Number, cached_len: Number = 0) -> Work:
    """The whole prompt at once; of ``cached_len`` cached tokens at most all but the last are used (engines recompute it)."""
    cached = minimum(cached_len, input_len - 1)
    return Work("prefill", (Requests(batch_size, input_len - cached, cached, writes_source=True),))


def decode(batch_size: Number, context_len: Number, new_tokens: Number = 1) -> Work:
    """One step in which the last new token sees ``context_len`` keys, itself included."""
    return Work("decode", (Requests(batch_size, new_tokens, context_len - new_tokens, logit_rows=new_tokens),))


def mixed(prefill_part: Work, decode_part: Work) -> Work:
    """A step of a chunked-prefill scheduler: both kinds of requests together."""
    return Work("mixed", prefill_part.groups + decode_part.groups)


def share(work: Work, parts: Number, *, evenly: bool = False) -> Work:
    """The requests of one of ``parts`` parts that a step is dealt out to: those of the fullest, or (``evenly``) the mean, whose sum over
    the parts is exactly the step. Prompts of a mixed step that are counted in fractions are means already and always divided."""
    if isinstance(parts, int) and parts == 1:
        return work

    def part(group: Requests) -> Number:
        count, is_decode = group.count, isinstance(group.new, int) and group.new == 1
        if isinstance(count, int) and isinstance(parts, int):
            return count // parts if count % parts == 0 else count / parts if evenly else ceil_div(count, parts)
        return count / parts if evenly or (work.phase == "mixed" and not is_decode) else ceil_div(count, parts)

    return Work(work.phase, tuple(replace(group, count=part(group)) for group in work.groups))


def mean_context(input_len: Number, output_len: Number) -> Number:
    """Keys that the decode steps of a request see on average, the new token included."""
    return input_len + output_len // 2


def causal_pairs(new: Number, cached: Number) -> Number:
    """Visible (query, key) pairs of one request under a full causal mask (EXACT)."""
    return new * cached + new * (new + 1) // 2


def bidirectional_pairs(new: Number, cached: Number) -> Number:
    """Every new token sees every token."""
    return new * (cached + new)


def window_pairs(new: Number, cached: Number, window: Number) -> Number:
    """Pairs when row i sees ``min(cached + i, window)`` keys: also top-k sparse attention with ``window`` = k."""
    growing = clamp(window - cached, 0, new)
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window


def chunk_pairs(new: Number, cached: Number, chunk: Number) -> Number:
    """Pairs when a token sees the earlier tokens of its own chunk."""

    def up_to(n: Number) -> Number:
        rest = n % chunk
        return n // chunk * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2

    return up_to(cached + new) - up_to(cached)


def window_keys(new: Number, cached: Number, window: Number) -> Number:
    """Distinct keys read by the new tokens of one request under a window."""
    return minimum(cached + new, window + new - 1)


def chunk_keys(new: Number, cached: Number, chunk: Number) -> Number:
    """Distinct keys read: from the first position of the oldest chunk touched."""
    return maximum(cached + new - chunk * (cached // chunk), 0)
