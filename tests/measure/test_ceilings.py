"""Ceilings: the thermal states of the best product, links that are no memory, and types that must not be mixed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calc
from calc.measure import ceilings, run_reader, thermal
from calc.measure.cases import grid as grids
from calc.measure.cases.formats import asked_formats
from calc.measure.cases.operators import workload
from calc.measure.product_shapes import neighbours
from calc.measure.progress import silent
from calc.measure.records import Ceiling
from calc.measure.rounds import Bench, State
from calc.measure.runner import Setup
from calc.measure.sampling import StopRule
from calc.measure.session import SUITES, Session
from tests.measure.simulated_device import FACTS, PLAN, Device, SimulatedCase, session, tiny_model

WITH_HOST = replace(PLAN, host_bytes=1 << 20)


class Warming(Device):
    """A device whose products slow down with the work of the last seconds, and which cools while it sleeps."""

    heat_s = 0.0

    def sleep(self, seconds):
        super().sleep(seconds)
        self.heat_s = max(0.0, self.heat_s - 2 * seconds)

    def prepare(self, case):
        return WarmingCase(self, super().prepare(case).case)


class WarmingCase(SimulatedCase):
    def sample(self, repeats, count):
        start = self.device.time
        slow = 1.25 if self.device.heat_s > 1.0 else 1.0
        found = [t * slow for t in super().sample(repeats, count)]
        self.device.time = start + (self.device.time - start) * slow
        self.device.heat_s = min(3.0, self.device.heat_s + self.device.time - start)
        return found


def bench(device: Device) -> Bench:
    return Bench(device, device, device, Random(0), StopRule(), silent)


def searched(device: Device, limit_s: float, plan=PLAN) -> dict[str, State]:
    groups = ceilings.candidates(plan, "bf16", workload(tiny_model(), "bf16").cases)
    return {s.case.operation: s for s in ceilings.search(bench(device), groups, limit_s)}


def test_a_cool_device_is_faster_than_one_at_work():
    device = Warming()
    found = searched(device, 30.0)
    burst, sustained = (found[name].result(3) for name in thermal.NAMES)
    assert burst.status == sustained.status == "ok"
    assert sustained.time_s / burst.time_s == pytest.approx(1.25, rel=0.02)
    assert device.slept == pytest.approx(len(burst.rounds) * thermal.IDLE_S)
    assert len(burst.rounds) == len(sustained.rounds) == 3
    assert burst.interval_s[0] <= burst.time_s <= burst.interval_s[1]
    assert not any(found[name].in_rounds for name in thermal.NAMES)
    assert device.time < 30.0


@pytest.mark.parametrize(("limit_s", "tried"), [(0.5, ()), (5.0, ("matmul_sustained",)), (9.0, thermal.NAMES)])
def test_a_short_budget_leaves_out_the_idle_time_first(limit_s, tried):
    device = Warming()
    found = searched(device, limit_s)
    for name in thermal.NAMES:
        result = found[name].result(3)
        assert (result.time_s is not None) == (name in tried)
        if name not in tried:
            assert "budget" in result.failure
    assert device.time < max(limit_s, 1.5)


def test_the_states_are_in_the_run_file_with_their_names(tmp_path):
    work = workload(tiny_model(), "bf16", only="attention:decode")
    result = session(Warming(), work=work, output=tmp_path / "run.json", rounds=1).run(0, 60)
    rates = {c.name: c.value for c in result.ceilings}
    assert rates["matmul_burst"] > 1.2 * rates["matmul_sustained"]
    run, _ = run_reader.load(tmp_path / "run.json")
    kinds = {c["name"]: c["kind"]["thermal"] for c in run["ceilings"]}
    assert kinds["matmul_burst"] == "burst"
    assert kinds["matmul_sustained"] == kinds["matmul"] == "sustained"
    assert ceilings.as_floor(result.ceilings).peaks["bf16"] >= rates["matmul_burst"]


def test_quick_holds_its_minute_on_an_accelerator():
    """All ceilings, both thermal states and every case of a model within 60 seconds on a device with an H200's datasheet rates."""
    model = calc.load_model("llama-3.1-8b").profile
    grid = grids.for_suite("quick", "cuda")
    device = Warming(peak=8.355e14, bandwidth=4.8e12, launch_s=2e-6)
    facts = replace(FACTS, kind="cuda", free_bytes=1 << 37)
    run = Session(
        model, workload(model, "bf16", grid=grid), facts, device, device, device, {"seed": 0}, {}, ceilings.GPU_PLAN,
        rounds=SUITES["quick"].rounds, working_sets=grid.working_sets,
    )  # fmt: skip
    result = run.run(0, SUITES["quick"].budget_s)
    assert device.time <= SUITES["quick"].budget_s
    assert all(c.time_s for c in result.cases)
    assert result.settings["rounds_finished"] >= 3
    names = {c.name for c in result.ceilings}
    assert names >= {"matmul", "matmul_sustained", "read", "write", "copy", "launch_eager", "host_to_device", "device_to_host"}
    failed = {c.case.operation for c in result.ceiling_cases if c.status == "failed"}
    assert failed <= {"matmul_burst"}


def test_a_product_that_fails_has_no_thermal_states():
    device = Device(no_memory=("ceiling:matmul/*",))
    assert not set(thermal.NAMES) & set(searched(device, 30.0))


def test_host_copies_where_there_is_a_host_apart():
    here, apart = searched(Device(), 20.0), searched(Device(), 20.0, WITH_HOST)
    for name in ("host_to_device", "device_to_host"):
        assert "host's memory" in here[name].failure
        assert apart[name].in_rounds
        assert apart[name].setup == Setup("simulated", "eager", "cold", 3, 1, "planted law")


def test_optional_kinds_give_way_to_the_budget():
    found = searched(Device(peak=1e9), 0.01)
    assert all(found[name].failure is None for name in ("matmul", "read", "copy", "launch"))
    assert {found[name].failure for name in ("read_sum", "write")} == {thermal.NO_TIME}


def test_rectangles_around_the_best_squares_are_tried():
    """A device on which long inner sizes are fast: its best product is no square."""
    plan = replace(PLAN, matmul_sizes=(256, 512, 1024, 2048, 4096))
    device = Device(faster={"ceiling:matmul/m2048/n4096/k4096/*": 3.0})
    groups = ceilings.candidates(plan, "bf16", ())
    kept = [s for s in ceilings.search(bench(device), {"matmul": groups["matmul"]}, 30.0) if s.case.operation == "matmul"]
    assert len(kept) == 2
    tried = kept[0].case.parameters["tried"]
    assert len(tried) > 5
    assert [t[-1] for t in tried] == sorted((t[-1] for t in tried), reverse=True)
    assert tried[0][:3] == [kept[0].case.shape[x] for x in "mnk"]
    assert tried[0][:3] == [2048, 4096, 4096]


@given(
    st.lists(st.tuples(*[st.sampled_from([1, 2, 3, 4])] * 3), max_size=4), st.lists(st.tuples(*[st.sampled_from([1, 2, 3, 4])] * 3))
)
def test_neighbours_are_new_and_one_step_away(best, known):
    found = list(neighbours(best, [1, 2, 3, 4], known))
    assert len(found) == len(set(found))
    assert not set(found) & set(known)
    for shape in found:
        assert any(sum(abs(a - b) for a, b in zip(shape, origin, strict=True)) == 1 for origin in best)


def test_each_type_has_its_own_peak():
    work = workload(tiny_model(), "bf16", formats=asked_formats("int8"))
    groups = ceilings.candidates(PLAN, "bf16", work.cases)
    assert {c.dtype for c in groups["matmul_int8"]} == {"int8"}
    assert "matmul_fp8" not in groups

    def one(name: str, dtype: str, value: float) -> Ceiling:
        unit = "s" if name == "launch" else "flop/s" if name.startswith("matmul") else "byte/s"
        return Ceiling(name, dtype, unit, value, value * 1.1, None, name, "ok")

    found = [one("matmul", "bf16", 1e12), one("matmul_burst", "bf16", 3e12), one("matmul_int8", "int8", 2e12)]
    found += [one("read", "bf16", 5e10), one("host_to_device", "bf16", 9e13), one("launch", "bf16", 1e-6)]
    assert ceilings.as_roofline(found, "gemm").peaks == {"bf16": 1e12, "int8": 2e12}
    floor = ceilings.as_floor(found)
    assert floor.peaks["bf16"] == pytest.approx(3.3e12)
    assert floor.bandwidth == pytest.approx(5.5e10)  # a link is no memory


CEILINGS = {
    name: Ceiling(name, dtype, unit, value, value, None, name, "ok")
    for name, dtype, unit, value in (
        ("matmul", "bf16", "flop/s", 1e12), ("matmul_fp8", "fp8", "flop/s", 2e12), ("read", "bf16", "byte/s", 5e10),
        ("copy", "bf16", "byte/s", 4e10), ("launch", "bf16", "s", 1e-6), ("host_to_device", "bf16", "byte/s", 1e10),
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("op_class", "rate"), [("gemm", 5e10), ("experts", 5e10), ("attention", 5e10), ("norm", 4e10), ("recurrent", 4e10)]
)
def test_what_reads_weights_or_keys_runs_at_the_read_rate(op_class, rate):
    assert ceilings.as_roofline(CEILINGS.values(), op_class).bandwidth == rate


@pytest.mark.parametrize(
    ("name", "op_class", "dtype", "reliable"),
    [
        ("host_to_device", "gemm", "bf16", True),
        ("matmul_fp8", "gemm", "bf16", True),
        ("copy", "gemm", "bf16", True),
        ("matmul_fp8", "gemm", "fp8", False),
        ("matmul", "gemm", "bf16", False),
        ("read", "experts", "bf16", False),
        ("copy", "norm", "bf16", False),
        ("launch", "norm", "bf16", False),
    ],
)
def test_a_prediction_is_as_reliable_as_what_it_rests_on(name, op_class, dtype, reliable):
    found = CEILINGS | {name: replace(CEILINGS[name], status="unreliable")}
    assert ceilings.are_reliable(found.values(), op_class, dtype) == reliable
