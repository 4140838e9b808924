"""Deployments on several devices as people and scripts see them: JSON, pages, explanations, refusals."""

from __future__ import annotations

import json

import pytest

from tests.support.cli import run_inside

WIDE = ("deepseek-v3", "h200-sxm-141gb", "-dp", "8", "--enable-expert-parallel")


@pytest.fixture
def answered(capsys, monkeypatch):
    def answer(*arguments: str) -> str:
        outcome = run_inside(capsys, monkeypatch, *arguments)
        assert outcome.code == 0, outcome.stderr
        assert "Traceback" not in outcome.stderr
        return outcome.stdout

    return answer


def test_sums_over_the_ranks_and_the_mean_rank_beside_them(answered):
    step = json.loads(answered("roofline", *WIDE, "-b", "250", "--phase", "decode", "--json"))["results"]["decode"]
    for figure in ("flops", "weight_bytes", "kv_read_bytes", "network_bytes"):
        assert step["per_rank"][figure] * 8 == pytest.approx(step[figure])
        assert sum(o[figure] * o["count"] for o in step["operators"]) == pytest.approx(step[figure])
    assert step["flow"]["requests_of_fullest_rank"] == 32
    assert step["flow"]["hidden_s"]["expected"] == 0
    sent = {o["name"]: o for o in step["operators"] if o["name"] in ("dispatch", "combine")}
    assert sent["dispatch"]["shape"]["bytes_per_copy"] == 7392
    assert sent["combine"]["shape"]["bytes_per_copy"] == 14336
    assert sent["dispatch"]["detail"]["ranks_per_token"] == pytest.approx(5.2947, rel=1e-4)
    assert not any(o["name"] == "all_reduce" for o in step["operators"])


def test_calls_of_a_pipeline_are_those_of_all_micro_batches(answered):
    split = ("roofline", "llama-3.1-70b", "h100-sxm5-80gb", "-pp", "4", "-b", "30", "--phase", "decode", "--json")
    step = json.loads(answered(*split))["results"]["decode"]
    assert step["flow"]["micro_batches"] == 4
    assert {o["count"] for o in step["operators"] if o["name"] == "o_proj"} == {320}
    assert sum(o["flops"] * o["count"] for o in step["operators"]) == pytest.approx(step["flops"])
    assert step["tokens_per_s"]["expected"] == pytest.approx(30 / step["time_s"]["expected"])


@pytest.mark.parametrize(
    "split",
    [
        ("-dp", "8", "--enable-expert-parallel"),
        ("-tp", "8", "-dp", "4", "--enable-expert-parallel", "--overlap", "0.5"),
        ("-tp", "4", "-pp", "2"),
        ("-tp", "8", "-dcp", "8"),
        ("-dp", "8", "-pp", "3", "--enable-expert-parallel", "--overlap", "1"),
    ],
)
def test_explanations_add_up(answered, split):
    page = answered("estimate", "deepseek-v3", "h200-sxm-141gb", *split, "-b", "61", "--explain")
    said = {
        "requests of the fullest rank": "--enable-expert-parallel" in split,
        "one call of dispatch": "--enable-expert-parallel" in split,
        "stages at work at once": "-pp" in split,
        "messages behind compute": "--enable-expert-parallel" in split,
    }
    for text, expected in said.items():
        assert (text in page) is expected, text


def test_capacity_is_that_of_all_ranks(answered):
    wide = json.loads(answered("capacity", *WIDE, "--max-model-len", "8k", "--json"))["results"]
    assert wide["max_concurrency"] == pytest.approx(8 * wide["kv_tokens"] / 8192, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (("-dp", "6", "--enable-expert-parallel"), "256 experts", "1, 2, 4, 8"),
        (("-tp", "8", "--overlap", "2"), "--overlap", ""),
        (("-tp", "8", "--overlap", "much"), "--overlap", ""),
        (("-dp", "2", "--enable-expert-parallel", "--engine", "llama.cpp"), "llama.cpp", "vllm"),
    ],
)
def test_refusals_name_the_way_out(capsys, monkeypatch, arguments, said, hint):
    outcome = run_inside(capsys, monkeypatch, "estimate", "deepseek-v3", "h200-sxm-141gb", *arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert said in outcome.stderr.splitlines()[0]
    assert hint in outcome.stderr
    assert "Traceback" not in outcome.stderr
