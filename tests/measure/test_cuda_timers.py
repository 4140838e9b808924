"""The logic of the CUDA timers on a stand-in for torch.cuda that keeps its own time: what is captured, replayed, queued and freed."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from calc.measure import cuda_timers
from calc.measure.cuda_timers import EventTimed, GraphTimed
from calc.measure.kernels.kernel import Kernel
from calc.measure.runner import NotAvailable, OutOfMemory

CALL_MS = 0.02


class Cuda:
    """Device time in milliseconds advances with calls, replays and spins; the host's with ``queue_ms`` per call."""

    def __init__(self, refuses: Exception | None = None) -> None:
        self.time = 0.0
        self.capturing = None
        self.refuses = refuses
        self.spins: list[int] = []
        self.freed = 0
        self.synchronised = 0
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = cuda.time

            def synchronize(self) -> None: ...

            def elapsed_time(self, other: Event) -> float:
                return other.at - self.at

        class CUDAGraph:
            calls = 0

            def replay(self) -> None:
                cuda.time += self.calls * CALL_MS

            def reset(self) -> None:
                self.calls = 0

        class Stream:
            def wait_stream(self, other: object) -> None: ...

        self.Event, self.CUDAGraph, self.Stream = Event, CUDAGraph, Stream

    def call(self) -> None:
        if self.capturing is not None:
            self.capturing.calls += 1
        else:
            self.time += CALL_MS

    @contextmanager
    def graph(self, graph):
        if self.refuses:
            raise self.refuses
        self.capturing = graph
        yield
        self.capturing = None

    @contextmanager
    def stream(self, _):
        yield

    def current_stream(self):
        return self.Stream()

    def synchronize(self) -> None:
        self.synchronised += 1

    def empty_cache(self) -> None:
        self.freed += 1

    def _sleep(self, cycles: int) -> None:
        self.spins.append(cycles)


@contextmanager
def nothing():
    yield


def timed(kind, cuda: Cuda, copies: int = 4):
    kernel = Kernel([cuda.call for _ in range(copies)], None, "fake", operand_bytes=1 << 20)
    space = SimpleNamespace(
        torch=SimpleNamespace(cuda=cuda, inference_mode=nothing), activation_bytes=0, cursor_bytes=0, dtype="bf16",
        cache_label=lambda *_: "cold",
    )  # fmt: skip
    return kind(kernel, space)


def test_a_graph_is_captured_once_and_freed():
    cuda = Cuda()
    one = timed(GraphTimed, cuda)
    repeats = one.repeats_for(CALL_MS / 1e3)
    assert repeats % 4 == 0
    assert repeats * CALL_MS >= 1
    one.begin()
    assert one.sample(repeats, 3) == pytest.approx([CALL_MS / 1e3] * 3)
    graph = one._graph
    one.sample(repeats, 1)
    assert one._graph is graph
    one.sample(1, 1)
    assert one._graph is not graph
    one.end()
    assert one._graph is None
    assert cuda.freed >= 2
    assert (one.setup.timer, one.setup.launch) == ("graph", "graph")


def test_long_kernels_are_not_multiplied():
    one = timed(GraphTimed, Cuda(), copies=200)
    assert one.repeats_for(5e-3) == 1


def test_without_capture_events_time_the_case_from_then_on():
    cuda = Cuda(refuses=RuntimeError("operation not permitted when stream is capturing"))
    one = timed(GraphTimed, cuda)
    one.begin()
    assert one.sample(50, 2) == pytest.approx([CALL_MS / 1e3] * 2)
    one.end()
    assert (one.setup.timer, one.setup.launch) == ("events", "eager")
    cuda.refuses = None
    one.begin()
    one.sample(50, 1)
    assert one.setup.timer == "events"


def test_memory_that_runs_out_in_capture_fails_the_case():
    one = timed(GraphTimed, Cuda(refuses=RuntimeError("CUDA out of memory")))
    with pytest.raises(OutOfMemory):
        one.sample(1, 1)


def test_other_faults_fail_the_case_by_name():
    cuda = Cuda()
    one = timed(EventTimed, cuda)

    def broken() -> None:
        raise RuntimeError("no kernel image is available\nmore")

    one.kernel.calls[:] = [broken]
    with pytest.raises(NotAvailable, match="no kernel image"):
        one.sample(1, 1)


def test_the_queue_is_filled_behind_a_spin(monkeypatch):
    cuda = Cuda()
    one = timed(EventTimed, cuda)
    clock = iter([0.0, 0.5, 1.0, 1.1])  # the host needs 0.5 s to queue the first batch: longer than the spin
    monkeypatch.setattr(cuda_timers, "perf_counter", lambda: next(clock))
    assert one.sample(10, 2) == pytest.approx([CALL_MS / 1e3] * 2)
    assert len(cuda.spins) == 2
    assert cuda.spins[1] >= 2 * 0.5 * 1e9
    assert cuda.synchronised == 4
