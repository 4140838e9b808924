"""Operands in device memory: arenas of random numbers that all weights, caches and states are views of, and the activations of a case.

Rotating over views keeps weights and KV as cold as in a real step, where each is read once and pushed out by the rest. One arena
serves every case of its type: it is filled once, and the memory taken is bounded whatever the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calc.measure.device.device import MEMORY_SHARE, DeviceFacts
from calc.measure.kernels.operand_sizes import PLAIN
from calc.measure.runner import OutOfMemory
from calc.units import format_bytes

CACHES_TO_COVER = 3  # rotate over this many times the last-level cache
MOST_COPIES = 1024  # argument sets of one case: more only cost host memory
SIDE_SHARE = 2  # an arena of another type may take this part of what the main one may
_BLOCK_ELEMENTS = 8 << 20
_ALIGNMENT_BYTES = 4096
#: Largest finite values: OCP 8-bit floating point (E4M3), and symmetric int8 as engines use it.
RANGE = {"fp8": 448.0, "int8": 127.0}
#: Standard deviations of a normal number that the range holds: 6 in 100 000 lie beyond and saturate.
DEVIATIONS_IN_RANGE = 4.0


class Workspace:
    """Random operands of one dtype on one device; states in fp32 and quantised weights lie in arenas of their own.

    ``largest`` gives the bytes of the largest operand of each arena. ``deviation`` is that of the arena's normal numbers. One scale
    for all weights: it only shifts the exponent, so switching activity (and with it power and clock) stays that of weights from
    N(0, 1 / K).
    """

    def __init__(self, torch: Any, facts: DeviceFacts, dtype: str, largest: Mapping[str, int], deviation: float, seed: int) -> None:
        self.torch = torch
        self.facts = facts
        self.dtype = dtype
        self.torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
        self.deviation = deviation
        self.generator = torch.Generator(device=facts.torch_name).manual_seed(seed)
        self.limit_bytes = facts.free_bytes // MEMORY_SHARE
        self.cover_bytes = CACHES_TO_COVER * facts.cache_bytes
        self._largest = largest
        self.arena = self._fill(min(self._wanted_bytes(PLAIN), self.limit_bytes) // self.element_bytes, self.torch_dtype, deviation)
        self._side: dict[str, Any] = {}
        self._saturated: dict[str, float] = {}
        self.cursor_bytes = 0  # where the last case stopped reading
        self.activation_bytes = 0

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return int(self.torch_dtype.itemsize)

    def _wanted_bytes(self, kind: str) -> int:
        """What lets the largest operand of an arena rotate over three caches; at least two copies of it."""
        largest = self._largest.get(kind, self._largest[PLAIN])
        return max(self.cover_bytes + largest, 2 * largest)

    def _fill(self, elements: int, dtype: Any, deviation: float, highest: float | None = None) -> Any:
        """Block copies of one random tensor: fresh random numbers throughout would take most of a short budget. ``highest`` is where
        values saturate."""
        torch = self.torch
        arena = torch.empty(max(elements, 1), dtype=dtype, device=self.facts.torch_name)
        block = torch.empty(min(_BLOCK_ELEMENTS, arena.numel()), device=self.facts.torch_name)
        block = block.normal_(0, deviation, generator=self.generator)
        block = block.to(dtype) if highest is None else block.clamp_(-highest, highest).to(dtype)
        for start in range(0, arena.numel(), block.numel()):
            part = arena[start : start + block.numel()]
            part.copy_(block[: part.numel()])
        return arena

    def operands(self, *shape: int) -> list[Any]:
        """Views of ``shape`` that together cover three caches where the arena allows it; at least one. Raises OutOfMemory when one
        alone exceeds the arena."""
        return self._views(self.arena, shape, self.limit_bytes)

    def states(self, *shape: int) -> list[Any]:
        """Views of ``shape`` in fp32, the type that recurrent states are kept in."""
        return self._views(self._side_arena("fp32"), shape, self.limit_bytes // SIDE_SHARE)

    def quantised(self, kind: str, *shape: int) -> tuple[list[Any], float]:
        """(views of ``shape`` in fp8 or int8, what one unit of them is worth so that they are from N(0, ``deviation``))."""
        views = self._views(self._side_arena(kind), shape, self.limit_bytes // SIDE_SHARE)
        return views, self.deviation * DEVIATIONS_IN_RANGE / RANGE[kind]

    def saturated_share(self, kind: str) -> float:
        """Share of the quantised values that lie at an end of their range."""
        if kind not in self._saturated:
            sample = self._side_arena(kind)[:_BLOCK_ELEMENTS].float()
            self._saturated[kind] = float((sample.abs() >= RANGE[kind]).float().mean())
        return self._saturated[kind]

    def _side_arena(self, kind: str) -> Any:
        """The arena of another type, made when the first case needs it."""
        if kind not in self._side:
            torch = self.torch
            dtype = {"fp32": torch.float32, "fp8": getattr(torch, "float8_e4m3fn", None), "int8": torch.int8}[kind]
            elements = min(self._wanted_bytes(kind), self.limit_bytes // SIDE_SHARE) // dtype.itemsize
            highest = RANGE.get(kind)
            spread = highest / DEVIATIONS_IN_RANGE if highest else self.deviation
            self._side[kind] = self._fill(elements, dtype, spread, highest)
        return self._side[kind]

    def _views(self, arena: Any, shape: tuple[int, ...], limit_bytes: int) -> list[Any]:
        element_bytes = int(arena.dtype.itemsize)
        elements = math.prod(shape)
        step = -(-elements * element_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES // element_bytes
        if elements > arena.numel():
            part = "a quarter" if arena is self.arena else "an eighth"
            raise OutOfMemory(
                f"an operand of {format_bytes(elements * element_bytes)} exceeds {part} of the free memory ({format_bytes(limit_bytes)})"
            )
        fitting = max(1, arena.numel() // step)
        wanted = max(2, math.ceil(self.cover_bytes / (step * element_bytes)) + 1)
        copies = min(fitting, wanted, MOST_COPIES)
        return [arena[i * step : i * step + elements].view(shape) for i in range(copies)]

    def rows(self, width: int) -> Any:
        """The whole arena as a table of rows of ``width`` elements."""
        count = self.arena.numel() // width
        if not count:
            raise OutOfMemory(f"a row of {width} elements exceeds the arena")
        return self.arena[: count * width].view(count, width)

    def normal(self, *shape: int, deviation: float = 1.0) -> Any:
        """A fresh activation from a normal distribution."""
        return self.full(*shape, deviation=deviation).to(self.torch_dtype)

    def full(self, *shape: int, deviation: float = 1.0) -> Any:
        """A fresh activation in fp32."""
        self.charge(shape, 4)
        return self.torch.empty(shape, device=self.facts.torch_name).normal_(0, deviation, generator=self.generator)

    def narrow(self, kind: str, *shape: int) -> Any:
        """A fresh activation in fp8 or int8 that fills the range; a unit of it is ``DEVIATIONS_IN_RANGE`` / ``RANGE``."""
        highest = RANGE[kind]
        dtype = self.torch.int8 if kind == "int8" else self.torch.float8_e4m3fn
        return self.full(*shape, deviation=highest / DEVIATIONS_IN_RANGE).clamp_(-highest, highest).to(dtype)

    def filled(self, elements: int) -> Any:
        """A buffer of its own with block copies of random numbers: for working sets and writes, which are no weights."""
        self.charge((elements,), self.element_bytes)
        return self._fill(elements, self.torch_dtype, self.deviation)

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
