from __future__ import annotations

import errno
import json
import os

import pytest

from calc.errors import ProfileError
from calc.measure import run_file
from tests.measure.simulated_device import Device, session


def test_round_trip_and_contract(tmp_path):
    path = tmp_path / "run.json"
    result = session(Device(), output=path).run(0, 20)
    run = run_file.read(path)
    assert run["schema"] == "roofcast.run/1"
    assert run["complete"]
    assert json.loads(json.dumps(run, allow_nan=False)) == run
    assert {c["phase"] for c in run["cases"]} == {"prefill", "decode"}
    for case, measured in zip(run["cases"], result.cases, strict=True):
        assert case["flops"] > 0 or case["bytes"] > 0
        assert case["time_s"] == measured.time_s
        assert case["interval_method"] == "t-log-rounds"
        assert [r["median_s"] for r in case["rounds"]] == [r.median_s for r in measured.rounds]
        assert case["status"] in ("ok", "noisy", "unreliable", "failed")
    assert {c["name"] for c in run["ceilings"]} >= {"matmul", "read", "copy", "launch"}
    assert sum(c["chosen"] for c in run["ceilings"]) == len(result.ceilings)
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_written_after_every_round(tmp_path, monkeypatch):
    kept = []
    whole = run_file.write
    monkeypatch.setattr(
        run_file, "write", lambda run, path: (kept.append((run["complete"], run["settings"].copy())), whole(run, path))
    )
    session(Device(), output=tmp_path / "run.json").run(0, 30)
    assert [complete for complete, _ in kept] == [False] * 5 + [True]
    assert [s["rounds_finished"] for _, s in kept] == [1, 2, 3, 4, 5, 5]


def test_a_full_disk_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    path.write_text('{"schema": "roofcast.run/1", "old": true}')

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = session(Device(), output=path).run(0, 20)
    assert result.output is None
    assert [w.code for w in result.warnings].count("W_NOT_SAVED") == 1
    assert "No space left" in next(w.message for w in result.warnings if w.code == "W_NOT_SAVED")
    assert json.loads(path.read_text())["old"]
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_an_interrupted_write_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    run_file.write({"schema": run_file.SCHEMA, "n": 1}, path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_file.write({"schema": run_file.SCHEMA, "n": 2}, path)
    assert run_file.read(path)["n"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_not_a_number_never_reaches_a_file(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        run_file.write({"schema": run_file.SCHEMA, "x": float("nan")}, tmp_path / "run.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "roofcast.run/9"}', '{"cases": []}'])
def test_foreign_files_are_refused(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ProfileError) as fault:
        run_file.read(path)
    assert fault.value.exit_code == 3
    with pytest.raises(ProfileError):
        run_file.read(tmp_path / "missing.json")
