"""``roofcast plan`` at the command line: the answer, the launch command alone, no answer, and every way to ask wrongly."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path

import pytest

from tests.support.cli import answered, run

ASK = ("plan", "llama-3.1-8b", "--hardware", "l40s,h100-sxm5-80gb")
GOAL = (*ASK, "-i", "1024", "--output-len", "256", "--tpot-slo", "30ms", "--ttft-slo", "1s", "--request-rate", "2")


def test_answer_names_deployment_limits_and_command():
    shown = answered(*GOAL, "--tpot-slo", "15ms").stdout  # less than the weights take to cross the memory of an L40S
    for words in ("vllm serve meta-llama/", "USD/h", "TTFT at", "limited by", "Why the next cheaper ones fail", "USD/Mtok"):
        assert words in shown, words


def test_json_holds_answers_front_and_reasons():
    document = answered(*GOAL, "--json").json
    assert document["schema"] == "roofcast.plan/1"
    assert document["inputs"]["tpot_s"] == 0.03
    assert {p["kind"] for p in document["profiles"]} == {"model", "hardware"}
    found = document["results"]
    assert found["meets"] is True
    best = found["answers"][0]
    assert best["usd_per_hour"] == min(a["usd_per_hour"] for a in found["answers"])
    assert best["gpus"] == best["replicas"] * best["tensor_parallel_size"] * best["pipeline_parallel_size"]
    assert best["ttft_s"]["floor"] <= best["ttft_s"]["low"] <= best["ttft_s"]["expected"] <= best["ttft_s"]["high"]
    assert shlex.split(best["launch"])[:2] == ["vllm", "serve"]
    assert all(f["usd_per_hour"] < best["usd_per_hour"] and f["fails"] for f in found["next_cheaper"])
    front = found["front"]
    assert [p["tpot_s"] for p in front] == sorted(p["tpot_s"] for p in front)
    costs = [p["usd_per_million_output_tokens"] for p in front]
    assert costs == sorted(costs, reverse=True)


def test_csv_is_one_row_an_answer():
    rows = list(csv.DictReader(io.StringIO(answered(*GOAL, "--format", "csv", "--top", "3").stdout)))
    assert len(rows) == 3
    assert rows[0]["hardware"] in ("l40s", "h100-sxm5-80gb")


def test_engine_args_prints_only_the_command():
    shown = answered(*GOAL, "--engine-args").stdout
    assert shown.count("\n") == 1
    assert shlex.split(shown)[:2] == ["vllm", "serve"]


@pytest.mark.parametrize(
    ("engine", "start"),
    [("sglang", "python -m sglang.launch_server"), ("tensorrt-llm", "trtllm-serve"), ("llama.cpp", "llama-server")],
)
def test_each_engine_speaks_its_own_words(engine, start):
    assert answered(*ASK, "--engine", engine, "--engine-args").stdout.startswith(start)


def test_what_a_command_cannot_say_goes_to_the_other_stream():
    outcome = answered(*ASK, "--engine", "llama.cpp", "--engine-args")
    assert outcome.stdout.count("\n") == 1
    assert "stands for your GGUF file" in outcome.stderr


@pytest.mark.parametrize("output", ["1", "2", "50"])
def test_loads_without_a_latency_to_meet(output):
    ask = ("plan", "llama-3.1-8b", "--hardware", "h100-sxm5-80gb", "-i", "1k", "--output-len", output, "--request-rate", "1")
    found = answered(*ask, "--json").json["results"]
    assert found["meets"]
    assert all(p["ttft_s"] is not None for p in found["front"])
    assert "1 GPU" in answered(*ask).stdout


def test_figures_stand_at_the_stated_rate():
    ask = ("plan", "llama-3.1-8b", "--hardware", "h100-sxm5-80gb", "-i", "1k", "--output-len", "256", "--request-rate", "0.3")
    best = answered(*ask, "--json").json["results"]["answers"][0]
    assert best["in_flight_per_replica"] == pytest.approx(0.3 * 256 * best["tpot_s"]["expected"], rel=1e-5)


def test_nothing_need_be_left_free():
    for none in ("0", "0.00", "0%"):
        assert answered(*ASK, "--headroom", none, "--json").json["inputs"]["headroom"] == 0
    assert answered(*ASK, "--json").json["inputs"]["headroom"] == 0.2


def test_limits_that_are_tried_are_named():
    rows = answered(*ASK, "--max-num-batched-tokens", "2k,8k", "--json").json["results"]["answers"]
    assert {r["max_num_batched_tokens"] for r in rows[:2]} == {2048, 8192}
    assert "2,048 tokens a step" in answered(*ASK, "--max-num-batched-tokens", "2k,8k").stdout


def test_drafts_are_tried_named_and_started():
    drafts = (
        "--speculative-tokens",
        "0,3",
        "--acceptance",
        "0.9",
        "--draft-model",
        "ngram",
        "--minimise",
        "tpot",
        "--max-gpus",
        "2",
    )
    document = answered(*ASK, *drafts, "--json").json
    best = document["results"]["answers"][0]
    assert best["speculative_tokens"] == 3
    assert "num_speculative_tokens" in best["launch"]
    assert (document["inputs"]["acceptance"], document["inputs"]["draft_model"]) == ([0.9], "ngram")
    assert "3 drafts" in answered(*ASK, *drafts).stdout


def test_prefill_and_decode_apart():
    ask = ("plan", "llama-3.1-8b", "--hardware", "h100-sxm5-80gb", "-i", "4k", "--request-rate", "20", "--tpot-slo", "20ms")
    found = answered(*ask, "--disaggregated", "--json").json["results"]
    (best,) = found["disaggregated"]
    assert best["gpus"] == best["prefill"]["gpus"] + best["decode"]["gpus"]
    assert best["kv_transfer"]["exposed_s"] <= best["kv_transfer"]["time_s"]
    assert best["tpot_s"]["expected"] <= 0.02
    shown = answered(*ask, "--disaggregated", "--explain").stdout
    assert "prefill per decode replica" in shown
    assert "Prefill and decode apart" in shown
    assert "disaggregated" not in answered(*ask, "--json").json["results"]


def test_more_replicas_than_users_answer_nothing_more():
    ask = (
        "plan",
        "llama-3.1-8b",
        "--hardware",
        "h100-sxm5-80gb",
        "--concurrency",
        "3",
        "--maximise",
        "throughput",
        "--max-gpus",
        "8",
    )
    answers = answered(*ask, "-tp", "1,2", "-pp", "1", "--json").json["results"]["answers"]
    assert [(a["replicas"], a["tensor_parallel_size"]) for a in answers] == [(3, 2), (3, 1)]
    for found in answers:  # each user gets a token a TPOT
        assert found["output_tokens_per_s"] < 3 / found["tpot_s"]["expected"]


def test_a_prompt_of_one_token_is_bound_like_any_step():
    short = ("plan", "llama-3.1-8b", "--hardware", "h100-sxm5-80gb", "--request-rate", "1", "-i", "1", "--output-len", "1")
    best = answered(*short, "--json").json["results"]["answers"][0]
    assert (best["prefill_bound"], best["decode_bound"]) == ("memory", "memory")


def test_a_request_longer_than_the_model_takes_is_told():
    """The launch command would be refused."""
    ask = ("plan", "llama-2-7b", "--hardware", "h100-sxm5-80gb", "--output-len", "96", "--json")
    told = {n: {w["code"] for w in answered(*ask, "-i", n).json["warnings"]} for n in ("4000", "4001")}
    assert "context_beyond_model" not in told["4000"]
    assert "context_beyond_model" in told["4001"]


def test_nothing_meets_it():
    outcome = run(*ASK, "--tpot-slo", "1us", "--ttft-slo", "1s", "--json")
    assert outcome.code == 1
    found = outcome.json["results"]
    assert found["answers"] == []
    assert found["nearest_misses"]
    (give,) = [c for c in found["would_have_to_give"] if c["objective"] == "tpot_s"]
    assert give["needed"] > 1e-6
    table = run(*ASK, "--tpot-slo", "1us", "--ttft-slo", "1s")
    assert table.code == 1
    assert "--tpot-slo" in table.stdout
    silent = run(*ASK, "--tpot-slo", "1us", "--engine-args")
    assert (silent.code, silent.stdout) == (1, "")
    assert "No deployment meets" in silent.stderr
    assert "none meets them with up to 64 GPUs" in silent.stderr


def test_percentiles_trace_and_cached_prompts(tmp_path: Path):
    spread = answered(*ASK, "-i", "p50=1k,p95=8k", "--output-len", "p50=128,p95=512", "--request-rate", "1", "--json").json
    assert spread["inputs"]["judged_request"] == {"input_len": 8192, "output_len": 512, "cached_len": 0}
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,input,output\n" + "".join(f"{i * 0.5},{900 + i},{100 + i}\n" for i in range(100)), encoding="utf-8")
    recorded = answered(*ASK, "--trace", str(trace), "--json").json
    assert recorded["inputs"]["request_rate"] == 2.0
    plain, cached = (answered(*GOAL, *more, "--json").json["results"]["answers"][0] for more in ((), ("--cached-len", "1000")))
    assert cached["usd_per_hour"] <= plain["usd_per_hour"]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("no output", "input,arrival\n1,2\n", ":1: no column 'output'"),
        ("text", "input,output\n10,ten\n", ":2: output"),
        ("negative", "input,output\n10,5\n-3,4\n", ":3: input"),
        ("moment", "input,output,arrival\n10,5,soon\n", ":2: arrival"),
        ("never", "input,output,arrival\n10,5,0\n10,5,inf\n", ":3: arrival"),
        ("no moment", "input,output,arrival\n10,5,nan\n10,5,1\n", ":2: arrival"),
        ("far too late", "input,output,arrival\n10,5,1e999\n", ":2: arrival"),
        ("empty", "input,output\n", "holds no requests"),
    ],
)
def test_a_broken_trace_is_named_by_line(tmp_path: Path, name: str, content: str, place: str):
    trace = tmp_path / "trace.csv"
    trace.write_text(content, encoding="utf-8")
    outcome = run(*ASK, "--trace", str(trace))
    assert (outcome.code, outcome.stdout) == (3, ""), outcome.stderr
    assert place in outcome.stderr
    assert "hint:" in outcome.stderr or name != "empty"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "llama-3.1-8b"), "--hardware"),
        ((*ASK, "--request-rate", "2", "--concurrency", "4"), "contradict"),
        ((*ASK, "--minimise", "cost", "--maximise", "throughput"), "contradict"),
        ((*ASK, "--minimise", "costs"), "did you mean cost"),
        ((*ASK, "--maximise", "cost"), "throughput"),
        ((*ASK, "--price", "h100-sxm5-80gb"), "names no amount"),
        ((*ASK, "--price", "h100=2"), "not among --hardware"),
        ((*ASK, "--request-rate", "0"), "above 0"),
        ((*ASK, "-i", "p50=4k,p95=1k"), "shorter"),
        ((*ASK, "-i", "q50=4k"), "no percentile"),
        ((*ASK, "--headroom", "1.5"), "--headroom"),
        ((*ASK, "--disaggregated"), "--disaggregated needs --request-rate"),
        ((*ASK, "--speculative-tokens", "2"), "--speculative-tokens needs --acceptance"),
        ((*ASK, "--acceptance", "0.5"), "--acceptance needs --speculative-tokens"),
        ((*ASK, "--speculative-tokens", "2", "--acceptance", "1.5"), "--acceptance"),
        ((*ASK, "--speculative-tokens", "2", "--acceptance", "0.5"), "no next-token layers"),
        ((*ASK, "-dp", "4"), "no experts"),
        (("plan", "gpt-oss-120b", "--hardware", "h100-sxm5-80gb", "-dp", "7"), "128 experts cannot be dealt out evenly to 7 ranks"),
        ((*ASK, "--request-rate", "-1"), "--request-rate"),
        ((*ASK, "-i", "0"), "--input-len"),
        ((*ASK, "--cpu-offload-gb", "500"), "exceeds"),
        ((*ASK, "--engine", "llama.cpp", "--n-gpu-layers", "4"), "--host-memory-bandwidth"),
        ((*ASK, "--max-model-len", "100"), "--max-model-len"),
        (("plan", "llama-3.1-8b", "--hardware", "mi300a"), "no price is known"),
        ((*ASK, "--ttft-slo", "0"), "--ttft-slo"),
        ((*ASK, "--tpot-slo", "0ms"), "--tpot-slo"),
        ((*ASK, "--price", "h100-sxm5-80gb=0"), "--price"),
        ((*ASK, "--engine", "transformers", "--engine-args"), "no limit of requests"),
        ((*ASK, "--request-rate", "1", "--disaggregated", "--output-len", "1"), "only token"),
        (("plan", "llama-3.1-8b", "--hardware", "h200"), "unknown hardware"),
    ],
)
def test_wrong_questions_say_what_to_do(words, message):
    outcome = run(*words)
    assert (outcome.code, outcome.stdout) == (2, ""), outcome.stderr
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_unknown_prices_warn_and_leave_the_rest():
    outcome = answered("plan", "llama-3.1-8b", "--hardware", "l40s,mi300a", "--json")
    assert "price_unknown" in [w["code"] for w in outcome.json["warnings"]]
    both = answered("plan", "llama-3.1-8b", "--hardware", "l40s,mi300a", "--price", "mi300a=0.01", "--json").json["results"]
    assert both["answers"][0]["hardware"] == "mi300a"


def test_all_devices_with_a_price_can_be_asked_for():
    from calc.commands.plan import _devices

    named = _devices(["rtx-4090", "priced", "l40s"], None)
    assert named[0] == "rtx-4090"
    assert len(named) == len(set(named)) > 10
    assert "l40s" in named
    assert "hardware priced" in run("plan", "llama-3.1-8b").stderr
