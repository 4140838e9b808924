"""``roofcast capacity``: inverse questions, gates, shared prefixes, mixed lengths, options of single engines."""

from __future__ import annotations

import pytest

from calc.commands.lengths import read_trace
from calc.memory.capacity import mixed_concurrency
from calc.serving.load.memory import room
from tests.support.cli import answered, run_inside
from tests.support.memory import deploy

PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")


@pytest.fixture
def ask(capsys, monkeypatch):
    def asked(*arguments, command="capacity"):
        return run_inside(capsys, monkeypatch, command, *arguments)

    return asked


def results(outcome):
    assert outcome.code == 0, outcome.stderr
    return outcome.json["results"]


def test_what_would_do_for_so_many_requests(ask):
    found = results(ask(*PAIR, "--concurrency", "64", "--max-model-len", "16k", "--json"))
    assert found["concurrency_fits"] is False
    remedies = found["to_fit"]
    assert remedies["gpus"] >= 2
    assert remedies["kv_cache_dtype"] in (None, "fp8")
    page = ask(*PAIR, "--concurrency", "64", "--max-model-len", "16k")
    assert "64" in page.stdout


def test_the_answer_holds_when_tried(ask):
    found = results(ask(*PAIR, "--concurrency", "64", "--max-model-len", "16k", "--json"))["to_fit"]
    tried = ask(*PAIR, "--concurrency", "64", "--max-model-len", "16k", "-tp", str(found["tensor_parallel_size"]), "--json")
    assert results(tried)["concurrency_fits"] is True


@pytest.mark.parametrize(("wanted", "code"), [("8", 0), ("500", 1)])
def test_the_gate(ask, wanted, code):
    outcome = ask(*PAIR, "--concurrency", wanted, "--max-model-len", "16k", "--require-fit", "--json")
    assert outcome.code == code
    assert outcome.json["results"]["concurrency_fits"] is (code == 0)


@pytest.mark.parametrize(
    ("words", "wanted", "runs", "enough"),
    [
        (("--max-num-seqs", "8"), 32, 8, 32),
        ((), 2000, 1024, 2000),
        (("--engine", "llama.cpp", "--max-num-seqs", "8"), 30, 8, 30),
        (("--engine", "llama.cpp"), 300, 256, None),
    ],
    ids=str,
)
def test_requests_that_memory_holds_but_the_engine_does_not_run(ask, words, wanted, runs, enough):
    lengths = ("--max-model-len", "64", "--concurrency", str(wanted))
    outcome = ask(*PAIR, *words, *lengths, "--require-fit", "--json")
    assert outcome.code == 1
    found = outcome.json["results"]
    assert found["concurrency_fits"] is found["to_fit"]["fits"] is False
    assert found["to_fit"]["requests"] > wanted
    assert (found["to_fit"]["too_large"], found["to_fit"]["sequence_limit"]) == ("max_num_seqs", runs)
    assert found["to_fit"]["max_num_seqs"] == enough
    page = " ".join(ask(*PAIR, *words, *lengths).stdout.split())
    assert f"the engine runs at most {runs:,} at once" in page
    assert f"requests of 64 tokens, the engine runs at most {runs:,};" in page
    estimate = ask(*PAIR, *words, "-b", str(wanted), "--input-len", "60", "--output-len", "4", "--json", command="estimate")
    memory = estimate.json["results"]["memory"]
    assert (memory["too_large"], memory["largest_batch"], memory["max_num_seqs"]) == ("max_num_seqs", runs, enough)
    if enough:
        assert ask(*PAIR, *words[:2], "--max-num-seqs", str(enough), *lengths, "--require-fit").code == 0


def test_as_many_data_parallel_ranks_run_so_many_times_what_one_does(ask):
    wide = ("-dp", "8", "--enable-expert-parallel")
    split = ("deepseek-v3", "h200-sxm-141gb", *wide, "--max-num-seqs", "4", "--max-model-len", "1k")
    assert results(ask(*split, "--concurrency", "32", "--json"))["to_fit"]["too_large"] is None
    found = results(ask(*split, "--concurrency", "33", "--json"))["to_fit"]
    assert (found["too_large"], found["sequence_limit"], found["max_num_seqs"]) == ("max_num_seqs", 32, 5)
    estimate = ask(*split, "-b", "33", "--input-len", "1000", "--output-len", "24", "--json", command="estimate")
    assert estimate.json["results"]["memory"]["too_large"] == "max_num_seqs"


def test_a_shared_prefix_is_stored_once(ask):
    apart = results(ask(*PAIR, "--concurrency", "10", "--max-model-len", "16k", "--json"))["to_fit"]
    shared = results(ask(*PAIR, "--concurrency", "10", "--max-model-len", "16k", "--cached-len", "8k", "--json"))["to_fit"]
    assert shared["requests"] > 1.8 * apart["requests"]


def test_mixed_lengths(ask):
    found = results(ask(*PAIR, "--input-len", "p50=1k,p95=8k", "--output-len", "256", "--json"))["lengths"]
    assert 1000 < found["mean_input_tokens"] < 8000
    assert found["concurrency_mean"] > found["concurrency_peak"] > 1


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_requests_of_a_trace_are_held_as_a_plan_holds_them(ask, tmp_path, engine):
    trace = tmp_path / "trace.csv"
    trace.write_text("input,output,cached\n4000,20,512\n300,900,256\n", encoding="utf-8")
    found = results(ask(*PAIR, "--engine", engine, "--trace", str(trace), "--json"))["lengths"]
    requests = read_trace(str(trace), 0)
    held = deploy(*PAIR, engine).engine.capacity(deploy(*PAIR, engine).question())
    assert found["concurrency_mean"] == room(held, requests, conservative=False)
    assert found["concurrency_peak"] == mixed_concurrency(held, [(20 / 920, 4020), (900 / 920, 1200)], 256)
    assert found["concurrency_mean"] >= found["concurrency_peak"]


def test_what_memory_does_not_limit_is_said_so(ask):
    words = ("--engine", "llama.cpp", "-ngl", "0", "--concurrency", "4", "--input-len", "1k")
    assert "unbounded requests" in ask(*PAIR, *words).stdout
    found = results(ask(*PAIR, *words, "--json"))
    assert found["to_fit"]["requests"] is found["lengths"]["concurrency_mean"] is None


def test_a_budget_names_what_the_utilisation_is_a_share_of(ask):
    shares = {"vllm": "usable (x 0.5)", "sglang": "static (x 0.5 of what is free", "tensorrt-llm": "free after loading (x 0.5"}
    for engine, words in shares.items():
        assert words in " ".join(ask(*PAIR, "--engine", engine, "--gpu-memory-utilization", "0.5").stdout.split())


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("--no-async-scheduling",), ("async_scheduling", False)),
        (("--draft-layers", "1"), ("draft_layers", 1)),
        (("--engine", "llama.cpp", "--no-kv-offload"), ("kv_offload", False)),
        (("--engine", "tensorrt-llm", "--max-attention-window"), ("max_attention_window", True)),
    ],
    ids=str,
)
def test_options_of_single_engines_change_what_fits(ask, words, value):
    name, wanted = value
    engine = words[:2] if words[0] == "--engine" else ()
    pair = ("gpt-oss-20b", "h100-sxm5-80gb")
    found = ask(*pair, *words, "--json")
    assert found.json["inputs"][name] == wanted
    assert results(found)["kv_tokens"] != results(ask(*pair, *engine, "--json"))["kv_tokens"]


def test_unequal_devices(ask):
    found = ask("qwen2.5-14b-instruct", "rtx-3090", "--devices", "rtx-3090,rtx-4090", "--layer-split", "16,32", "--json")
    assert found.json["inputs"]["pipeline_parallel_size"] == 2
    assert found.json["inputs"]["devices"] == ["rtx-3090", "rtx-4090"]
    assert found.json["inputs"]["pipeline_layers"] == [16, 32]
    wrong = ask("qwen2.5-14b-instruct", "rtx-3090", "--devices", "rtx-3090,rtx-4090", "-pp", "3")
    assert wrong.code == 2
    assert "2 devices do not match 3" in wrong.stderr
    wrong = ask("qwen2.5-14b-instruct", "rtx-3090", "--devices", "rtx-4090", "--engine", "llama.cpp", "-tp", "2")
    assert wrong.code == 2
    assert "1 device does not match the 2" in wrong.stderr


def test_formats_of_keys_and_values_of_llama_cpp(ask):
    found = results(ask(*PAIR, "--engine", "llama.cpp", "-c", "8192", "--cache-type-k", "q8_0", "--cache-type-v", "q4_0", "--json"))
    printed = {f["name"]: f["value"] for f in found["printed"]}
    assert printed["kv_keys"] == 32 * 8192 * 1024 * 34 // 32
    assert printed["kv_values"] == 32 * 8192 * 1024 * 18 // 32


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--concurrency", "0"), "--concurrency"),
        (("--engine-generation", "v2"), "--engine-generation"),
        (("--mamba-cache-mode", "some"), "--mamba-cache-mode"),
        (("--layer-split", "1,x"), "--layer-split"),
        (("--max-loras", "x"), "--max-loras"),
        (("-c", "0"), "--ctx-size"),
        (("--swa-full-tokens-ratio", "x"), "--swa-full-tokens-ratio"),
        (("--engine-version", "fast"), "version"),
        (("--block-size", "20"), "refuse blocks of 20"),
        (("--gpu-memory-utilization", "1.5"), "utilization"),
        (("--enable-prefix-caching", "--no-enable-prefix-caching"), "contradict"),
    ],
)
def test_refusals(ask, arguments, said):
    outcome = ask(*PAIR, *arguments)
    assert outcome.code == 2
    assert said in outcome.stderr
    assert outcome.stdout == ""


def test_every_term_has_its_range_and_evidence():
    found = answered("capacity", *PAIR, "--json").json["results"]
    for term in found["terms"]:
        assert term.get("low", term["bytes"]) <= term["bytes"] <= term.get("high", term["bytes"])
        assert term["evidence"]
    assert found["max_concurrency_low"] <= found["max_concurrency"] <= found["max_concurrency_high"]


def test_a_default_engine_for_apple_devices(ask):
    found = ask("llama-3.1-8b", "apple-m4-max", "--json")
    assert found.json["inputs"]["engine"] == "llama.cpp"
    assert "memory_not_reported" in {w["code"] for w in found.json["warnings"]}
