"""Engines without a published memory law. Memory is answered as the ideal engine does, and a warning says so; only times are their own.

They take what the framework's allocator gives, as they need it, and print no budget that a law could be held against.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.memory.budget import Capacity, MemoryQuestion
from calc.memory.engines import ideal


@dataclass(frozen=True)
class EngineWithoutLaw:
    """``NEWEST_VERSION`` is the newest that the published speeds of the engine name; ``any`` where there are none."""

    NAME: str
    NEWEST_VERSION: str = "any"

    def capacity(self, question: MemoryQuestion) -> Capacity:
        """What would fit if memory held nothing but weights and cache, under this engine's name."""
        held = ideal.capacity(question)
        said = f"no memory law of {self.NAME} is published: memory is answered as by the ideal engine, weights and cache alone"
        version = question.options.engine_version or self.NEWEST_VERSION
        return replace(held, engine=self.NAME, engine_version=version, warnings=(*held.warnings, ("no_memory_law", said)))

    def sequences(self, question: MemoryQuestion, capacity: Capacity, context: int) -> int:
        """How many sequences of ``context`` tokens fit at once."""
        return ideal.sequences(question, capacity, context)


#: Versions as in the speed records that the effects were fitted on; no published speed of transformers itself is known.
LAWS = {
    law.NAME: law
    for law in (
        EngineWithoutLaw("gpt-fast", "2024-09"),
        EngineWithoutLaw("mlx", "0.28.2"),
        EngineWithoutLaw("exllamav2", "2024-05 README"),
        EngineWithoutLaw("transformers"),
    )
}
