"""What other repositories point at: the pre-commit hook and the composite GitHub Action."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
SCRIPT = ACTION["runs"]["steps"][-1]["run"]


def test_hook_checks_profiles_in_one_process() -> None:
    (hook,) = HOOKS
    assert (hook["id"], hook["entry"], hook["language"]) == ("roofcast-check", "roofcast check", "python")
    assert hook["require_serial"] is True
    wanted = re.compile(hook["files"])
    assert wanted.search("hardware_profiles/nvidia/l4.yaml")
    assert wanted.search("deploy/model_profiles/meta/llama.yaml")
    assert not wanted.search(".github/workflows/ci.yml")


def test_action_runs_no_input_as_code() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    handed = set(ACTION["runs"]["steps"][-1]["env"].values())
    assert handed | {"${{ inputs.python-version }}"} == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}


def ran(folder: Path, **inputs: str) -> tuple[int, list[str], str]:
    """Exit code, calls of a stand-in for roofcast, and output of the action's script."""
    stub = folder / "bin" / "roofcast"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\nprintf "%s|" "$@" >> "$CALLS"\necho >> "$CALLS"\necho report\n')
    stub.chmod(0o755)
    calls = folder / "calls"
    calls.touch()
    base = dict.fromkeys(("PATHS", "SELECT", "IGNORE", "SARIF_FILE", "JUNIT_FILE"), "")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", SCRIPT],
        cwd=folder,
        env={"PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}", "CALLS": str(calls), **base, **inputs},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, calls.read_text().splitlines(), done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_action_looks_at_the_usual_folders(folder: Path) -> None:
    (folder / "hardware_profiles").mkdir()
    assert ran(folder)[:2] == (0, ["check|--format|github|--|hardware_profiles|"])


def test_action_without_anything_to_check_fails(folder: Path) -> None:
    code, calls, out = ran(folder)
    assert (code, calls) == (2, [])
    assert out.startswith("::error::")


def test_action_takes_paths_rules_and_reports(folder: Path) -> None:
    code, calls, _ = ran(folder, PATHS="a.yaml\nb/", SELECT="C7,M", SARIF_FILE="out.sarif", JUNIT_FILE="out.xml")
    assert code == 0
    assert calls == [
        "check|--select|C7,M|--exit-zero|--format|sarif|--|a.yaml|b/|",
        "check|--select|C7,M|--exit-zero|--format|junit|--|a.yaml|b/|",
        "check|--select|C7,M|--format|github|--|a.yaml|b/|",
    ]
    assert (folder / "out.sarif").read_text() == "report\n"


def test_action_runs_nothing_hidden_in_an_input(folder: Path) -> None:
    code, calls, _ = ran(folder, PATHS="$(touch hacked) ; touch hacked", SELECT="C7; touch hacked")
    assert code == 0
    assert len(calls) == 1
    assert not (folder / "hacked").exists()
