"""Times cases with torch: builds kernels in a workspace and chooses the timer of the device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.cuda_timers import GraphTimed
from calc.measure.device.device import DeviceFacts
from calc.measure.kernels import kernel as kernels
from calc.measure.kernels.workspace import Workspace
from calc.measure.timers import TorchTimed, WallTimed, named


class TorchRunner:
    """One device, one dtype, arenas for the ``largest`` operands (``operand_sizes.largest_operands``). Global settings of torch that it
    changes are put back by ``close``."""

    def __init__(
        self, torch: Any, facts: DeviceFacts, dtype: str, *, largest: Mapping[str, int], deviation: float, seed: int = 0
    ) -> None:
        self.torch, self.facts = torch, facts
        self._threads = torch.get_num_threads()
        torch.set_num_threads(facts.threads)
        if facts.kind == "cuda":
            torch.cuda.set_device(facts.index)
        try:
            self.space = Workspace(torch, facts, dtype, largest, deviation, seed)
        except BaseException:
            self.close()
            raise

    def prepare(self, case: Case) -> TorchTimed:
        """The case with its operands. Raises OutOfMemory or NotAvailable."""
        try:
            with self.torch.inference_mode():
                kernel = kernels.build(case, self.space)
        except (RuntimeError, TypeError, AttributeError, MemoryError) as fault:  # an older torch lacks functions or arguments
            raise named(fault) from fault
        if self.facts.kind != "cuda":
            return WallTimed(kernel, self.space, _synchroniser(self.torch, self.facts.kind))
        if case.parameters.get("eager"):
            return WallTimed(kernel, self.space, self.torch.cuda.synchronize)
        return GraphTimed(kernel, self.space)

    def close(self) -> None:
        """Free the arena and restore the thread count."""
        self.torch.set_num_threads(self._threads)
        if hasattr(self, "space"):
            del self.space
        gc.collect()
        if self.facts.kind == "cuda":
            self.torch.cuda.empty_cache()


def _synchroniser(torch: Any, kind: str) -> Callable[[], object]:
    """What waits for the device to finish; nothing on a CPU."""
    return (lambda: None) if kind == "cpu" else getattr(torch, kind).synchronize
