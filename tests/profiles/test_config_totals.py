"""Parameters of imported configs: published checkpoints, and models that another implementation builds from the same keys."""

from __future__ import annotations

import json

import pytest

from benchmarks.models import BARS, CONFIGS, TABLE, read_table, scoreboard
from tests.support import configs

VARIATIONS = json.loads((configs.DATA / "config_variations.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def board():
    return scoreboard(CONFIGS, TABLE)


def test_every_shared_config_is_imported(board):
    assert board["skipped"] == []
    assert board["n"] == len(list(CONFIGS.glob("*.json"))) == len(read_table(TABLE))


def test_totals_meet_the_bars(board):
    wrong = [r for r in board["records"] if r["quantity"] == "parameters" and not r["exact"]]
    assert board["overall"]["right"] >= BARS["right"], wrong
    assert board["overall"]["exact"] >= BARS["exact"], wrong


def test_cache_state_and_active_parameters_are_the_recorded_ones(board):
    assert [r for r in board["records"] if r["quantity"] != "parameters" and r["error"]] == []


@pytest.mark.parametrize("row", VARIATIONS, ids=lambda row: row["name"])
def test_variation_of_a_class(row):
    # Totals of the models that transformers 5.24 builds from these configs on the meta device.
    counted = configs.parameters(row["config"])
    assert counted.total - counted.by_part.get("next_token_layers", 0) == row["parameters"]
