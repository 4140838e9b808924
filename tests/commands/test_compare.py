"""``roofcast compare``: both sides as single estimates give them, ratios, what moved most, and sides that cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cli import ROOT, answered, run

A, B = "llama-3.1-70b h100-sxm5-80gb -tp 4", "llama-3.1-70b h200-sxm-141gb -tp 2"


def test_both_sides_are_their_estimates():
    document = answered("compare", A, B, "--batch-size", "8", "--json").json
    assert document["schema"] == "roofcast.compare/1"
    assert document["inputs"]["one"]["tensor_parallel_size"] == 4
    assert document["inputs"]["two"]["hardware"] == "h200-sxm-141gb"
    pairs = {p["name"]: p for p in document["results"]["pairs"]}
    for side, words in (("one", A), ("two", B)):
        single = answered("estimate", *words.split(), "--batch-size", "8", "--json").json["results"]
        assert pairs["TPOT"][side] == single["request"]["tpot_s"]["expected"]
        assert pairs["TTFT"][side] == single["request"]["ttft_s"]["expected"]
        assert pairs["decode work"][side] == single["decode"]["flops"]
        assert pairs["weights bytes per gpu"][side] == single["capacity"]["weights_bytes_per_gpu"]
    for pair in pairs.values():
        assert pair["ratio"] == pytest.approx(pair["two"] / pair["one"])


def test_what_moved_most_is_an_operator_and_a_term():
    moved = {m["where"]: m for m in answered("compare", A, B, "--json").json["results"]["moved_most"]}
    assert moved.keys() == {"prefill", "decode", "memory"}
    step = answered("roofline", *A.split(), "--phase", "decode", "--json").json["results"]["decode"]
    assert moved["decode"]["name"] in {o["name"] for o in step["operators"]}
    assert moved["memory"]["name"] == "weights"
    assert moved["memory"]["two"] == pytest.approx(2 * moved["memory"]["one"], rel=0.01)


def test_formats_of_one_deployment():
    found = answered("compare", "llama-3.1-8b l40s", "llama-3.1-8b l40s --kv-cache-dtype fp8", "--json").json["results"]
    pairs = {p["name"]: p["ratio"] for p in found["pairs"]}
    assert pairs["kv bytes per token per gpu"] == 0.5
    assert pairs["room for kv cache per gpu"] == pytest.approx(1.0, rel=0.01)  # the room is the same, whatever fills it
    assert pairs["decode work"] == 1.0


def test_each_pair_has_its_unit_and_nothing_moves_between_equals():
    results = answered("compare", A, A, "--json").json["results"]
    units = {p["name"]: p["unit"] for p in results["pairs"]}
    assert (units["TTFT"], units["decode traffic"], units["weights bytes per gpu"]) == ("s", "bytes", "bytes")
    assert (units["output tokens/s"], units["decode intensity"], units["max concurrency"]) == ("tokens/s", "FLOP/byte", "requests")
    assert results["moved_most"] == []


def test_table_and_csv():
    shown = answered("compare", A, B).stdout
    for words in ("A: ", "B: ", "B / A", "moved most in decode"):
        assert words in shown
    assert answered("compare", A, B, "--format", "csv").stdout.startswith("name,unit,one,two,ratio\n")


def test_a_side_that_does_not_fit_is_answered_and_fails():
    outcome = run("compare", "llama-3.1-70b l40s", B, "--json")
    assert outcome.code == 1
    pairs = {p["name"]: p for p in outcome.json["results"]["pairs"]}
    assert pairs["TPOT"]["one"] is None
    assert pairs["TPOT"]["ratio"] is None
    assert pairs["decode work"]["ratio"] > 0


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("llama-3.1-70b", "HARDWARE"),
        ("llama-3.1-70b h100-sxm5-80gb --tensor-paralel-size 4", "No such option"),
        ("llama-3.1-70b h100-sxm5-80g", "did you mean h100-sxm5-80gb"),
        ("llama-3.1-70b 'h100-sxm5-80gb", "cannot read"),
        ("llama-3.1-70b h100-sxm5-80gb --json", "No such option"),
        ("llama-3.1-70b h100-sxm5-80gb -o a.json", "No such option"),
        ("llama-3.1-70b h100-sxm5-80gb --explain", "No such option"),
        ("llama-3.1-70b h100-sxm5-80gb --help", "No such option"),
    ],
)
def test_a_side_that_cannot_be_read(side, message):
    outcome = run("compare", side, B)
    assert (outcome.code, outcome.stdout) == (2, ""), outcome.stderr
    assert message in outcome.stderr


def test_a_side_takes_profiles_of_its_own(tmp_path: Path):
    device = (ROOT / "hardware_profiles" / "nvidia" / "l40s.yaml").read_text(encoding="utf-8")
    folder = tmp_path / "hardware_profiles"
    folder.mkdir()
    changed = re.sub(r"(?m)^(memory_bandwidth_gb_per_s:) .*$", r"\1 1728", device)
    (folder / "l40s.yaml").write_text(changed, encoding="utf-8")
    outcome = run("compare", "llama-3.1-8b l40s", f"llama-3.1-8b l40s --profiles-dir '{tmp_path}'", "--json")
    assert outcome.code == 0, outcome.stderr
    assert {p["name"]: p for p in outcome.json["results"]["pairs"]}["decode floor"]["ratio"] == pytest.approx(0.5, rel=0.02)
    missing = run("compare", "llama-3.1-8b l40s --profiles-dir /nonexistent", "llama-3.1-8b l40s")
    assert (missing.code, missing.stdout) == (3, "")
