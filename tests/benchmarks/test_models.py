"""The scoreboard of models: its JSON, its two kinds of table, its exit code."""

from __future__ import annotations

import json

import pytest

from benchmarks import models
from benchmarks.models import CONFIGS, TABLE


def printed(capsys, *arguments):
    code = models.main(list(arguments))
    return code, json.loads(capsys.readouterr().out)


def test_contract(capsys):
    code, board = printed(capsys, "--check")
    assert code == 0
    assert {"n", "scored", "skipped", "by_group", "overall", "records"} <= set(board)
    assert {"n", "median_ape", "p90_ape", "bias", "coverage", "median_width", "right", "exact"} <= set(board["overall"])
    assert {"id", "quantity", "predicted", "low", "high", "reported", "error"} <= set(board["records"][0])


@pytest.fixture
def lines(tmp_path):
    def write(**totals):
        row = {"hf_id": "a/b", "config_file": "openai-community__gpt2.json", "total": 137022720, "architecture_total": 124439808}
        path = tmp_path / "table.jsonl"
        path.write_text(json.dumps({**row, **totals}) + "\n")
        return path

    return write


def test_json_lines_and_the_nearer_total(capsys, lines):
    code, board = printed(capsys, "--configs", str(CONFIGS), "--table", str(lines()), "--check")
    assert (code, board["n"], board["overall"]["exact_rows"]) == (0, 1, 1)


def test_rows_off_by_more_than_half_a_percent_are_wrong(capsys, lines):
    table = lines(total=125200000, architecture_total=125200000)
    code, board = printed(capsys, "--table", str(table), "--check")
    assert code == 1
    assert board["overall"]["right"] == 0
    table = lines(total=124500000, architecture_total=124500000)
    code, board = printed(capsys, "--table", str(table), "--check")
    assert (board["overall"]["right"], board["overall"]["exact"], code) == (1, 0, 1)


def test_what_cannot_be_imported_is_listed_and_counts(capsys, lines):
    code, board = printed(capsys, "--table", str(lines(config_file="none.json")), "--check")
    assert code == 1
    assert board["skipped"][0]["id"] == "a/b"
    assert board["n"] == 1


def test_table_is_yaml_with_both_totals():
    assert all(row["architecture_total"] for row in models.read_table(TABLE))
