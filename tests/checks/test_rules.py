"""The registry: every rule can fire, says what it does, and is chosen by id or family."""

from pathlib import Path

import pytest

from calc.checks.runner import explain, rules, run_checks
from calc.errors import ProfileError, UnknownNameError, UsageError
from tests.checks.editing import check_text, edited, fired, source
from tests.checks.test_mutations import EDITS, SCALED

MODEL = """\
id: tiny
name: Tiny
family: llama
hidden_size: 64
vocab_size: 1000
layer_kinds:
  decoder:
    mixers:
      - kind: full
        num_attention_heads: 4
        num_key_value_heads: 2
        head_dim: 16
    feed_forwards:
      - kind: dense
        intermediate_size: 128
stack:
  - repeat: 2
    layers: [decoder]
storage:
  dtype: bf16
parameters:
  total: 202048
  active: 202048
  kv_bytes_per_token: 256
sources:
  - {url: https://example.org/config.json, date: '2026-01-01', access: read, fields: [all]}
"""
EFFICIENCY = """\
id: mine
evidence: fitted
origin: a run
factors:
  - compute: {low: 0.2, expected: 0.4, high: 0.7, n: 9}
    bandwidth: {low: 0.3, expected: 0.6, high: 0.8, n: 9}
    link: {low: 0.5, expected: 0.7, high: 0.9, n: 0}
sources:
  - {url: https://example.org/runs, date: '2026-01-01', fields: [compute]}
"""


def model(old: str, new: str) -> dict[str, str]:
    assert old in MODEL
    return {"tiny": MODEL.replace(old, new)}


def efficiency(old: str, new: str) -> dict[str, str]:
    assert old in EFFICIENCY
    return {"mine": EFFICIENCY.replace(old, new)}


UNUSED = "layer_kinds:\n  sliding: {mixers: [{kind: full, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16}]}\n"
SHARED = "num_key_value_heads: 2\n        kv_source: shared\n"
CASES = [
    ("S1", {"l4": edited(source("l4"), {"memory_bandwith_gb_per_s": 3})}),
    ("S1", {"l4": source("l4").replace("fp16: 121.0", "fp16: 0")}),
    ("S1", {"l4": source("l4") + "id: again\n"}),
    ("S1", {"l4": "id: [\n"}),
    ("S2", {"l4-copy": source("l4")}),
    ("I1", {"l4": source("l4") + "# roofcast: ignore[C7]\n"}),
    ("I2", {"l4": source("l4") + "# roofcast: ignore[C7] left over\n"}),
    ("M1", model("intermediate_size: 128", "intermediate_size: 160")),
    (
        "M1",
        model("repeat: 2\n", "repeat: 3\n")
        | {"tiny": MODEL.replace("repeat: 2\n", "repeat: 3\n").replace("token: 256", "token: 384")},
    ),
    ("M1", model("hidden_size: 64\n", "hidden_size: 64\ntie_word_embeddings: true\n")),
    ("M2", model("active: 202048", "active: 302048")),
    ("M2", model("active: 202048", "active: 20204")),
    ("M3", model("kv_bytes_per_token: 256", "kv_bytes_per_token: 512")),
    ("M4", model("layer_kinds:\n", UNUSED)),
    (
        "M4",
        model("num_key_value_heads: 2\n", SHARED)
        | {"tiny": MODEL.replace("num_key_value_heads: 2\n", SHARED).replace("n: 256", "n: 0")},
    ),
    ("M5", model("head_dim: 16", "head_dim: 16\n        rotary_dim: 32")),
    ("M6", model("vocab_size: 1000", "vocab_size: 151643")),
    ("M6", model("vocab_size: 1000", "vocab_size: 1000\nembedding_rows: 999")),
    ("M7", model("date: '2026-01-01', ", "")),
    ("M7", {"tiny": MODEL.partition("sources:")[0]}),
    ("M8", {"tiny": MODEL, "tiny-2": MODEL.replace("id: tiny", "id: tiny-2")}),
    ("M8", model("name: Tiny", "name: Tiny\naliases: [Small, small]")),
    ("E1", efficiency("expected: 0.6, high: 0.8", "expected: 1.1, high: 1.2")),
    ("E2", efficiency("n: 9", "n: 0")),
    ("E3", {"mine": EFFICIENCY.partition("sources:")[0]}),
    ("E3", efficiency("date: '2026-01-01', ", "")),
]


@pytest.mark.parametrize(("rule", "files"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_rule_fires_and_no_other(tmp_path: Path, rule: str, files: dict[str, str]) -> None:
    found = check_text(tmp_path, files)
    assert fired(found) == {rule}, [(f.rule, f.message) for f in found]


def test_clean_files_are_silent(tmp_path: Path) -> None:
    assert check_text(tmp_path, {"tiny": MODEL, "mine": EFFICIENCY}) == []


def test_no_rule_is_dead() -> None:
    elsewhere = {"C19", "C23"}  # need several files: tests/checks/test_mutations.py
    covered = {c[0] for c in CASES} | {e[3] for e in EDITS} | {e[4] for e in SCALED} | elsewhere
    assert covered == {r.id for r in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.id)
def test_every_rule_explains_itself(rule) -> None:
    assert rule.sentence.endswith(".")
    assert "\n" not in rule.sentence
    text = explain(rule.id.lower())
    assert text.startswith(f"{rule.id} ({rule.severity})")
    assert "Example: " in text
    assert max(map(len, text.splitlines())) <= 100


def test_hardware_rules_are_those_of_the_catalogue() -> None:
    assert {r.id for r in rules() if r.id.startswith("C")} == {f"C{n}" for n in range(1, 24)}


def test_synthetic_models_need_no_sources(tmp_path: Path) -> None:
    text = MODEL.partition("parameters:")[0].replace("family: llama", "family: llama\nsynthetic: true")
    assert check_text(tmp_path, {"tiny": text}) == []


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    text = source("l4").replace("tdp_w: 72", "tdp_w: many").replace("class: datacenter_gpu", "class: toaster")
    found = check_text(tmp_path, {"l4": text + "colour: green\n"})
    assert [f.rule for f in found] == ["S1"] * 3
    assert len({f.line for f in found}) == 3


def test_select_and_ignore_take_ids_and_families(tmp_path: Path) -> None:
    files = {
        "l4": edited(source("l4"), {"memory_bandwidth_gb_per_s": 3350, "peak_dense_tflops.fp4": 9}),
        "tiny": MODEL.replace("256", "512"),
    }
    assert fired(check_text(tmp_path, files)) == {"C3", "C7", "M3"}
    assert fired(check_text(tmp_path, files, select=["m"])) == {"M3"}
    assert fired(check_text(tmp_path, files, select=["C7", "M"])) == {"C7", "M3"}
    assert fired(check_text(tmp_path, files, ignore=["C"])) == {"M3"}
    assert fired(check_text(tmp_path, files, select=["C"], ignore=["C3"])) == {"C7"}
    with pytest.raises(UsageError):
        run_checks([tmp_path], select=["C99"])


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        explain("C99")


def test_a_path_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileError):
        run_checks([tmp_path / "missing.yaml"])


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "workflow.yml").write_text("on: push\n")
    scenario = "{name: x, model: llama-3.1-8b, hardware: l40s, expect: {fits: true}}"
    (tmp_path / "scenarios.yaml").write_text(f"scenarios: [{scenario}]\n")
    report = run_checks([tmp_path])
    assert (report.findings, report.files) == ((), 1)
    named = run_checks([tmp_path / "workflow.yml"])
    assert [f.rule for f in named.findings] == ["S1"]


def test_a_file_given_twice_is_checked_once(tmp_path: Path) -> None:
    (tmp_path / "l4.yaml").write_text(source("l4"))
    assert run_checks([tmp_path / "l4.yaml", tmp_path, tmp_path / "l4.yaml"]).files == 1


def test_an_architecture_that_is_not_tabulated_leaves_its_rules_silent(tmp_path: Path) -> None:
    text = edited(source("l4"), {"isa_target": "sm_999", "compute_capability": None, "peak_dense_tflops.fp4": 9})
    assert check_text(tmp_path, {"l4": text}) == []


def test_an_isa_target_follows_from_the_compute_capability(tmp_path: Path) -> None:
    text = edited(source("l4"), {"isa_target": None, "peak_dense_tflops.fp4": 9})
    assert fired(check_text(tmp_path, {"l4": text})) == {"C3"}
