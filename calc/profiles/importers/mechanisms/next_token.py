"""Multi-token prediction: what a module adds to the layer that it runs."""

from __future__ import annotations

from calc.profiles.model import Extra


def joining(hidden_size: int, *, norms: int = 3) -> list[Extra]:
    """DeepSeek-V3's module: a matrix that joins embedding and hidden state, a norm on each and one before the head."""
    return [
        Extra(name="joining_proj", elements=2 * hidden_size * hidden_size, kind="matrix"),
        Extra(name="joining_norms", elements=norms * hidden_size, kind="vector"),
    ]
