"""Operands in device memory: one arena of random numbers that all weights and caches are views of, and the activations of a case.

Rotating over views keeps weights and KV as cold as in a real step, where each is read once and pushed out by the rest. One arena
serves every case: it is filled once, and the memory taken is bounded whatever the model.
"""

from __future__ import annotations

import math
from typing import Any

from calc.measure.device import MEMORY_SHARE, DeviceFacts
from calc.measure.runner import OutOfMemory
from calc.units import format_bytes

CACHES_TO_COVER = 3  # rotate over this many times the last-level cache
MOST_COPIES = 1024  # argument sets of one case: more only cost host memory
_BLOCK_ELEMENTS = 8 << 20
_ALIGNMENT_BYTES = 4096


class Workspace:
    """Random operands of one dtype on one device.

    ``deviation`` is that of the arena's normal numbers. One scale for all weights: it only shifts the exponent, so switching activity
    (and with it power and clock) stays that of weights from N(0, 1 / K).
    """

    def __init__(self, torch: Any, facts: DeviceFacts, dtype: str, largest_operand_bytes: int, deviation: float, seed: int) -> None:
        self.torch = torch
        self.facts = facts
        self.dtype = dtype
        self.torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
        self.deviation = deviation
        self.generator = torch.Generator(device=facts.torch_name).manual_seed(seed)
        self.limit_bytes = facts.free_bytes // MEMORY_SHARE
        self.cover_bytes = CACHES_TO_COVER * facts.cache_bytes
        wanted = max(self.cover_bytes + largest_operand_bytes, 2 * largest_operand_bytes)
        self.arena = self._fill(min(wanted, self.limit_bytes) // self.element_bytes)
        self.cursor_bytes = 0  # where the last case stopped reading
        self.activation_bytes = 0

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return int(self.torch_dtype.itemsize)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return int(self.arena.numel()) * self.element_bytes

    def _fill(self, elements: int) -> Any:
        """Block copies of one random tensor: fresh random numbers throughout would take most of a short budget."""
        torch = self.torch
        arena = torch.empty(max(elements, 1), dtype=self.torch_dtype, device=self.facts.torch_name)
        block = torch.empty(min(_BLOCK_ELEMENTS, arena.numel()), device=self.facts.torch_name)
        block = block.normal_(0, self.deviation, generator=self.generator).to(self.torch_dtype)
        for start in range(0, arena.numel(), block.numel()):
            part = arena[start : start + block.numel()]
            part.copy_(block[: part.numel()])
        return arena

    def operands(self, *shape: int) -> list[Any]:
        """Views of ``shape`` that together cover three caches where the arena allows it; at least one. Raises OutOfMemory when one
        alone exceeds the arena."""
        elements = math.prod(shape)
        step = -(-elements * self.element_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES // self.element_bytes
        if elements > self.arena.numel():
            raise OutOfMemory(
                f"an operand of {format_bytes(elements * self.element_bytes)} exceeds a quarter of the free memory "
                f"({format_bytes(self.limit_bytes)})"
            )
        fitting = max(1, self.arena.numel() // step)
        wanted = max(2, math.ceil(self.cover_bytes / (step * self.element_bytes)) + 1)
        copies = min(fitting, wanted, MOST_COPIES)
        return [self.arena[i * step : i * step + elements].view(shape) for i in range(copies)]

    def rows(self, width: int) -> Any:
        """The whole arena as a table of rows of ``width`` elements."""
        count = self.arena.numel() // width
        if not count:
            raise OutOfMemory(f"a row of {width} elements exceeds the arena")
        return self.arena[: count * width].view(count, width)

    def normal(self, *shape: int, deviation: float = 1.0) -> Any:
        """A fresh activation from a normal distribution."""
        self.charge(shape, 4)  # drawn in fp32
        found = self.torch.empty(shape, device=self.facts.torch_name).normal_(0, deviation, generator=self.generator)
        return found.to(self.torch_dtype)

    def empty(self, *shape: int) -> Any:
        """A buffer for results."""
        self.charge(shape, self.element_bytes)
        return self.torch.empty(shape, dtype=self.torch_dtype, device=self.facts.torch_name)

    def integers(self, high: int, count: int) -> Any:
        """``count`` random whole numbers below ``high``."""
        return self.torch.randint(high, (count,), generator=self.generator, device=self.facts.torch_name)

    def charge(self, shape: tuple[int, ...], element_bytes: int) -> None:
        """Count an activation of the case being built. Raises OutOfMemory beyond the limit: Linux would grant memory that it does
        not have and end the process later."""
        self.activation_bytes += math.prod(shape) * element_bytes
        if self.activation_bytes > self.limit_bytes:
            raise OutOfMemory(
                f"activations of {format_bytes(self.activation_bytes)} exceed a quarter of the free memory "
                f"({format_bytes(self.limit_bytes)})"
            )

    def cache_label(self, operand_bytes: int, copies: int) -> str:
        """Whether rotating over ``copies`` operands keeps them out of the last-level cache."""
        covered = operand_bytes * copies
        if covered >= self.cover_bytes:
            return "cold"
        return "partly" if covered >= self.facts.cache_bytes else "hot"
