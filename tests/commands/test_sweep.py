"""``roofcast sweep`` at the command line: lists and ranges, formats, points that do not fit, and sweeps that are refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from calc.commands import lists
from calc.errors import UsageError
from tests.support.cli import answered, run

SMALL = ("sweep", "llama-3.1-8b,qwen3-8b", "l40s,h100-sxm5-80gb", "--batch-size", "1,8", "--context-len", "1k,8k")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_cross_product_in_order():
    found = rows(answered(*SMALL, "--kv-cache-dtype", "bf16,fp8", "--format", "csv").stdout)
    assert len(found) == 32
    assert [(r["model"], r["hardware"], r["kv_cache_dtype"], r["batch_size"], r["context_len"]) for r in found[:4]] == [
        ("llama-3.1-8b", "l40s", "bf16", b, c) for b in ("1", "8") for c in ("1024", "8192")
    ]


def test_a_row_is_the_estimate():
    (row,) = rows(answered("sweep", "llama-3.1-8b", "l40s", "-b", "4", "-i", "2k", "--output-len", "99", "-f", "csv").stdout)
    single = answered("estimate", "llama-3.1-8b", "l40s", "-b", "4", "-i", "2k", "--output-len", "99", "--json").json["results"]
    assert float(row["tpot_s_expected"]) == pytest.approx(single["request"]["tpot_s"]["expected"], rel=1e-12)
    assert float(row["prefill_s_high"]) == pytest.approx(single["prefill"]["time_s"]["high"], rel=1e-12)
    assert int(row["kv_tokens"]) == single["capacity"]["kv_tokens"]


def test_drafts_and_loads_are_columns_where_asked_for():
    base = ("sweep", "llama-3.1-8b", "h100-sxm5-80gb", "-f", "csv")
    assert not [k for k in rows(answered(*base).stdout)[0] if k.startswith(("load_", "speculative_"))]
    drafts = rows(answered(*base, "--speculative-tokens", "0,2", "--acceptance", "0.8", "--draft-model", "ngram").stdout)
    assert [float(r["speculative_speedup"]) > 1 for r in drafts] == [False, True]
    assert float(drafts[0]["speculative_tpot_s_expected"]) == float(drafts[0]["tpot_s_expected"])
    users = rows(answered(*base, "--concurrency", "1,8,100000").stdout)
    assert [r["carried"] for r in users] == ["True", "True", "False"]
    single = answered("estimate", "llama-3.1-8b", "h100-sxm5-80gb", "--concurrency", "8", "--json").json["results"]["load"]
    assert float(users[1]["load_tpot_s_expected"]) == single["tpot_s"]["expected"]
    assert users[2]["load_tpot_s_expected"] == ""
    rates = rows(answered(*base, "--request-rate", "0.5,4").stdout)
    assert [r["request_rate"] for r in rates] == ["0.5", "4.0"]


def test_what_is_to_be_told_of_the_deployments_is_told_once():
    told = answered("sweep", "llama-3.1-8b", "l40s,l4", "--batch-size", "1,2").stderr
    assert told.count("warning [engine_unseen]") == 1
    assert run("sweep", "llama-3.1-8b", "l40s", "--quiet").stderr == ""


def test_what_does_not_fit_is_a_row():
    found = rows(answered("sweep", "llama-3.1-70b", "l40s", "-tp", "1,3,8", "-f", "csv").stdout)
    assert [r["fits"] for r in found] == ["False", "False", "True"]
    assert found[0]["tpot_s_expected"] == ""
    assert "does not divide" in found[1]["note"]
    assert float(found[2]["tpot_s_expected"]) > 0


def test_json_lines_and_markdown_and_files(tmp_path: Path):
    lines = [json.loads(line) for line in answered(*SMALL, "-f", "jsonl").stdout.splitlines()]
    assert len(lines) == 16
    assert lines[0]["fits"] is True
    assert lines[0]["batch_size"] == 1
    assert answered(*SMALL, "-f", "markdown").stdout.count("\n|") >= 17
    target = tmp_path / "sweep.csv"
    assert run(*SMALL, "-o", str(target)).code == 0
    assert rows(target.read_text(encoding="utf-8"))[0].keys() == rows(answered(*SMALL, "-f", "csv").stdout)[0].keys()
    assert list(tmp_path.iterdir()) == [target]


def test_parquet_and_arrow(tmp_path: Path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for suffix in ("parquet", "arrow"):
        target = tmp_path / f"sweep.{suffix}"
        outcome = run("sweep", "llama-3.1-70b", "l40s,mi300a", "-tp", "1,3,8", "-b", "1..3", "-o", str(target))
        assert outcome.code == 0, outcome.stderr
        table = pq.read_table(target) if suffix == "parquet" else pa.ipc.open_file(str(target)).read_all()
        assert table.num_rows == 18
        assert table["fits"].to_pylist()[:3] == [False] * 3
        assert table["tpot_s_expected"].null_count > 0
        assert str(table.schema.field("batch_size").type) == "int64"


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path):
    (tmp_path / "pyarrow.py").write_text("raise ImportError\n", encoding="utf-8")
    from tests.support.cli import ROOT

    outcome = run("sweep", "llama-3.1-8b", "l40s", "-o", str(tmp_path / "x.parquet"), env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "pip install pyarrow" in outcome.stderr
    assert not (tmp_path / "x.parquet").exists()


def test_a_trillion_points_are_refused_before_any_work():
    outcome = run("sweep", "llama-3.1-8b", "l40s", "-b", "1..1m", "-i", "1..1m", "-f", "csv")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "1,099,511,627,776 points" in outcome.stderr
    assert "hint: narrow a range" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-b", "8..1"), "ends before it begins"),
        (("-b", "1,,2"), "empty value"),
        (("-b", "0..8:*2"), "at least 1"),
        (("-b", "1..8:*1"), "factor"),
        (("-o", "sweep.xlsx"), "no format is known"),
        (("-f", "cvs"), "did you mean csv"),
        (("-f", "parquet"), "name a file"),
        (("--concurrency", "1", "--request-rate", "2"), "contradict"),
        (("--request-rate", "0"), "above 0"),
        (("--request-rate", "-3"), "--request-rate"),
        (("--acceptance", "0.5"), "--speculative-tokens"),
        (("--speculative-tokens", "1", "--acceptance", "2"), "--acceptance"),
        (("-b", "1..4000", "-f", "table"), "too many for a table"),
        (("--kv-cache-dtype", "fp9"), "unknown KV cache format"),
        (("--kv-cache-dtype", "bf16,fp9"), "unknown KV cache format"),
        (("--engine", "vllm,vlm"), "unknown engine"),
        (("-tp", "abc"), "--tensor-parallel-size"),
        (("-tp", "1,abc"), "--tensor-parallel-size"),
        (("-tp", "4..1"), "ends before it begins"),
        (("--engine", "llama.cpp", "-ngl", "all,many"), "--gpu-layers"),
        (("--gpu-memory-utilization", "0.8,2"), "--gpu-memory-utilization"),
        (("--max-model-len", "1..1m"), "deployments"),
        (("-i", "1..200", "--output-len", "1..150", "--concurrency", "1..4"), "120,000 loads"),
    ],
)
def test_wrong_sweeps_say_what_to_do(words, message):
    outcome = run("sweep", "llama-3.1-8b", "l40s", *words)
    assert (outcome.code, outcome.stdout) == (2, ""), outcome.stderr
    assert message in outcome.stderr


@pytest.mark.parametrize(("models", "devices"), [("llama-3.1-8b,nosuchmodel", "l40s"), ("llama-3.1-8b", "l40s,nosuchdevice")])
def test_unknown_names_are_refused_before_the_first_row(models, devices):
    outcome = run("sweep", models, devices, "-f", "csv")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "nosuch" in outcome.stderr


def test_ranges_of_counts_of_the_deployment():
    found = rows(answered("sweep", "llama-3.1-8b", "l40s", "-tp", "1..4", "--max-model-len", "4k..16k:*2", "-f", "csv").stdout)
    assert [(r["tensor_parallel_size"], r["max_model_len"]) for r in found[:4]] == [
        ("1", "4096"), ("1", "8192"), ("1", "16384"), ("2", "4096"),
    ]  # fmt: skip
    assert [r["fits"] for r in found[::3]] == ["True", "True", "False", "True"]
    assert "does not divide" in found[6]["note"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,8,64", [1, 8, 64]),
        ("1..4", [1, 2, 3, 4]),
        ("1..512:*2", [1 << i for i in range(10)]),
        ("1k..4k:1k", [1024, 2048, 3072, 4096]),
        ("1..9:+4,5,7", [1, 5, 9, 7]),
        (" 2 .. 6 : 2 ", [2, 4, 6]),
    ],
)
def test_lists_and_ranges(text, found):
    assert list(lists.counts(text, "--batch-size")) == found


def test_a_range_of_too_many_values_is_refused():
    with pytest.raises(UsageError, match="values"):
        lists.counts("1,2..1024m", "--batch-size")
