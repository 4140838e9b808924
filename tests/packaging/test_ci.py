"""The README's two commands are what they claim, and the CI script runs the second one word for word."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def commands_of_readme() -> list[str]:
    """Command lines of the README's shell blocks, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_first_command_installs_and_estimates_without_extras() -> None:
    first = commands_of_readme()[0]
    assert first.startswith("python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/roofcast estimate ")
    assert "[" not in first


def test_second_command_installs_and_tests() -> None:
    assert commands_of_readme()[1] == "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest"


def test_ci_runs_the_second_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (literal,) = re.findall(r'^install_and_test="(.*)"$', script, re.MULTILINE)
    assert literal == commands_of_readme()[1]
    assert '"${install_and_test//.venv/$environment}"' in script


def test_ci_script_is_strict_and_runs_every_check() -> None:
    path = ROOT / ".ci" / "run"
    script = path.read_text(encoding="utf-8")
    assert os.access(path, os.X_OK)
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in script
    for check in (
        '/ruff" check',
        '/ruff" format --check',
        '/mypy"',
        '/lint-imports"',
        '/roofcast" check',
        "calc.commands.profile_index --check",
        "docs.build --check",
    ):
        assert check in script, check


def test_pre_commit_runs_what_ci_runs() -> None:
    import yaml

    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = " ".join(hook.get("entry", hook["id"]) for repo in config["repos"] for hook in repo["hooks"])
    for word in ("ruff check", "ruff format", "mypy", "lint-imports", "roofcast check", "profile_index", "docs.build"):
        assert word in entries, word
