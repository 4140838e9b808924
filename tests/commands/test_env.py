"""``roofcast env``: the local device with its driver and profile, libraries, and the folders profiles are read from. Asked within the
test process, where torch is loaded once."""

from __future__ import annotations

from pathlib import Path

from calc.report import environment
from calc.report.table import plain
from tests.support.cli import ROOT, run_inside


def test_env_names_the_device_that_detect_names(capsys, monkeypatch):
    outcome = run_inside(capsys, monkeypatch, "env", "--json")
    assert outcome.code == 0, outcome.stderr
    device = outcome.json["results"]["device"]
    assert device == run_inside(capsys, monkeypatch, "hardware", "detect", "--json").json["results"]
    shown = run_inside(capsys, monkeypatch, "env").stdout
    for word in ("device", "memory", "driver", "profile", "torch", device["name"].split()[0]):
        assert word in shown


def test_a_gpu_is_shown_with_its_driver_and_profile():
    device = {
        "kind": "cuda", "name": "NVIDIA H200", "count": 2, "memory_bytes": 150_000_000_000, "told_by": "torch", "driver": "570.1",
        "torch": "2.9", "profile": "h200-sxm-141gb",
    }  # fmt: skip
    shown = plain(environment.page(environment.facts(None, device)), 100)
    for words in ("2 x NVIDIA H200", "570.1", "h200-sxm-141gb", "139.7 GiB"):
        assert words in shown


def test_folders_in_use_are_listed_in_search_order(tmp_path: Path, capsys, monkeypatch):
    (tmp_path / "hardware_profiles").mkdir()
    content = (ROOT / "hardware_profiles" / "nvidia" / "l40s.yaml").read_bytes()
    (tmp_path / "hardware_profiles" / "l40s.yaml").write_bytes(content)
    outcome = run_inside(capsys, monkeypatch, "env", "--json", "--profiles-dir", str(tmp_path))
    folders = outcome.json["results"]["profile_folders"]
    first = next(f for f in folders if f["kind"] == "hardware")
    assert first == {"kind": "hardware", "folder": str(tmp_path / "hardware_profiles"), "profiles": 1}
