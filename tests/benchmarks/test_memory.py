"""The memory scoreboard: the bars it holds, what a prediction may see, and how names of records are resolved."""

from __future__ import annotations

import copy
import json

import pytest

from benchmarks import memory
from benchmarks.memory_model import page, spellings
from benchmarks.memory_model.configuration import configuration
from benchmarks.memory_model.predictions import config_predictions
from benchmarks.memory_model.questions import NotAnswerableError, ask
from tests.support.start_up import record, records


@pytest.fixture(scope="module")
def board():
    return memory.scoreboard(records())


def predictions(of):
    config = configuration(of)
    return [(p.quantity, p.predicted, p.low, p.high) for p in config_predictions(config, ask(config))]


# --- the bars -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "median", "ninetieth"),
    [
        ("budget", 0.0005, 0.005),
        ("weights", 0.008, 0.07),
        ("activation", 0.02, None),
        ("kv_bytes", 0.016, 0.14),
        ("kv_tokens", 0.016, 0.14),
        ("max_concurrency", 0.016, 0.14),
    ],
)
def test_errors_stay_below_their_bars(board, name, median, ninetieth):
    found = board["bars"][name]
    assert found["n"] >= 9
    assert found["median_ape"] <= median
    assert ninetieth is None or found["p90_ape"] <= ninetieth


def test_the_cache_as_a_share_of_the_budget(board):
    share = board["bars"]["kv_share_of_budget"]
    assert share["median"] <= 0.007
    assert share["p90"] <= 0.048


def test_ranges_hold_what_was_printed_and_are_narrow(board):
    ranges = board["bars"]["config_ranges"]
    assert ranges["coverage"] >= 0.85
    assert ranges["median_width"] <= 1.45


def test_buffers_of_llama_cpp_are_exact(board):
    assert board["bars"]["buffers_within_0.1_percent"] >= 0.95


def test_nearly_every_record_is_scored_and_the_rest_has_a_reason(board):
    assert board["scored"] >= 0.9 * board["n"]
    assert board["n"] == len(records())
    assert all(s["why"] for s in board["skipped"])


def test_the_board_is_strict_json(board):
    json.loads(json.dumps(board, allow_nan=False))


# --- what a prediction sees -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of", [r for r in records() if r["engine"] in ("vllm", "sglang", "llama.cpp", "trt-llm")], ids=lambda r: r["id"]
)
def test_printed_figures_never_enter_a_prediction(of):
    try:
        plain = predictions(of)
    except NotAnswerableError:
        pytest.skip("the record cannot be predicted")
    changed = copy.deepcopy(of)
    for block in ("reported", "derived"):
        for key, value in (changed.get(block) or {}).items():
            if isinstance(value, (int, float)):
                changed[block][key] = value * 3.7
    changed["id"] = "another"
    for key in ("quirks", "check", "check_basis", "source"):
        changed[key] = "printed elsewhere: KV cache 1.23 GiB, 99 tokens"
    assert predictions(changed) == plain


def test_a_record_without_figures_is_still_predicted():
    of = copy.deepcopy(record("v0-llama32-3b-a100"))
    of["reported"], of["derived"] = {}, {}
    assert predictions(of) == predictions(record("v0-llama32-3b-a100"))


def test_the_budget_mode_sees_the_printed_bytes_only():
    of = record("v0-llama32-3b-a100")
    found, _ = memory.scores(of)
    assert {s["quantity"] for s in found if s["mode"] == "budget"} == {
        "kv_tokens",
        "blocks",
        "max_concurrency",
        "kv_bytes_per_token",
    }
    changed = copy.deepcopy(of)
    changed["reported"] |= {"kv_tokens": 5, "weights_gib_per_gpu": 1.0, "max_concurrency": 7.0}
    again, _ = memory.scores(changed)
    for before, after in zip(found, again, strict=True):
        assert (before["quantity"], before["predicted"]) == (after["quantity"], after["predicted"])


# --- names ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("unsloth/qwen2.5-3b-instruct-unsloth-bnb-4bit", "qwen2.5-3b-instruct"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "meta-llama-3.1-70b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b"),
        ("Qwen3.6-35B-A3B NVFP4", "qwen3.5-35b-a3b"),
        ("nobody/Some-New-Model-13B", None),
        ("Qwen3-9B", None),  # never the nearest name
        (None, None),
    ],
)
def test_models_by_exact_spellings(text, identifier):
    found = spellings.model(text)
    assert (found and found.id) == identifier


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("NVIDIA A100-SXM4-40GB", ["a100-sxm4-40gb"]),
        ("NVIDIA GeForce RTX 3090 + NVIDIA GeForce RTX 4090", ["rtx-3090", "rtx-4090"]),
        ("AMD Instinct MI300X", ["mi300x"]),
        ("RTX 4090 (24 GB)", ["rtx-4090"]),
        ("NVIDIA GeForce RTX 5060 Ti 16GB", None),
        ("NVIDIA GeForce RTX 4095", None),
    ],
)
def test_devices_by_exact_spellings(text, identifiers):
    found = spellings.devices(text)
    assert (found and [d.id for d in found]) == identifiers


def test_an_unknown_model_falls_back_to_the_geometry_of_its_record():
    of = copy.deepcopy(record("v0-llama32-3b-a100"))
    of["model"] = "nobody/Some-New-Model-3B"
    config = configuration(of)
    asked = ask(config)
    assert not asked.listed
    found, _ = memory.scores(of)
    budget = [s for s in found if s["mode"] == "budget" and s["quantity"] == "kv_tokens"]
    assert abs(budget[0]["error"]) < 0.001


def test_what_gives_neither_name_nor_geometry_is_not_answered():
    of = copy.deepcopy(record("v0-llama32-3b-a100"))
    of["model"], of["naive"] = "nobody/Some-New-Model-3B", {}
    found, reasons = memory.scores(of)
    assert not found
    assert "not in the library" in reasons[0]


def test_every_spelling_names_something_of_the_library():
    import calc

    table = spellings.table()
    for kind, load in (("models", calc.load_model), ("devices", calc.load_hardware)):
        for name in table[kind].values():
            assert name == "unlisted" or load(name).profile.id


@pytest.mark.parametrize(
    "damage", ["gpu", "tp", "kv_dtype", "quantization", "engine_version", "max_model_len", "gpu_memory_utilization", "naive"]
)
def test_records_with_holes_are_answered(damage):
    for of in records()[::6]:
        holed = copy.deepcopy(of)
        holed[damage] = None
        memory.scores(holed)
        del holed[damage]
        memory.scores(holed)


# --- the page -------------------------------------------------------------------------------------------------------------------


def test_the_documentation_is_current(board):
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.section(board) in text, "stale: run python -m benchmarks.memory --write-docs"


def test_renewing_keeps_what_stands_around(board):
    once = page.renewed("# Accuracy\n\nbefore\n", board)
    assert once.startswith("# Accuracy\n\nbefore\n")
    assert page.renewed(once + "\nafter\n", board) == once + "\nafter\n"


def test_a_file_of_records_is_scored(tmp_path, capsys):
    import yaml

    path = tmp_path / "records.yaml"
    path.write_text(yaml.safe_dump([record("v0-llama32-3b-a100"), record("gemma4-12b-98k-q8")]), encoding="utf-8")
    assert memory.main(["--records", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n"], found["scored"]) == (2, 2)
