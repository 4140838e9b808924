"""A whole session on a GPU: what watches, which timers run, and that the file is one. Structure only, never speed."""

from __future__ import annotations

import pytest

from calc.measure import run_reader, session
from calc.measure.device.watching import open_monitor
from tests.measure.simulated_device import tiny_model

torch = pytest.importorskip("torch")


@pytest.fixture
def device():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return "cuda"


@pytest.mark.gpu
def test_a_session(device, tmp_path):
    path = tmp_path / "run.json"
    result = session.measure(tiny_model(), budget_s=25, input_len=256, device=device, output=path)
    assert {c.failure for c in result.cases} == {None}
    assert {c.timer for c in result.cases} <= {"graph", "events"}
    assert {p.phase for p in result.phases if p.measured_s} == {"prefill", "decode"}
    assert not result.settings["rounds_finished"] < 3, "a tiny model has time for three rounds"
    if result.monitor["source"] == "nvml":
        assert {"sm_clock_hz", "power_w", "reasons"} <= set(result.monitor["watched"])
        assert all(c.cycles for c in result.cases)
    run, _ = run_reader.load(path)
    assert run["environment"]["device"]["kind"] == "cuda"


@pytest.mark.gpu
def test_a_gpu_is_watched_or_says_that_it_is_not(device):
    monitor = open_monitor(device, amd=torch.version.hip is not None)
    try:
        reading = monitor.read()
        assert (monitor.source == "unmonitored") == (reading.known == [])
        assert reading.temperature_c is None or 0 < reading.temperature_c < 130
        assert reading.sm_clock_hz is None or 1e8 < reading.sm_clock_hz < 5e9
    finally:
        monitor.close()
