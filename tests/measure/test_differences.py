"""Two runs against each other: a verdict only where the rounds allow one."""

from __future__ import annotations

import json
import math
from random import Random

import pytest

from calc.measure import run_reader
from calc.measure.cases.operators import workload
from calc.measure.comparing.differences import differences
from calc.measure.sampling import StopRule
from calc.measure.statistics import log_interval
from calc.report import differences as report
from tests.measure.simulated_device import Device, session, tiny_model
from tests.support.cli import run

MODEL = tiny_model(hidden_size=1024)
SLOWED = "gemm:o_proj/"
RULE = StopRule(min_samples=5, min_time_s=0.0, precision=1.0, max_time_s=0.05)


def simulated(path, **device):
    work = workload(MODEL, "bf16", input_len=512, context_len=512, only="gemm:o_proj,gemm:down_proj")
    made = session(Device(**device), model=MODEL, work=work, output=path, rule=RULE)
    made.settings["dtype"] = "bf16"
    made.run(0, 20)
    return run_reader.load(path)[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return folder, {
        "first": simulated(folder / "first.json"),
        "again": simulated(folder / "again.json", seed=7),
        "slower": simulated(folder / "slower.json", seed=2, faster={SLOWED + "*": 1 / 1.2}),
    }


def changed(run_file, change):
    other = json.loads(json.dumps(run_file))
    for case in other["cases"]:
        change(case)
    return other


def drawn(random: Random, times: list[float], spread: float, rounds: int = 5):
    """A run of one case per time, its rounds ``spread`` apart."""
    cases = []
    for i, time_s in enumerate(times):
        value, interval = log_interval([time_s * math.exp(random.gauss(0, spread)) for _ in range(rounds)])
        cases.append(
            {
                "id": str(i), "operation": "o", "phase": "decode", "calls_per_step": 2, "status": "ok", "time_s": value,
                "interval_s": interval and list(interval),
            }
        )  # fmt: skip
    return {"cases": cases, "model": {}, "environment": {}, "settings": {}}


def verdicts(one, two) -> dict[str, str]:
    return {r["case_id"]: r["verdict"] for r in differences(one, two)["rows"]}


def test_the_same_device_twice_is_the_same(runs):
    _, found = runs
    assert set(verdicts(found["first"], found["again"]).values()) == {"SAME"}
    assert all(s["verdict"] == "SAME" for s in differences(found["first"], found["again"])["steps"])


def test_only_the_planted_case_changes_and_turns_with_the_order(runs):
    _, found = runs
    for one, two, verdict in (("first", "slower", "SLOWER"), ("slower", "first", "FASTER")):
        got = verdicts(found[one], found[two])
        assert {v for i, v in got.items() if i.startswith(SLOWED)} == {verdict}
        assert {v for i, v in got.items() if not i.startswith(SLOWED)} == {"SAME"}


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.1])
def test_equal_devices_are_seldom_called_different(spread):
    random, times = Random(5), [1e-3] * 400
    got = list(verdicts(drawn(random, times, spread), drawn(random, times, spread)).values())
    assert sum(v in ("FASTER", "SLOWER") for v in got) <= 0.02 * len(got)


@pytest.mark.parametrize(("gap", "verdict"), [(1.10, "SLOWER"), (1 / 1.10, "FASTER")])
def test_a_gap_of_ten_percent_is_found_through_noise_of_one(gap, verdict):
    random = Random(6)
    got = list(verdicts(drawn(random, [1e-3] * 200, 0.01), drawn(random, [gap * 1e-3] * 200, 0.01)).values())
    assert got.count(verdict) >= 0.98 * len(got)
    assert {v for v in got if v != verdict} <= {"UNCLEAR"}


def test_wide_and_missing_intervals_are_unclear():
    random, times = Random(7), [1e-3] * 50
    one = drawn(random, times, 0.001)
    wide = list(verdicts(one, drawn(random, times, 0.2)).values())
    assert wide.count("UNCLEAR") >= 0.85 * len(wide)  # a 95 % interval misses now and then
    few = drawn(random, [2e-3] * 50, 0.001, rounds=2)
    assert set(verdicts(one, few).values()) == {"UNCLEAR"}
    assert differences(one, few)["steps"][1]["verdict"] == "UNCLEAR"


def test_a_gap_below_one_percent_is_no_difference(runs):
    _, found = runs
    sharp = [changed(found["first"], lambda c, f=f: c.update(time_s=f, interval_s=[f * 0.9999, f * 1.0001])) for f in (1.0, 1.008)]
    assert set(verdicts(*sharp).values()) == {"SAME"}


def test_unreliable_cases_have_no_verdict(runs):
    _, found = runs
    other = changed(found["slower"], lambda c: c.update(status="unreliable"))
    assert set(verdicts(found["first"], other).values()) == {"UNCLEAR"}


def test_steps_sum_the_calls(runs):
    _, found = runs
    step = next(s for s in differences(found["first"], found["slower"])["steps"] if s["phase"] == "prefill")
    own = [c for c in found["first"]["cases"] if c["phase"] == "prefill"]
    assert step["first_s"] == pytest.approx(sum(c["calls_per_step"] * c["time_s"] for c in own))
    assert 1 < step["ratio"] < 1.2


def test_what_differs_about_the_runs_stands_above_the_table(runs):
    folder, found = runs
    other = json.loads(json.dumps(found["again"]))
    other["environment"]["device"]["driver"] = "570.1"
    other["environment"]["torch"] = {"version": "9"}
    record = differences(found["first"], other)
    assert {c["key"] for c in record["environment"]} == {"device.driver", "torch.version"}
    tables = report.page(record).tables
    assert [t.columns[0].header for t in tables] == ["what differs", "operation"]
    text = run("report", str(folder / "first.json"), str(folder / "slower.json")).stdout
    assert "second/first" in text
    assert "SLOWER" in text
