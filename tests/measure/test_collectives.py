"""Collectives over gloo between two processes: structure and sanity, never speed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import calc
from calc.measure import collectives, run_reader
from calc.measure.cases.operators import workload
from calc.measure.comparing.evaluation import evaluate
from calc.operators.operator import sent_share
from calc.report.measured import html_page
from calc.report.measured import summary as report
from tests.measure.simulated_device import Device, session, tiny_model


def test_bus_factors_are_those_of_nccl_tests():
    assert sent_share("all-reduce", 4) == 1.5
    assert sent_share("all-gather", 4) == 0.75
    assert sent_share("send", 2) == 1


def test_sizes():
    assert collectives.sizes(1 << 14, [5000, 4096]) == [1024, 4096, 5000, 16384]
    assert collectives.sizes(100) == []


def test_without_torchrun_it_says_how(capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert collectives.main([]) == 2
    assert "torchrun" in capsys.readouterr().err


def test_one_process_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert collectives.main([]) == 2
    assert "2 or more" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["qwen3-0.6b", "mamba2-2.7b", "rwkv-5-world-3b"])
def test_every_kind_of_model_has_messages(model):
    profile = calc.load_model(model).profile
    entries = workload(profile, "bf16", input_len=64).entries
    run = {"operators": [{"operation": e.operator.name, "shape": e.operator.shape} for e in entries]}
    assert collectives.messages_of(run) == [2 * profile.hidden_size, 2 * 64 * profile.hidden_size]


@pytest.mark.parametrize("fault", ["edited", "foreign", "missing"])
def test_only_a_run_file_as_measured_is_merged(tmp_path, capsys, monkeypatch, fault):
    monkeypatch.setenv("RANK", "0")
    path = tmp_path / "run.json"
    if fault == "edited":
        session(Device(), work=workload(tiny_model(), "bf16", only="attention:*"), output=path).run(0, 3)
        path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    elif fault == "foreign":
        path.write_text("{}")
    assert collectives.main(["--merge", str(path)]) == 3
    told = capsys.readouterr()
    assert told.err.startswith("error: ")
    assert told.out == ""


def test_two_processes(tmp_path):
    pytest.importorskip("torch")
    path, measured = tmp_path / "links.json", tmp_path / "run.json"
    session(Device(), output=measured).run(0, 3)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "calc.measure.collectives",
    ]
    options = [
        "-o",
        str(path),
        "--merge",
        str(measured),
        "--largest",
        "4096",
        "--rounds",
        "3",
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(path.read_text())
    assert found["ranks"] == 2
    messages = {2 * tokens * 256 for tokens in (1, 256)}  # a decode step and the prompt of the tiny model
    assert set(found["model_message_bytes"]) == messages
    assert {c["bytes"] for c in found["cases"]} == {1024, 4096} | messages
    merged, content_hash = run_reader.load(measured)
    record = evaluate(merged, content_hash)
    assert merged["collectives"] == {k: v for k, v in found.items() if k != "digest"}
    assert len(report.links(record)) == sum(c["status"] == "ok" for c in found["cases"])
    assert "Collectives over 2 ranks" in html_page.html(record)
    assert {law["kind"] for law in found["laws"]} >= {"all-reduce"}
    assert all(law["latency_s"] >= 0 for law in found["laws"])
    reduced = [c for c in found["cases"] if c["kind"] == "all-reduce"]
    for case in reduced:
        assert case["status"] == "ok"
        assert case["time_s"] > 0
        assert case["interval_s"][0] <= case["time_s"] <= case["interval_s"][1]
        assert case["busbw_bytes_per_s"] == pytest.approx(case["bytes"] / case["time_s"])
    assert all(c["failure"] for c in found["cases"] if c["status"] == "failed")
