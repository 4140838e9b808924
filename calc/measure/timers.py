"""What all timers share, and the host clock for CPUs. CUDA's timers stand in ``cuda_timers``.

A sample is the time of several calls divided by their number, each call on the next copy of the cold operand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, islice

from calc.measure.kernels.kernel import Call, Kernel, deviation
from calc.measure.kernels.torch_module import is_out_of_memory
from calc.measure.kernels.workspace import Workspace
from calc.measure.runner import NotAvailable, OutOfMemory, Setup

BLOCK_S = 1e-3  # a sample lasts at least this long: resolution and timer overhead stay below 0.1 %
_MOST_REPEATS = 20_000


def repeats_for(call_s: float, most: int = _MOST_REPEATS) -> int:
    """Calls per sample so that it lasts a block."""
    return max(1, min(most, math.ceil(BLOCK_S / max(call_s, 1e-9))))


def named(fault: Exception) -> Exception:
    """What torch raised as one of the two faults that fail a case and let the run go on."""
    if isinstance(fault, (OutOfMemory, NotAvailable)):
        return fault
    text = (str(fault).splitlines() or [type(fault).__name__])[0][:200]
    return OutOfMemory(text) if is_out_of_memory(fault) else NotAvailable(text)


class Rotation:
    """The calls of a kernel in turn, starting where the case before stopped reading the arena."""

    def __init__(self, kernel: Kernel, space: Workspace) -> None:
        self.kernel, self.space = kernel, space
        self.position = 0

    def resume(self) -> None:
        """Skip what the case before has just read: it is in the cache."""
        if self.kernel.operand_bytes and len(self.kernel.calls) > 1:
            self.position = math.ceil(self.space.cursor_bytes / self.kernel.operand_bytes) % len(self.kernel.calls)

    def take(self, count: int) -> Iterator[Call]:
        """The next ``count`` calls."""
        calls = self.kernel.calls
        start, self.position = self.position, (self.position + count) % len(calls)
        return islice(cycle(calls[start:] + calls[:start]), count)

    def stop(self) -> None:
        """Leave the place for the next case."""
        if self.kernel.operand_bytes and len(self.kernel.calls) > 1:
            self.space.cursor_bytes = self.position * self.kernel.operand_bytes


class TorchTimed:
    """What all timers share: rotation, backend context, check. ``sample`` is each timer's own."""

    timer, launch = "wall", "eager"

    def __init__(self, kernel: Kernel, space: Workspace) -> None:
        self.kernel, self.space = kernel, space
        self.rotation = Rotation(kernel, space)
        self.held_bytes = space.activation_bytes  # of this case: the workspace counts anew for the next
        self._context = ExitStack()

    @property
    def setup(self) -> Setup:
        """How the case is timed, for the record."""
        copies = len(self.kernel.calls) if self.kernel.operand_bytes else 0
        cache = self.space.cache_label(self.kernel.operand_bytes, copies) if copies else "activations"
        return Setup(self.timer, self.launch, cache, copies, self.kernel.launches, self.kernel.words, self.held_bytes)

    def begin(self) -> None:
        """Enter the kernel's context and pick up the rotation."""
        self._context.enter_context(self.space.torch.inference_mode())
        self._context.enter_context(self.kernel.around())
        self.rotation.resume()

    def end(self) -> None:
        """Leave the context and note where reading stopped."""
        self._context.close()
        self.rotation.stop()

    def repeats_for(self, call_s: float) -> int:
        """Calls per sample."""
        return repeats_for(call_s)

    def check(self) -> float:
        """Deviation from float32 as a share of the tolerance."""
        try:
            with self.space.torch.inference_mode():
                return deviation(self.kernel, self.space.dtype)
        except RuntimeError as fault:
            raise named(fault) from fault

    def sample(self, repeats: int, count: int) -> list[float]:
        """Samples in seconds per call. Raises OutOfMemory or NotAvailable for what torch refuses."""
        try:
            return self._sample(repeats, count)
        except RuntimeError as fault:
            raise named(fault) from fault

    def _sample(self, repeats: int, count: int) -> list[float]:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the operands."""
        self._context.close()


class WallTimed(TorchTimed):
    """Host clock around blocks of calls; ``synchronise`` waits for an accelerator and does nothing on a CPU."""

    def __init__(self, kernel: Kernel, space: Workspace, synchronise: Callable[[], object] = lambda: None) -> None:
        super().__init__(kernel, space)
        self.synchronise = synchronise

    def _sample(self, repeats: int, count: int) -> list[float]:
        found = []
        for _ in range(count):
            calls = list(self.rotation.take(repeats))
            self.synchronise()
            start = time.perf_counter_ns()
            for call in calls:
                call()
            self.synchronise()
            found.append((time.perf_counter_ns() - start) / 1e9 / repeats)
        return found
