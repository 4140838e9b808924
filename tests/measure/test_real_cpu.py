"""The real path on this machine's processor, with tiny shapes: structure and sanity only, never speed."""

from __future__ import annotations

import getpass
import json
import math
import socket
import warnings
from dataclasses import asdict, replace
from random import Random

import pytest

from calc.measure import run_file, thermal, trial
from calc.measure.cases.formats import DTYPES
from calc.measure.cases.operators import workload
from calc.measure.ceilings import candidates, search
from calc.measure.device import device, environment
from calc.measure.device.watching import open_monitor
from calc.measure.kernels.operand_sizes import largest_operands
from calc.measure.progress import silent
from calc.measure.rounds import Bench
from calc.measure.runner import SystemClock
from calc.measure.sampling import StopRule
from calc.measure.session import Session
from calc.measure.torch_runner import TorchRunner
from calc.report import measurement
from tests.measure.simulated_device import PLAN, tiny_model

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three seconds."""
    path = tmp_path_factory.mktemp("run") / "run.json"
    model = tiny_model()
    work = workload(model, "fp32", input_len=32, context_len=64)
    facts = replace(device.describe(torch, "cpu", 0), cache_bytes=1 << 20)
    clock, monitor = SystemClock(), open_monitor("cpu")
    runner = TorchRunner(torch, facts, "fp32", largest=largest_operands(work.cases), deviation=1 / 16)
    record = environment.record(torch, facts, "fp32", ["measure", "tiny", "-o", str(path)])
    settings = {"suite": "quick", "seed": 0, "budget_s": 3.0}
    try:
        session = Session(model, work, facts, runner, clock, monitor, settings, record, PLAN, rounds=3, output=path)
        return session.run(clock.now(), clock.now() + 3), path
    finally:
        runner.close()
        monitor.close()


def test_structure(run):
    result, path = run
    written = run_file.parsed(run_file.content(path), path)
    assert {c["phase"] for c in written["cases"]} == {"prefill", "decode"}
    for case in result.cases:
        assert case.status in ("ok", "noisy", "unreliable"), (case.case.id, case.failure)
        assert case.time_s > 0
        assert case.minimum_s <= case.p95_s
        assert case.timer == "wall"
        assert case.kernel
    names = {c.name for c in result.ceilings}
    assert names >= {"matmul", "read", "copy", "launch"}
    left_out = {c.case.operation: c.failure for c in result.ceiling_cases if c.status == "failed"}
    assert set(left_out) >= {"matmul_burst", "matmul_sustained", "host_to_device", "device_to_host"}
    assert names | set(left_out) >= {"read_sum", "write"}  # a slow machine has no time for them
    assert "host's memory" in left_out["host_to_device"]
    assert "budget" in left_out["matmul_burst"]
    assert all(0 < c.value < 1e16 for c in result.ceilings)
    attention = [c for c in result.cases if c.case.op_class == "attention"]
    assert all("backend" in c.kernel and "torch-sdpa" in c.kernel for c in attention)
    json.dumps(measurement.record(asdict(result)), allow_nan=False)


def test_comparison(run):
    result, _ = run
    assert [p.phase for p in result.phases] == ["prefill", "decode"]
    for summary in result.phases:
        assert summary.not_measured == ()
        rows = [r for r in result.rows if r.phase == summary.phase]
        assert math.isclose(sum(r.count * r.measured_s for r in rows), summary.measured_s)
        assert math.isclose(sum(r.count * r.predicted_s for r in rows), summary.predicted_s)
        assert math.isclose(summary.error, summary.predicted_s / summary.measured_s - 1)
        assert summary.bound in ("compute", "memory", "overhead")


def test_the_record_names_nobody(run):
    _, path = run
    text = path.read_text()
    assert str(path.parent) not in text
    assert "/home" not in text
    assert "/root" not in text
    record = json.loads(text)["environment"]
    words = json.dumps(record)
    for name in (socket.gethostname(), getpass.getuser()):
        assert f'"{name}"' not in words
    assert record["command"] == ["measure", "tiny", "-o", "<path>"]
    assert record["host"]["threads"] >= 1
    assert record["torch"]["version"] == torch.__version__


def test_the_trial_knows_three_types():
    threads = torch.get_num_threads()
    chosen, times = trial.fastest_dtype(torch, SystemClock(), open_monitor("cpu"), budget_s=0.1)
    assert chosen in times
    assert set(times) <= set(DTYPES)
    assert times[chosen] == min(times.values())
    assert torch.get_num_threads() == threads


def test_devices():
    assert "cpu" in device.available(torch)
    assert device.choose(torch, "CPU") == ("cpu", 0)
    facts = device.describe(torch, "cpu", 0)
    assert facts.threads >= 1
    assert facts.free_bytes > 0
    assert facts.torch_name == "cpu"


def test_thermal_states_of_a_real_product(monkeypatch):
    for name, seconds in (("IDLE_S", 0.01), ("LOAD_S", 0.02), ("SUSTAINED_S", 0.02), ("BURST_S", 0.01)):
        monkeypatch.setattr(thermal, name, seconds)
    groups = {"matmul": candidates(PLAN, "fp32", ())["matmul"]}
    facts = replace(device.describe(torch, "cpu", 0), cache_bytes=1 << 20)
    runner = TorchRunner(torch, facts, "fp32", largest=largest_operands(groups["matmul"]), deviation=1 / 16)
    bench = Bench(runner, SystemClock(), open_monitor("cpu"), Random(0), StopRule(), silent)
    found = {s.case.operation: s.result(3) for s in search(bench, groups, 10.0) if s.once}
    runner.close()
    assert set(found) == set(thermal.NAMES)
    for result in found.values():
        assert result.time_s > 0
        assert len(result.rounds) == 3
        assert result.kernel.startswith("torch.mm")


@pytest.mark.gpu
def test_cuda_timers_agree():
    """A graph's replay and events behind a spin must tell the same time of a kernel that is long against a launch."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    from calc.measure.cuda_timers import EventTimed, GraphTimed

    facts = device.describe(torch, "cuda", 0)
    runner = TorchRunner(torch, facts, "fp16", largest={"plain": 1 << 26}, deviation=1 / 64)
    case = next(c for c in workload(tiny_model(hidden_size=4096), "fp16", input_len=2048).cases if c.operation == "gate_up_proj")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        timed = runner.prepare(case)
        times = {}
        for kind in (GraphTimed, EventTimed):
            one = kind(timed.kernel, runner.space)
            one.begin()
            one.sample(1, 3)
            times[kind] = min(one.sample(one.repeats_for(1e-4), 10))
            one.end()
    runner.close()
    assert times[GraphTimed] == pytest.approx(times[EventTimed], rel=0.1)
