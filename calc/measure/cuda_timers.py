"""CUDA timers: a replayed graph for every kernel that can be captured, events with a filled queue for the rest.

Written after nvbench, the triton bench helper and torch.utils.benchmark; thresholds are to be confirmed on a device.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from calc.measure.kernels.kernel import Kernel
from calc.measure.kernels.torch_module import is_out_of_memory
from calc.measure.kernels.workspace import Workspace
from calc.measure.timers import BLOCK_S, TorchTimed, repeats_for

_MOST_GRAPH_CALLS = 4096
_WARM_UP_CALLS = 3  # before capture: libraries pick algorithms and allocate workspaces that a graph must not hold
_SPIN_CYCLES_PER_S = 2e9  # no current part clocks far above 2 GHz, and a longer spin is harmless


class EventTimed(TorchTimed):
    """A CUDA event pair around each sample, behind a spin kernel that holds the device until the host has queued the whole batch:
    without it short kernels measure the host."""

    timer, launch = "events", "eager"

    def _sample(self, repeats: int, count: int) -> list[float]:
        spin_s = 1e-3
        for _ in range(6):
            found, queued_s = self._batch(repeats, count, spin_s)
            if queued_s < spin_s or not hasattr(self.space.torch.cuda, "_sleep"):
                return found
            spin_s = 2 * queued_s
        return found

    def _batch(self, repeats: int, count: int, spin_s: float) -> tuple[list[float], float]:
        cuda = self.space.torch.cuda
        events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(count)]
        batches = [list(self.rotation.take(repeats)) for _ in range(count)]
        cuda.synchronize()
        if hasattr(cuda, "_sleep"):
            cuda._sleep(int(spin_s * _SPIN_CYCLES_PER_S))  # private to torch, so its absence is allowed for
        start = perf_counter()
        for (before, after), calls in zip(events, batches, strict=True):
            before.record()
            for call in calls:
                call()
            after.record()
        queued_s = perf_counter() - start
        cuda.synchronize()
        return [before.elapsed_time(after) / 1e3 / repeats for before, after in events], queued_s


class GraphTimed(EventTimed):
    """R calls captured into one CUDA graph and replayed between two events: no launch gaps, no flush inside the window, and how
    serving engines run decode. Where capture fails the case is timed with events from then on, and says so."""

    timer, launch = "graph", "graph"

    def __init__(self, kernel: Kernel, space: Workspace) -> None:
        super().__init__(kernel, space)
        self._graph: Any = None
        self._calls = 0

    def repeats_for(self, call_s: float) -> int:
        """A block's worth, rounded up to whole turns of the rotation where that stays short."""
        if self.timer == "events":
            return super().repeats_for(call_s)
        repeats, turn = repeats_for(call_s, _MOST_GRAPH_CALLS), len(self.kernel.calls)
        whole = -(-repeats // turn) * turn
        return whole if whole <= _MOST_GRAPH_CALLS and whole * call_s <= 50 * BLOCK_S else repeats

    def _sample(self, repeats: int, count: int) -> list[float]:
        if self.timer == "graph" and self._calls != repeats:
            try:
                self._capture(repeats)
            except RuntimeError as fault:
                self._release()
                if is_out_of_memory(fault):
                    raise
                self.timer, self.launch = "events", "eager"
        if self.timer == "events":
            return super()._sample(repeats, count)
        return [self._replay(repeats) for _ in range(count)]

    def _replay(self, repeats: int) -> float:
        cuda = self.space.torch.cuda
        before, after = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        before.record()
        self._graph.replay()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3 / repeats

    def _capture(self, repeats: int) -> None:
        cuda = self.space.torch.cuda
        self._release()
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            for call in self.rotation.take(_WARM_UP_CALLS):
                call()
        cuda.current_stream().wait_stream(stream)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for call in self.rotation.take(repeats):
                call()
        self._graph, self._calls = graph, repeats
        graph.replay()
        cuda.synchronize()

    def _release(self) -> None:
        """A graph's private memory does not come back by itself."""
        if self._graph is not None:
            self._graph.reset()
            self._graph, self._calls = None, 0
            self.space.torch.cuda.empty_cache()

    def end(self) -> None:
        """Free the graph: the next case needs the memory."""
        self._release()
        super().end()

    def close(self) -> None:
        """Free the graph and the operands."""
        self._release()
        super().close()
