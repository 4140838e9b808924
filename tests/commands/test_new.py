"""``roofcast models new`` and ``hardware new``: a template in which `check` names every figure that is missing, and no other fault."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.cli import ROOT, run

FILLED = {
    "models": {
        "family": "llama", "hidden_size": 4096, "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 14336, "repeat": 32, "dtype": "bf16", "url": "https://example.org", "date": "2026-11-29",
    },
    "hardware": {
        "vendor": "Example", "class": "datacenter_gpu", "memory_capacity_gb": 48, "memory_bandwidth_gb_per_s": 864, "bf16": 362,
        "url": "https://example.org", "date": "2026-11-29",
    },
}  # fmt: skip
ROWS = {"fp32", "fp16", "bf16", "fp8", "int8"}


def filled(text: str, values: dict[str, object]) -> str:
    lines = []
    for number, line in enumerate(text.splitlines()):
        key = line.partition(":")[0].strip(" -")
        value = f"{values.get(key)}/{number}" if key == "url" else values.get(key)  # no source counts twice
        open_figure = r"TODO\b" if value is None else r"\b(null|TODO)\b"
        lines.append(re.sub(": " + open_figure, f": {'null' if value is None else value}", line, count=1))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", ["models", "hardware"])
def test_check_names_each_figure_that_is_missing_and_accepts_the_rest(kind: str, tmp_path: Path):
    target = tmp_path / "mine.yaml"
    assert run(kind, "new", "mine", "-o", str(target)).code == 0
    text = target.read_text(encoding="utf-8")
    checked = run("check", str(target), "--json")
    assert checked.code == 1
    asked = {f["line"] for f in checked.json["results"]["findings"]}
    needed = FILLED[kind].keys() - {"date"} | (ROWS if kind == "hardware" else set())
    lines = text.splitlines()
    assert {lines[n - 1].partition(":")[0].strip(" -") for n in asked} == needed
    target.write_text(filled(text, FILLED[kind]), encoding="utf-8")
    assert run("check", str(target)).stdout.endswith("1 file checked: no findings\n")
    shown = run(kind, "show", str(target), "--json")
    assert shown.code == 0, shown.stderr
    if kind == "models":
        assert json.loads(shown.stdout)["results"]["parameters"] == 8_030_261_248


def test_what_is_imported_from_a_config_passes_the_check(tmp_path: Path):
    config = tmp_path / "org__small" / "config.json"
    config.parent.mkdir()
    shutil.copy(ROOT / "tests" / "data" / "model_configs" / "Qwen__Qwen3-8B.json", config)
    target = tmp_path / "small.yaml"
    assert run("models", "import", str(config), "-o", str(target)).code == 0
    text = target.read_text(encoding="utf-8")
    assert "- url: org/small/config.json\n" in text
    assert str(tmp_path) not in text
    assert run("check", str(target)).stdout == "1 file checked: no findings\n"


@pytest.mark.parametrize("kind", ["models", "hardware"])
def test_a_template_goes_to_standard_output_and_over_no_file(kind: str, tmp_path: Path):
    plain = run(kind, "new", "mine")
    assert (plain.code, plain.stderr) == (0, "")
    assert "id: mine " in plain.stdout
    target = tmp_path / "mine.yaml"
    target.write_text("kept", encoding="utf-8")
    for words, message in (
        (("mine", "-o", str(target)), "exists"),
        (("mine", "-o", str(tmp_path / "other.yaml")), "mine.yaml"),
        (("mine", "-o", str(tmp_path / "mine.json")), "mine.yaml"),
        (("My Model: x",), "like my-model-x"),
        (("../mine",), "cannot be an id"),
        (("",), "cannot be an id"),
    ):
        refused = run(kind, "new", *words)
        assert (refused.code, refused.stdout) == (2, ""), refused.stderr
        assert message in refused.stderr
    assert target.read_text(encoding="utf-8") == "kept"
    assert run(kind, "new", "mine", "-o", str(target), "--force").code == 0
    assert target.read_text(encoding="utf-8") == plain.stdout
