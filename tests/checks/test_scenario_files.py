"""Scenario files are held to their schema: unknown keys are found with their place and a suggestion."""

from pathlib import Path

from calc.checks.runner import run_checks

GOOD = """scenarios:
  - name: chat
    model: llama-3.1-8b
    hardware: l40s
    expect: {fits: true}
"""


def test_a_sound_scenario_file_is_clean(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD)
    report = run_checks([file], [], [])
    assert report.files == 1
    assert not report.findings


def test_an_unknown_key_is_a_finding_with_place_and_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("hardware:", "hardwear:"))
    texts = [f"{f.line}: {f.message if hasattr(f, 'message') else f}" for f in run_checks([file], [], []).findings]
    assert any("hardwear" in t and "hardware" in t for t in texts), texts
    assert any(t.startswith("4:") for t in texts), texts
