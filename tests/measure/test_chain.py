"""The whole chain on a simulated device: what is planted must come back, and what goes wrong must be said."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import pytest

from calc.measure import run_file
from calc.measure.cases.operators import selects, workload
from calc.measure.device.disturbances import Surroundings, host_notices
from calc.measure.planning import affordable_rounds
from calc.measure.progress import ProgressEvent
from calc.measure.rounds import State
from calc.profiles.hardware import HardwareProfile, PeakDenseTflops
from calc.report import measurement, table
from tests.measure.simulated_device import Device, SimulatedCase, session, tiny_model


def codes(result) -> set[str]:
    return {w.code for w in result.warnings} | {w.code for c in result.cases for w in c.warnings}


def phase(result, name: str):
    return next(p for p in result.phases if p.phase == name)


@pytest.fixture(scope="module")
def undisturbed():
    """What a device without faults gives: frozen, so that tests can share it."""
    return session(Device()).run(0, 20)


def test_planted_rates_come_back(undisturbed):
    result = undisturbed
    rates = {c.name: c.value for c in result.ceilings}
    # The planted law adds a launch to every call, so rates of short calls are a little below the planted ones.
    assert rates["matmul"] == pytest.approx(1e12, rel=0.05)
    assert rates["read"] == pytest.approx(50e9, rel=0.20)
    assert rates["launch"] == pytest.approx(2e-6, rel=0.05)
    assert {c.status for c in result.cases} == {"ok"}
    for name, bound in (("prefill", "compute"), ("decode", "memory")):
        summary = phase(result, name)
        assert abs(summary.error) < 0.25
        assert summary.interval_s[0] <= summary.measured_s <= summary.interval_s[1]
        assert summary.not_measured == ()
        shares = [r.share for r in result.rows if r.phase == name]
        assert sum(shares) == pytest.approx(1)
        if bound == "compute":
            assert max(r.flops_per_s or 0 for r in result.rows) <= 1e12 * 1.01
    assert not result.interrupted
    assert result.settings["rounds_finished"] == 5


def test_big_shapes_are_bound_as_the_roofline_says():
    model = tiny_model(hidden_size=4096, vocab_size=None, has_lm_head=False)
    work = workload(model, "bf16", input_len=2048, context_len=512)
    result = session(Device(peak=4e12), model=model, work=work).run(0, 20)
    assert phase(result, "prefill").bound == "compute"
    assert phase(result, "decode").bound == "memory"
    assert abs(phase(result, "decode").error) < 0.1


def test_every_case_runs_in_every_round_in_random_order():
    seen: list[ProgressEvent] = []
    s = session(Device(), progress=seen.append)
    result = s.run(0, 20)
    assert all(len(c.rounds) == 5 for c in result.cases + result.ceiling_cases if c.status != "failed")
    orders = {}
    for event in seen:
        if event.kind == "case":
            index, name = str(event).split()[1:3]
            orders.setdefault(index, []).append(name)
    assert len(orders) == 5
    assert len({tuple(o) for o in orders.values()}) > 1
    assert len({frozenset(o) for o in orders.values()}) == 1


def test_drift_does_not_favour_prediction_or_measurement(undisturbed):
    still = undisturbed
    drifting = session(Device(drift_per_s=0.005)).run(0, 20)
    for name in ("prefill", "decode"):
        assert phase(drifting, name).measured_s > 1.02 * phase(still, name).measured_s
        assert phase(drifting, name).error == pytest.approx(phase(still, name).error, abs=0.02)


@pytest.mark.parametrize(("noise", "status", "code"), [(0.12, "noisy", "W_NOISY"), (0.4, "unreliable", "W_UNRELIABLE")])
def test_noise_is_named(noise, status, code):
    result = session(Device(noise=noise)).run(0, 20)
    assert code in codes(result)
    assert status in {c.status for c in result.cases}


def test_two_clocks_are_shown():
    assert "W_BIMODAL" in codes(session(Device(slow_clock=1.15)).run(0, 20))


def test_throttled_samples_are_dropped_and_counted():
    device = Device(throttled=(5.0, 8.0))
    result = session(device).run(0, 20)
    dropped = sum(r.dropped.get("hw_thermal", 0) for c in result.cases for r in c.rounds)
    assert dropped > 0
    assert device.slept > 0
    assert all(s < 2 * c.time_s for c in result.cases for r in c.rounds for s in r.samples_s)


def test_a_machine_that_is_never_well_fails_its_cases():
    result = session(Device(throttled=(0.0, 1e9))).run(0, 20)
    assert {c.status for c in result.cases} == {"failed"}
    assert all("held back all the time (hw_thermal)" in c.failure for c in result.cases)
    assert all(r.predicted_s is None for r in result.rows)


def test_more_than_a_tenth_dropped_is_unreliable():
    device = Device(throttled=(8.0, 12.0))
    result = session(device).run(0, 20)
    hit = [c for c in result.cases if any(w.code == "W_DROPPED" for w in c.warnings)]
    assert hit
    assert {c.status for c in hit} == {"unreliable"}
    assert all("hw_thermal" in w.message for c in hit for w in c.warnings if w.code == "W_DROPPED")


def test_a_power_limit_is_a_label_and_no_fault(undisturbed, tmp_path):
    path = tmp_path / "run.json"
    result = session(Device(reasons=0x04), output=path).run(0, 20)
    assert {c.status for c in result.cases} == {"ok"}
    assert {c.labels for c in result.cases} == {("power_limited",)}
    assert {tuple(c["labels"]) for c in run_file.parsed(run_file.content(path), path)["cases"]} == {("power_limited",)}
    assert {c.labels for c in undisturbed.cases} == {()}


def test_set_clocks_are_said_and_kept():
    result = session(Device(reasons=0x02)).run(0, 20)
    assert result.monitor["clocks_set"] == ["application clocks"]
    assert "W_CLOCKS_SET" in codes(result)
    assert {c.status for c in result.cases} == {"ok"}
    assert result.noisy == ()


def test_an_idle_device_gets_longer_samples():
    fed = session(Device(starved_below_s=1.5e-3)).run(0, 20)
    assert "W_IDLE" not in codes(fed)
    short = [c for c in fed.cases if c.time_s < 1e-4]
    assert {c.status for c in short} == {"ok"}
    starved = session(Device(starved_below_s=1.0)).run(0, 20)
    assert "W_IDLE" in codes(starved)


def test_a_slow_source_is_asked_around_a_case_only():
    often, seldom = Device(noise=0.2), Device(noise=0.2, slow=True)
    work = workload(tiny_model(), "bf16", only="attention:decode")
    quick, slow = (session(device, work=work).run(0, 20).cases[0] for device in (often, seldom))
    assert seldom.looks < 0.3 * often.looks
    assert slow.time_s == pytest.approx(quick.time_s, rel=0.05)


def test_a_slow_source_drops_the_whole_visit():
    result = session(Device(slow=True, throttled=(8.0, 9.0))).run(0, 20)
    taken = [r for c in result.cases for r in c.rounds]
    assert any(c.status == "ok" for c in result.cases)
    assert "W_DROPPED" in codes(result)
    assert not any(r.samples_s and r.dropped for r in taken if r.stop == "precise")


def test_a_clock_that_falls_in_one_round_is_named():
    result = session(Device(slow_turn=(6.0, 9.0))).run(0, 20)
    hit = [w.message for c in result.cases for w in c.warnings if w.code == "W_CLOCK"]
    assert hit
    assert any("0.50 GHz in one round and 1 GHz in others" in m for m in hit)


def test_cycles_and_energy(undisturbed):
    result = session(Device(power_w=300.0)).run(0, 20)
    for case in result.cases:
        assert case.cycles == pytest.approx(case.time_s * 1e9)
        assert case.energy_per_call_j == pytest.approx(300 * case.time_s, rel=0.05)
    assert all(c.energy_per_call_j is None for c in undisturbed.cases)


def test_a_disturbed_machine_makes_a_noisy_run(tmp_path):
    path = tmp_path / "run.json"
    one = session(Device(), output=path)
    one.notices += host_notices(Surroundings(niceness=5, quota_cpus=1.5, logical_cpus=4, threads=1, load=3.0))
    result = one.run(0, 20)
    assert len(result.noisy) == 3
    assert "nice 5" in result.noisy[0]
    assert run_file.parsed(run_file.content(path), path)["noisy"] == list(result.noisy)
    assert "noisy: this process runs at nice 5" in table.plain(measurement.page("Tiny", asdict(result)))


def test_samples_that_neighbours_spoil_are_set_aside():
    quiet = session(Device(tells_waiting=True)).run(0, 20)
    disturbed = session(Device(tells_waiting=True, neighbours=(8.0, 13.0))).run(0, 20)
    for name in ("prefill", "decode"):
        assert phase(disturbed, name).measured_s == pytest.approx(phase(quiet, name).measured_s, rel=0.02)
    taken = [r for c in disturbed.cases for r in c.rounds]
    assert any(r.preempted_s for r in taken)
    assert "W_CONTENDED" not in codes(disturbed)


def test_neighbours_all_the_time_make_a_run_unreliable(undisturbed):
    result = session(Device(tells_waiting=True, neighbours=(0.0, 1e9))).run(0, 20)
    assert {c.status for c in result.cases} == {"unreliable"}
    assert "W_CONTENDED" in codes(result)
    assert {r.verdict for r in result.rows} == {"unreliable"}
    assert phase(result, "decode").unreliable
    # All samples of all rounds count, for ceilings and cases alike: neighbours that slow everything alike leave the ratio as it is.
    assert phase(result, "decode").error == pytest.approx(phase(undisturbed, "decode").error, abs=0.02)
    assert phase(result, "decode").measured_s == pytest.approx(2 * phase(undisturbed, "decode").measured_s, rel=0.02)


def test_out_of_memory_fails_one_case_and_the_run_goes_on(tmp_path):
    result = session(Device(no_memory=("gemm:lm_head/*",)), output=tmp_path / "run.json").run(0, 20)
    failed = [c for c in result.cases if c.status == "failed"]
    assert {c.case.operation for c in failed} == {"lm_head"}
    assert all("out of memory" in c.failure for c in failed)
    assert all("lm_head" in phase(result, p).not_measured[0] for p in ("prefill", "decode"))
    run = json.loads((tmp_path / "run.json").read_text())
    assert all(c["phase"] in ("prefill", "decode") and (c["flops"] > 0 or c["bytes"] > 0) for c in run["cases"])
    assert [c["time_s"] for c in run["cases"] if c["status"] == "failed"] == [None, None]


def test_a_kernel_with_wrong_results_is_no_measurement():
    result = session(Device(wrong=("gemm:o_proj/*",))).run(0, 20)
    assert all("wrong result" in c.failure for c in result.cases if c.case.operation == "o_proj")


@pytest.mark.parametrize("at", [0.0, 0.02, 3.0, 8.0])
def test_interrupt_keeps_what_was_measured(tmp_path, at):
    path = tmp_path / "run.json"
    result = session(Device(interrupt_at=at), output=path).run(0, 20)
    assert result.interrupted
    assert result.output == str(path)
    run = run_file.parsed(run_file.content(path), path)
    assert run["complete"] is False
    assert len(run["cases"]) == len(result.cases)
    if at >= 3:
        assert all(c.time_s for c in result.cases)  # first timings stand where no round came
        assert any(len(c.rounds) < 5 for c in result.cases)
    json.dumps(measurement.record(asdict(result)), allow_nan=False)


@pytest.mark.parametrize("budget", [0.1, 3.0, 20.0])
def test_a_budget_cuts_rounds_not_coverage(budget):
    device = Device(noise=0.05)
    seen: list[ProgressEvent] = []
    result = session(device, progress=seen.append).run(0, budget)
    assert all(c.time_s for c in result.cases)
    assert device.time <= max(budget, 3.0)
    assert any(e.kind == "plan" for e in seen)
    if budget <= 3:
        assert result.settings["rounds_planned"] <= 5
    if budget < 1:
        assert "W_FEW_ROUNDS" in codes(result)
        assert {r.verdict for r in result.rows} == {"unclear"}


def test_a_planted_hot_cache_falls_below_the_floor():
    result = session(Device(faster={"gemm:gate_up_proj/decode/*": 4.0})).run(0, 20)
    faults = [w for w in result.warnings if w.code == "W_BELOW_FLOOR"]
    assert len(faults) == 1
    assert "gate_up_proj" in faults[0].message


def hardware(**tflops: float) -> HardwareProfile:
    return HardwareProfile(
        id="planted", name="Planted", vendor="test", device_class="measured", unit_of_account="device", memory_capacity_gb=8,
        memory_bandwidth_gb_per_s=55, peak_dense_tflops=PeakDenseTflops(**tflops),
    )  # fmt: skip


def test_the_datasheet_stands_beside():
    result = session(Device(), hardware=hardware(bf16=1.1)).run(0, 20)
    assert all(p.datasheet_s < p.measured_s for p in result.phases)
    assert not codes(result) & {"W_ABOVE_DATASHEET", "W_BELOW_DATASHEET"}


def test_a_wrong_datasheet_is_betrayed():
    result = session(Device(), hardware=hardware(bf16=0.4)).run(0, 20)
    assert {"W_ABOVE_DATASHEET", "W_BELOW_DATASHEET"} <= codes(result)
    without = session(Device(), hardware=hardware(fp16=0.4)).run(0, 20)
    assert all(p.datasheet_s is None for p in without.phases)


def test_same_seed_same_order(undisturbed):
    again = session(Device()).run(0, 20)
    assert [c.time_s for c in again.cases] == [c.time_s for c in undisturbed.cases]


def test_only_some_cases():
    work = workload(tiny_model(), "bf16", only="attention:decode")
    result = session(Device(), work=work).run(0, 20)
    assert [c.case.operation for c in result.cases] == ["attention"]
    assert all(selects("attention:decode", c.case) for c in result.cases)
    assert phase(result, "prefill").measured_s is None
    assert "not selected" in phase(result, "prefill").not_measured[0]


def test_memory_that_python_lacks_fails_one_case(monkeypatch):
    whole = SimulatedCase.sample

    def sample(self, repeats, count):
        if self.case.operation == "o_proj":
            raise MemoryError
        return whole(self, repeats, count)

    monkeypatch.setattr(SimulatedCase, "sample", sample)
    result = session(Device()).run(0, 20)
    assert {c.case.operation for c in result.cases if c.status == "failed"} == {"o_proj"}
    assert all("out of memory" in c.failure for c in result.cases if c.status == "failed")


def test_ctrl_c_while_the_file_is_written(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    whole, calls = os.replace, []

    def replace(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        whole(*arguments)

    monkeypatch.setattr(os, "replace", replace)
    result = session(Device(), output=path).run(0, 20)
    assert result.interrupted
    assert result.output == str(path)
    assert run_file.parsed(run_file.content(path), path)["settings"]["rounds_finished"] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_few_samples_before_too_few_rounds():
    """An interval comes from the rounds: a budget of ten calls gives three rounds of one sample, not two of three."""
    case = workload(tiny_model(), "bf16", only="attention:decode").cases[0]
    states = [State(case, call_s=1.0)]
    assert affordable_rounds(states, 5, 30.0) == (5, 3)
    assert affordable_rounds(states, 5, 12.0) == (3, 3)
    assert affordable_rounds(states, 5, 10.0) == (3, 2)
    assert affordable_rounds(states, 5, 6.5) == (3, 1)
    assert affordable_rounds(states, 5, 5.0) == (2, 1)
    assert affordable_rounds(states, 5, 0.1) == (1, 1)
    assert affordable_rounds([], 5, 0.1) == (5, 3)


def test_without_time_for_a_round_the_first_timings_stand():
    device = Device()
    result = session(device).run(0, 2.0)  # all of it is reserved for the end
    assert all(c.time_s for c in result.cases)
    assert {len(r.samples_s) for c in result.cases for r in c.rounds} == {1}
    assert {"W_OVER_BUDGET", "W_FEW_ROUNDS"} <= codes(result)
    assert device.time < 2.0
