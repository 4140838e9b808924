"""The shipped models: each loads, counts to what it records, and is found under the names people use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.models import CONFIGS, TABLE, cache_figures, read_table
from calc.operators.parameters import count_parameters
from calc.profiles import catalog, reader
from calc.profiles.importers.hf_config import import_folder_or_file
from calc.profiles.model import ModelProfile

ROOT = catalog.bundled_folder("model")
PATHS = [p for p in catalog.profile_files(ROOT) if p.parent.name != "roofcast"]


def load(path) -> ModelProfile:
    return catalog.load_file(path, "model").profile


@pytest.fixture(scope="module")
def models():
    return {path: load(path) for path in PATHS}


def test_there_is_one_for_every_shared_config(models):
    rows = read_table(TABLE)
    assert {m.hub_id for m in models.values()} >= {row["hf_id"] for row in rows}
    assert len(models) >= 178


def test_file_names_are_ids_and_folders_organisations(models):
    for path, model in models.items():
        organisation, repository = str(model.hub_id).split("/")
        assert path.stem == model.id == repository.lower()
        assert path.parent.name == organisation.lower()
    assert len({m.id for m in models.values()}) == len(models)


def test_totals_are_the_recorded_ones_or_explained(models):
    for path, model in models.items():
        total, facts = count_parameters(model).total, model.parameters
        beyond = sum(entry.elements for entry in facts.stored_beyond_architecture)
        if facts.total is not None and model.id != "deepseek-v3.1-nvfp4":  # which of its modules are packed is not known
            assert abs(total + beyond - facts.total) <= 1e-6 * facts.total, path


def test_cache_slopes_are_the_recorded_ones(models):
    for path, model in models.items():
        recorded = model.parameters.kv_bytes_per_token
        assert recorded is None or cache_figures(model)["kv_bytes_per_token"] == recorded, path


def test_importing_the_config_again_gives_the_same_structure(models):
    by_hub_id = {m.hub_id: m for m in models.values()}
    for row in read_table(TABLE):
        imported, _ = import_folder_or_file(CONFIGS / row["config_file"])
        shipped = by_hub_id[row["hf_id"]]
        for name in (
            "hidden_size",
            "vocab_size",
            "layer_kinds",
            "stack",
            "encoder",
            "next_token_layers",
            "towers",
            "extras",
            "storage",
        ):
            assert getattr(imported, name) == getattr(shipped, name), (row["hf_id"], name)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("llama-3.1-8b", "meta-llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama-3.1-8b"),
        ("llama-3.1-70b-instruct", "meta-llama-3.1-70b"),
        ("mistral-7b-instruct", "mistral-7b-instruct-v0.3"),
        ("llama-3-8b", "meta-llama-3-8b-instruct"),
        ("llama-2-70b", "llama-2-70b-chat-hf"),
        ("qwen2.5-7b", "qwen2.5-7b-instruct"),
        ("deepseek-v3", "deepseek-v3"),
        ("mixtral-8x7b-v0.1", "mixtral-8x7b-v0.1"),
        ("mixtral-8x7b", "mixtral-8x7b-v0.1"),
        ("gemma-3-27b-it", "gemma-3-27b-it"),
        ("gemma-3-27b", "gemma-3-27b-it"),
        ("qwen3-next-80b-a3b-instruct", "qwen3-next-80b-a3b-instruct"),
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("command-r", "c4ai-command-r-v01"),
        ("gpt-2", "gpt2"),
    ],
)
def test_names_people_use(name, identifier):
    assert catalog.find(name, "model")[0].id == identifier


def test_profiles_say_where_they_come_from(models):
    for path, model in models.items():
        assert model.sources, path
        assert all(source.url.startswith("https://") and source.date for source in model.sources), path
        assert path.read_text(encoding="utf-8").startswith("# yaml-language-server:"), path


def test_the_importer_needs_neither_arrays_nor_yaml():
    code = (
        "import sys; from pathlib import Path; from calc.profiles.importers.hf_config import import_folder_or_file as f;"
        f"f(Path({str(next(iter(sorted(CONFIGS.glob('*.json')))))!r}));"
        "print([m for m in ('numpy', 'torch', 'yaml', 'rich') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_profiles_fit_the_reader_bounds():
    for path in PATHS:
        assert path.stat().st_size < 64_000 < reader.MAX_FILE_BYTES
