"""The life of a request with drafts, in chunks, and what moves its cache; what would help a step."""

from __future__ import annotations

import pytest

from tests.commands.test_failures import refused
from tests.support.cli import answered, run, run_inside

PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")
DRAFTS = ("--speculative-tokens", "3", "--acceptance", "0.8", "--draft-model", "llama-3.2-1b")


def results(*arguments: str) -> dict:
    return answered(*arguments, "--json").json["results"]


def test_request_and_estimate_say_the_same_of_drafts():
    life, screen = results("request", *PAIR, *DRAFTS), results("estimate", *PAIR, *DRAFTS)
    found = life["speculation"]
    assert found == screen["request"]["speculation"]
    assert found["tokens_per_round"] == pytest.approx(2.952)
    assert found["speedup"] == pytest.approx(life["tpot_s"]["expected"] / found["tpot_s"]["expected"])
    assert found["e2e_s"]["expected"] == pytest.approx(life["ttft_s"]["expected"] + 255 * found["tpot_s"]["expected"])


def test_a_draft_model_is_among_the_inputs_and_the_profiles():
    found = answered("request", *PAIR, *DRAFTS, "--json").json
    assert found["inputs"]["acceptance"] == [0.8]
    assert found["inputs"]["draft_model"] == found["profiles"][2]["name"]
    assert found["inputs"]["draft_model"].startswith("llama-3.2-1b")


def test_what_does_not_fit_could_wait_in_host_memory():
    outcome = run("request", "llama-3.1-70b", "h100-sxm5-80gb", "--json")
    memory = outcome.json["results"]["memory"]
    assert outcome.code == 1
    assert memory["missing_bytes_per_gpu"] > 50e9
    assert memory["host_stream_s"] > 0.5
    assert 1000 < memory["host_hidden_tokens"] < 100_000
    assert outcome.json["results"]["kv_offload"] is None


def test_no_drafts_asked_for_none_shown():
    assert "speculation" not in results("request", *PAIR)
    assert "speculation" not in results("estimate", *PAIR)["request"]


def test_drafts_are_on_the_page():
    page = answered("estimate", *PAIR, *DRAFTS).stdout
    assert "TPOT, 3 drafts" in page
    assert "tokens a round" in page


def test_a_prompt_in_chunks():
    found = results("request", *PAIR, "--chunked", "-b", "9", "-i", "5000", "--max-num-batched-tokens", "1k")["chunked_prefill"]
    assert [c["new_tokens"] for c in found["chunks"]] == [1016, 1016, 1016, 1016, 936]
    assert found["running_decodes"] == 8
    assert found["mixed_itl_s"]["expected"] > found["decode_itl_s"]["expected"]
    assert "decodes alone" in answered("request", *PAIR, "--chunked", "-b", "9", "-i", "5000").stdout


def test_where_the_cache_goes():
    found = results("request", *PAIR, "-i", "8k")
    sent, kept = found["disaggregation"]["kv_transfer"], found["kv_offload"]
    assert sent["time_s"] == pytest.approx(8192 * 131_072 / sent["bandwidth_bytes_per_s"])
    assert sent["exposed_s"] == pytest.approx(sent["time_s"] / 32)
    assert kept["restore_s"]["low"] == pytest.approx(kept["bytes_per_rank"] / kept["bandwidth_bytes_per_s"])
    assert kept["restore_s"]["expected"] > kept["restore_s"]["low"]


def test_each_token_has_its_range_and_the_timeline_is_drawn(tmp_path):
    tokens = results("request", *PAIR, "--output-len", "32")["tokens"]
    ends = [tokens[k] for k in ("latency_floor_s", "latency_low_s", "latency_s", "latency_high_s")]
    assert all(a <= b <= c <= d for a, b, c, d in zip(*ends, strict=True))
    target = tmp_path / "life.svg"
    assert run("request", *PAIR, "-o", str(target)).code == 0
    drawn = target.read_text(encoding="utf-8")
    for words in ("first token", "Time between tokens", "Without a KV cache"):
        assert words in drawn
    assert "between two lines: floor to high end" in answered("request", *PAIR, "--plot").stdout
    refused_picture = run("request", "llama-3.1-70b", "h100-sxm5-80gb", "-o", str(target))
    assert (refused_picture.code, refused_picture.stdout) == (1, "")
    assert "nothing to draw" in refused_picture.stderr


def test_roofline_says_what_would_help():
    found = results("roofline", *PAIR, "-b", "8")["sensitivity"]
    assert {c["change"] for c in found["decode"]} == {"bandwidth", "compute", "launch", "kv_cache_format"}
    page = answered("roofline", *PAIR, "-b", "8").stdout
    assert "what would help" in page
    assert "fp32 scores" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--speculative-tokens", "2", "--acceptance", "1.5"), "--acceptance"),
        (("--speculative-tokens", "2", "--acceptance=-0.5"), "--acceptance"),
        (("--speculative-tokens", "2", "--acceptance", "0.5,nan"), "--acceptance"),
        (("--speculative-tokens", "2", "--acceptance", "0.5,,0.4"), "--acceptance"),
        (("--speculative-tokens", "2", "--acceptance", "0.5"), "no next-token layers"),
        (("--speculative-tokens", "2", "--draft-model", "ngram"), "--acceptance"),
        (("--acceptance", "0.5", "--draft-model", "ngram"), "--speculative-tokens"),
        (("--speculative-tokens", "2", "--acceptance", "0.5", "--draft-model", "no-such-model"), "no-such-model"),
        (("--chunked", "-b", "65", "--max-num-batched-tokens", "64"), "no room"),
        (("--chunked", "-i", "0"), "--input-len"),
    ],
)
def test_what_cannot_be_is_refused(capsys, monkeypatch, arguments, words):
    assert words in refused(run_inside(capsys, monkeypatch, "request", *PAIR, *arguments), 2)
