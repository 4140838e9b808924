"""Fit and report from run files alone: planted figures come back, gates judge, odd files are refused with the place."""

from __future__ import annotations

import json
import math
import re
from functools import partial
from random import Random
from xml.etree import ElementTree

import pytest

from calc.errors import ProfileError, UsageError
from calc.measure import run_file, run_reader
from calc.measure.cases.grid import Grid
from calc.measure.cases.operators import workload
from calc.measure.comparing.differences import differences
from calc.measure.comparing.evaluation import evaluate, gate
from calc.measure.fitting.fitted_profile import fit_runs
from calc.profiles import reader
from calc.profiles.efficiency import EfficiencyProfile, faults
from calc.profiles.writer import efficiency_yaml
from calc.timing.efficiency import load_efficiency
from tests.measure.simulated_device import Device, session, tiny_model
from tests.measure.test_chain import hardware
from tests.support.cli import run, run_inside

GRID = Grid((16, 64), (128,), (17,), composites=True)
MODEL = tiny_model(hidden_size=4096, vocab_size=None, has_lm_head=False)


class Kernels(Device):
    """Kernels that reach a share of the ceilings, each a little different."""

    def true_time(self, case) -> float:
        if case.parts:
            return sum(n * self.true_time(part) for part, n in case.parts)
        own = Random(case.id).gauss(0, 0.03) if case.op_class != "ceiling" else 0.0
        share = 1.0 if case.op_class == "ceiling" else 0.8
        return max(case.flops / self.peak / share, case.bytes / self.bandwidth / 0.9) * math.exp(own) + self.launch_s


def measured(path, device=None, **more):
    work = workload(MODEL, "bf16", input_len=2048, context_len=512, grid=GRID)
    made = session(device or Kernels(peak=4e12), model=MODEL, work=work, output=path, rounds=3, **more)
    made.settings["dtype"] = "bf16"
    made.run(0, 6)
    return run_reader.load(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    sheet = hardware(bf16=5.0)
    found = {"first": measured(folder / "first.json", hardware=sheet)}
    found["second"] = measured(folder / "second.json", Kernels(peak=4e12, bandwidth=40e9, seed=2), hardware=sheet)
    return folder, found


@pytest.fixture(scope="module")
def profile(files):
    run, content_hash = files[1]["first"]
    return fit_runs([run], [content_hash])


def test_the_fit_finds_the_planted_shares(profile):
    gemm = next(f for f in profile.factors if f.operator_classes == ["gemm"])
    assert gemm.compute.expected == pytest.approx(0.8 * 4 / 5, rel=0.05)
    assert gemm.bandwidth.expected == pytest.approx(0.9 * 50 / 55, rel=0.05)
    assert gemm.compute.low <= gemm.compute.expected <= gemm.compute.high
    assert gemm.held_out_error.median < 0.08
    assert gemm.box["m"] == (1, 2048)
    assert profile.evidence == "measured here"
    assert profile.fit.against == "datasheet"
    assert profile.hardware == "planted"
    text = efficiency_yaml(profile).encode()
    assert reader.convert(reader.parse_yaml(text, "x"), EfficiencyProfile, faults) == profile


def test_without_a_datasheet_shares_are_of_the_measured_ceilings(tmp_path):
    run, content_hash = measured(tmp_path / "run.json")
    profile = fit_runs([run], [content_hash])
    assert profile.fit.against == "measured ceilings"
    gemm = next(f for f in profile.factors if f.operator_classes == ["gemm"])
    assert gemm.compute.expected == pytest.approx(0.8, rel=0.05)
    assert profile.hardware is None


def test_unreliable_cases_are_left_out_and_counted(tmp_path):
    run, content_hash = measured(tmp_path / "run.json", Kernels(peak=4e12, no_memory=("gemm:o_proj/*",)))
    profile = fit_runs([run], [content_hash])
    assert profile.fit.left_out["failed"] > 0
    for case in run["cases"]:
        case["status"] = "unreliable"
    with pytest.raises(UsageError, match="no case"):
        fit_runs([run], [content_hash])


def test_different_devices_are_not_merged(files):
    _, found = files
    other = json.loads(json.dumps(found["second"][0]))
    other["environment"]["device"]["name"] = "Another"
    with pytest.raises(UsageError, match="different devices"):
        fit_runs([found["first"][0], other], ["a", "b"])
    both = fit_runs([found["first"][0], found["second"][0]], ["a", "b"])
    assert len(both.fit.runs) == 2


def test_a_run_given_twice_is_refused(files):
    """Its cases would count twice, and spreads would rest on more than was seen."""
    _, found = files
    with pytest.raises(UsageError, match="1 and 3 are the same run"):
        fit_runs([found["first"][0], found["second"][0], found["first"][0]], ["a", "b", "a"])


def test_a_fit_residual_is_no_validation(files, profile, tmp_path):
    _, found = files
    (tmp_path / "first.yaml").write_text(efficiency_yaml(profile))
    efficiency = load_efficiency(str(tmp_path / "first.yaml"))
    own = evaluate(*found["first"], efficiency)
    assert own["basis"]["kind"] == "fit residual"
    assert all(abs(s["error"]) < 0.06 for s in own["steps"])
    whole = [r for r in own["further"] if r["class"] == "composite"]
    assert {(r["operation"], r["phase"]) for r in whole} == {
        (n, p) for n in ("decoder_layer", "decoder_stack") for p in ("prefill", "decode")
    }
    assert all(abs(r["error"]) < 0.1 for r in whole)
    plain = evaluate(*found["first"])
    assert plain["basis"]["kind"] == "prediction"
    other = json.loads(json.dumps(found["second"][0]))
    for case in other["cases"]:
        case["id"] += "x"
    for row in other["operators"]:
        row["case_id"] += "x"
    assert evaluate(other, "hash", efficiency)["basis"]["kind"] == "validation"


def test_rows_without_an_efficiency_are_those_of_the_run(files):
    _, found = files
    run, content_hash = found["first"]
    record = evaluate(run, content_hash)
    assert [r["predicted_s"] for r in record["rows"]] == pytest.approx([o["predicted_s"] for o in run["operators"]])
    assert [r["verdict"] for r in record["rows"]] == [o["verdict"] for o in run["operators"]]
    assert record["worst"]["reason"]


def test_gate(files):
    _, found = files
    record = evaluate(*found["first"])
    assert gate(record, 0.5) == []
    assert any("gemm" in reason for reason in gate(record, 0.01))
    one = {"class": "gemm", "phase": "decode", "median": 0.2, "n": 1, "bound": None}
    assert gate(record | {"groups": [one]}, 0.1)[-1] == "gemm in decode: median error 20.0% of 1 case"
    assert gate(record | {"counts": record["counts"] | {"cases": 0}}, 0.5)
    assert "judged" in gate(record | {"counts": record["counts"] | {"judged": 1}}, 0.5)[0]


def test_two_runs(files):
    _, found = files
    same = differences(found["first"][0], found["first"][0])
    assert same["environment"] == []
    assert same["counts"]["FASTER"] == same["counts"]["SLOWER"] == 0
    slower = differences(found["first"][0], found["second"][0])
    assert slower["counts"]["SLOWER"] > 10
    other = json.loads(json.dumps(found["second"][0]))
    other["environment"]["device"]["driver"] = "2"
    assert [c["key"] for c in differences(found["first"][0], other)["environment"]] == ["device.driver"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda r: r["cases"][2].update(time_s=1.0), r"cases\[2\]\.time_s"),
        (lambda r: r["cases"][1].update(time_s=-1.0), r"cases\[1\]\.time_s"),
        (lambda r: r["cases"][0].pop("rounds"), r"cases\[0\]"),
        (lambda r: r["cases"][0]["rounds"][1].update(median_s=2.0), r"cases\[0\]\.rounds\[1\]\.median_s"),
        (lambda r: r["operators"][0].update(case_id="none"), r"operators\[0\]\.case_id"),
        (lambda r: r["cases"][0].update(flops=7.0), "digest"),
        (lambda r: r.pop("operators"), "operators"),
        (lambda r: r.update(schema="roofcast.run/2"), "another version"),
        (lambda r: r.update(schema="other"), "no run file"),
    ],
)
def test_edited_and_foreign_files_are_refused_with_the_place(files, tmp_path, change, place):
    _, found = files
    run = json.loads(json.dumps(found["first"][0]))
    change(run)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    with pytest.raises(ProfileError, match=place) as fault:
        run_reader.load(path)
    assert fault.value.exit_code == 3


def test_the_digest_is_that_of_the_content(files):
    _, found = files
    run = found["first"][0]
    assert run["digest"] == run_file.digest(run)


def test_commands(files, tmp_path, capsys, monkeypatch):
    run = partial(run_inside, capsys, monkeypatch)  # pictures are drawn by a library that is slow to start
    folder, _ = files
    first, second = str(folder / "first.json"), str(folder / "second.json")
    fitted = run("fit", first, second, "-o", str(tmp_path / "e.yaml"), "--json")
    assert fitted.code == 0, fitted.stderr
    assert fitted.json["results"]["evidence"] == "measured here"
    estimated = run("estimate", "llama-3.1-8b", "h100-sxm5-80gb", "--efficiency", str(tmp_path / "e.yaml"), "--json")
    assert "measured here" in estimated.json["results"]["decode"]["time_s"]["evidence"]
    codes = {w["code"] for w in estimated.json["warnings"]}
    assert {"efficiency_of_another_device", "default_efficiency", "extrapolated"} <= codes
    said = [w["message"] for w in estimated.json["warnings"] if w["code"] == "extrapolated"]
    assert any(text.startswith("gemm: ") and " n " in text for text in said)
    other = run("fit", first, "--hardware", "l40s", "--json").json
    assert "W_OTHER_DEVICE" in {w["code"] for w in other["warnings"]}
    assert "W_OTHER_DEVICE" not in {w["code"] for w in fitted.json["warnings"]}
    for suffix in ("csv", "html", "png", "svg"):
        target = tmp_path / f"r.{suffix}"
        assert run("report", first, "--efficiency", str(tmp_path / "e.yaml"), "-o", str(target)).code == 0
        assert target.stat().st_size > 500
    page = (tmp_path / "r.html").read_text()
    assert len(page) < 3_000_000
    assert not re.search(r"https?://|<script[^>]+src|<link|url\(|@import", page)
    assert "fit residual" in page
    assert "NaN" not in page
    for part in ("Worst case", "What was measured, and what not", "Why a step takes what it takes", "prefers-color-scheme:dark"):
        assert part in page
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    ElementTree.fromstring((tmp_path / "r.svg").read_text())
    assert run("report", first, "-o", str(tmp_path / "d.svg"), "--theme", "dark").code == 0
    assert (tmp_path / "d.svg").read_text() != (tmp_path / "r.svg").read_text()
    assert run("report", first, "-o", str(tmp_path / "d.svg"), "--theme", "pink").code == 2
    assert run("report", first, second, "-o", str(tmp_path / "two.html")).code == 0
    assert "SLOWER" in (tmp_path / "two.html").read_text()
    assert run("report", first, second, "-o", str(tmp_path / "two.png")).code == 2
    assert run("report", first, "--max-error", "90%").code == 0
    failed = run("report", first, "--max-error", "1%")
    assert failed.code == 1
    assert "gate:" in failed.stderr
    assert "SLOWER" in run("report", first, second).stdout
    (tmp_path / "cut.json").write_text((folder / "first.json").read_text()[:5000])
    assert run("report", str(tmp_path / "cut.json")).code == 3
    assert run("fit", str(tmp_path / "none.json")).code == 3


@pytest.mark.parametrize("command", ["fit", "report"])
def test_a_new_interpreter_answers(files, command):
    answer = run(command, str(files[0] / "first.json"), fresh=True)
    assert answer.code == 0, answer.stderr
    assert answer.stdout


def test_small_operations_get_laws_of_their_own(files):
    _, found = files
    run_file_, content_hash = (json.loads(json.dumps(found["first"][0])), found["first"][1])
    slower = {"rope": 2.0, "kv_cache_write": 0.5}
    for case in run_file_["cases"]:
        factor = slower.get(case["operation"], 1.0)
        case["time_s"] *= factor
        case["interval_s"] = [t * factor for t in case["interval_s"]]
    profile = fit_runs([run_file_], [content_hash])
    own = {f.operations[0]: f for f in profile.factors if f.operations and f.operator_classes == ["elementwise"]}
    assert {"rope", "kv_cache_write", "act_and_mul"} <= own.keys()
    assert own["kv_cache_write"].bandwidth.expected > 1.5 * own["rope"].bandwidth.expected
    (others,) = (f for f in profile.factors if f.operator_classes == ["elementwise"] and not f.operations)
    assert others.cases == 0
    assert others.bandwidth.high / others.bandwidth.low > own["rope"].bandwidth.high / own["rope"].bandwidth.low
    cases = sum(f.cases for f in profile.factors)
    assert cases == sum(c["status"] == "ok" and c["class"] != "composite" for c in run_file_["cases"])
    text = efficiency_yaml(profile).encode()
    assert reader.convert(reader.parse_yaml(text, "x"), EfficiencyProfile, faults) == profile


def test_the_measured_time_of_a_step_is_split_without_a_rest(files):
    _, found = files
    record = evaluate(*found["first"])
    for step in record["steps"]:
        assert math.fsum(step["gap"].values()) == pytest.approx(step["measured_s"], rel=1e-12)
        assert step["gap"]["tile_s"] == step["gap"]["wave_s"] == 0  # not told how many units the device has
    told = json.loads(json.dumps(found["first"][0]))
    told["environment"]["device"]["sm_count"] = 132
    prefill = evaluate(told, "x")["steps"][0]
    assert prefill["gap"]["wave_s"] > 0
    assert math.fsum(prefill["gap"].values()) == pytest.approx(prefill["measured_s"], rel=1e-12)


def test_the_table_of_what_was_measured_names_what_is_missing(tmp_path):
    from calc.report.measured import html_page
    from calc.report.measured import scope as report

    record = evaluate(*measured(tmp_path / "run.json", Kernels(peak=4e12, no_memory=("gemm:o_proj/*",))))
    rows = {(r[0], r[1]): r for r in report.scope(record)}
    assert rows["prefill", "gemm"][2:4] == ["4", "3"]
    assert "o_proj: out of memory" in rows["prefill", "gemm"][5]
    assert rows["decode", "norm"][5] == "-"
    assert "scheduler" in html_page.html(record)


def test_words_of_a_run_file_stay_words(files):
    from calc.report.measured import html_page

    _, found = files
    record = evaluate(*found["first"])
    record["device"]["name"] = "<script>alert(1)</script>"
    record["rows"][0]["operation"] = '"><img src=x>'
    page = html_page.html(record)
    assert "<script>alert" not in page
    assert "<img" not in page
