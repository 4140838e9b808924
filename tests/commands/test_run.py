"""``roofcast run``: expectations judged, faults by line, reports for CI, and updates that never happen silently."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.cli import ROOT, answered, run

HOLDS = """\
scenarios:
  - name: chat
    model: llama-3.1-8b
    hardware: l40s
    deployment: {tensor_parallel_size: 2, engine: vllm, max_model_len: 8k}
    workload: {input_len: 1k, output_len: 128, batch_size: 4}
    expect:
      fits: true
      tpot_s: {at_most: 200ms}
      kv_bytes_per_token_per_gpu: {equals: 65536}
      memory.capacity_bytes_per_gpu: {at_least: 40GiB, at_most: 48GiB}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "scenarios.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_drafts_hosts_and_loads_can_be_expected(tmp_path: Path):
    text = """\
scenarios:
  - name: drafts
    model: llama-3.1-8b
    hardware: h100-sxm5-80gb
    deployment: {speculative_tokens: 3, acceptance: "0.9,0.8", draft_model: ngram}
    workload: {concurrency: 8}
    expect: {request.speculation.speedup: {at_least: 1}, load.carried: true, load.tpot_s: {at_most: 1s}}
  - name: host
    model: llama-3.1-70b
    hardware: h100-sxm5-80gb
    deployment: {cpu_offload_gb: 80}
    expect: {fits: true}
"""
    outcome = run("run", str(write(tmp_path, text)), "--json")
    assert outcome.code == 0, outcome.stderr
    assert [v["holds"] for v in outcome.json["results"]["verdicts"]] == [True] * 4
    broken = run("run", str(write(tmp_path, text.replace("0.9,0.8", "1.9"))))
    assert (broken.code, broken.stdout) == (3, "")
    assert "scenario 'drafts'" in broken.stderr


def test_what_holds_passes(tmp_path: Path):
    outcome = run("run", str(write(tmp_path, HOLDS)), "--json")
    assert outcome.code == 0
    verdicts = outcome.json["results"]["verdicts"]
    assert [v["holds"] for v in verdicts] == [True] * 4
    assert verdicts[1]["path"] == "request.tpot_s"


def test_what_is_broken_fails_and_is_named(tmp_path: Path):
    outcome = run("run", str(write(tmp_path, HOLDS.replace("200ms", "1us"))))
    assert outcome.code == 1
    assert "BROKEN" in outcome.stdout
    assert "tpot_s" in outcome.stdout


def test_what_was_found_is_said_in_the_unit_of_the_limit(tmp_path: Path):
    text = HOLDS.replace("200ms", "10ms").replace("at_least: 40GiB, at_most: 48GiB", "at_least: 90GiB")
    path = write(tmp_path, text)
    verdicts = {v["expectation"]: v["found"] for v in run("run", str(path), "--json").json["results"]["verdicts"]}
    shown = run("run", str(path), "--format", "github").stdout
    assert f"wanted at most 10ms, found {verdicts['tpot_s'] * 1e3:.6g}ms" in shown
    assert f"wanted at least 90GiB, found {verdicts['memory.capacity_bytes_per_gpu'] / 2**30:.6g}GiB" in shown


def test_a_range_is_judged_by_the_part_that_is_named(tmp_path: Path):
    results = answered("estimate", "llama-3.1-8b", "l40s", "-b", "4", "--json").json["results"]["decode"]["time_s"]
    middle = (results["floor"] + results["expected"]) / 2
    text = HOLDS.split("    deployment")[0] + "    workload: {{batch_size: 4}}\n    expect: {{{key}: {{at_most: {limit}}}}}\n"
    assert run("run", str(write(tmp_path, text.format(key="decode.time_s.floor", limit=middle)))).code == 0
    assert run("run", str(write(tmp_path, text.format(key="decode.time_s", limit=middle)))).code == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at_most: 200ms", "at_mots: 200ms", ":9:16: unknown key 'at_mots'; did you mean at_most?"),
        ("  hardware: l40s", "  hardwear: l40s", "unknown key 'hardwear'; did you mean hardware?"),
        ("engine: vllm", "enginee: vllm", "unknown key 'enginee'; did you mean engine"),
        ("  hardware: l40s", "  hardware: l40s\n    engine: vllm", "unknown key 'engine'; it belongs elsewhere in the file"),
        ("tensor_parallel_size: 2", "tp: 2", "unknown key 'tp'; did you mean tensor_parallel_size?"),
        ("engine: vllm", "ngl: 2", "unknown key 'ngl'; did you mean gpu_layers?"),
        ("input_len: 1k", "i: 1k", "unknown key 'i'; did you mean input_len?"),
        ("      tpot_s", "      tpot", ":9:7: no result is called 'tpot'"),
        ("      tpot_s", "      time_s", ":9:7: 'time_s' names several results"),
        ("at_most: 200ms", "at_most: 200GiB", ":9:7:"),
        ("{at_most: 200ms}", "{}", ":9:7: says nothing"),
        ("llama-3.1-8b", "llama-3.1-8", ":2:5: scenario 'chat': unknown model"),
        ("tensor_parallel_size: 2", "tensor_parallel_size: 3", "scenario 'chat':"),
        ("fits: true", "fits: {at_least: 1}", "has no order"),
    ],
)
def test_faults_are_exit_3_with_their_line(tmp_path: Path, old: str, new: str, message: str):
    outcome = run("run", str(write(tmp_path, HOLDS.replace(old, new))))
    assert (outcome.code, outcome.stdout) == (3, ""), outcome.stderr
    assert message in outcome.stderr
    assert "scenarios.yaml" in outcome.stderr


def test_an_unanswered_figure_breaks_an_expectation(tmp_path: Path):
    text = "scenarios:\n  - {name: a, model: llama-3.1-70b, hardware: l40s, expect: {tpot_s: {at_most: 1h}, fits: false}}\n"
    outcome = run("run", str(write(tmp_path, text)), "--json")
    assert outcome.code == 1
    assert [(v["expectation"], v["found"], v["holds"]) for v in outcome.json["results"]["verdicts"]] == [
        ("tpot_s", None, False), ("fits", False, True),
    ]  # fmt: skip


def test_junit_and_github(tmp_path: Path):
    broken = write(tmp_path, HOLDS.replace("200ms", "1us").replace("name: chat", "name: chat <&> 'x'"))
    report = tmp_path / "report.xml"
    assert run("run", str(broken), "-o", str(report)).code == 1
    suites = ElementTree.parse(report).getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("4", "1")
    assert len(suites.findall(".//failure")) == 1
    shown = run("run", str(broken), env={"GITHUB_ACTIONS": "true"})
    assert shown.code == 1
    assert f"::error file={broken},line=9," in shown.stdout
    assert run("run", str(broken), "--format", "gihub").code == 2


def test_update_writes_only_when_asked_and_says_every_change(tmp_path: Path):
    text = HOLDS.replace("200ms", "1us  # promised to the users").replace("equals: 65536", "equals: 1")
    text = text.replace("{at_most: 1us  # promised to the users}", "{at_most: 1us}  # promised to the users")
    path = write(tmp_path, text)
    assert run("run", str(path)).code == 1
    assert path.read_text(encoding="utf-8") == text
    outcome = run("run", str(path), "--update")
    assert outcome.code == 1  # the expectations were broken when they were judged
    assert outcome.stderr.count("updated: ") == 2
    assert ":9:7: tpot_s: at most 1us ->" in outcome.stderr
    changed = path.read_text(encoding="utf-8")
    assert "# promised to the users" in changed
    assert "{equals: 65536}" in changed
    assert run("run", str(path)).code == 0
    assert run("run", str(path), "--update").stderr == ""
    assert path.read_text(encoding="utf-8") == changed


def test_update_leaves_what_it_cannot_judge(tmp_path: Path):
    text = HOLDS.replace("{at_least: 40GiB, at_most: 48GiB}", "{at_least: 90GiB, at_most: 99GiB}")
    path = write(tmp_path, text)
    outcome = run("run", str(path), "--update")
    assert outcome.code == 1
    assert "not updated:" in outcome.stderr
    assert path.read_text(encoding="utf-8") == text


def test_files_that_cannot_be_read(tmp_path: Path):
    missing = run("run", str(tmp_path / "none.yaml"))
    assert (missing.code, missing.stdout) == (3, "")
    twice = HOLDS + HOLDS.split("\n", 1)[1]
    assert "stands twice" in run("run", str(write(tmp_path, twice))).stderr


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_of_the_documentation_hold(path: Path):
    outcome = run("run", str(path))
    assert outcome.code == 0, outcome.stdout + outcome.stderr
