"""``roofcast reconcile``: start-up texts against the prediction, what explains a gap, overrides, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

import calc
from calc.memory.engines.log_rules import Printed
from calc.memory.engines.logs import StartUpLog
from calc.serving.deployment import DeploymentOptions
from calc.serving.reconcile import reconcile
from tests.support.cli import ROOT, environment, run, run_inside
from tests.support.memory import GIB
from tests.support.start_up import record, records, start_up

LLAMA_LOG = """\
INFO 06-07 12:34:50 [llm_engine.py:240] Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B', \
dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, kv_cache_dtype=auto
INFO 06-07 12:34:55 [gpu_model_runner.py:1146] Model loading took {weights:.2f} GiB and 6.21 seconds
INFO 06-07 12:34:59 [gpu_worker.py:276] Available KV cache memory: {kv:.2f} GiB
INFO 06-07 12:34:59 [kv_cache_utils.py:634] GPU KV cache size: {tokens:,} tokens
INFO 06-07 12:34:59 [kv_cache_utils.py:638] Maximum concurrency for 8,192 tokens per request: {fits:.2f}x
"""
PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")


def llama_log(weights=14.99, kv=51.35, tokens=None):
    tokens = int(kv * GIB // (131072 * 16)) * 16 if tokens is None else tokens
    return LLAMA_LOG.format(weights=weights, kv=kv, tokens=tokens, fits=tokens / 8192)


@pytest.fixture
def write(tmp_path):
    def to_file(text):
        path = tmp_path / "start.log"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return to_file


def answer(capsys, monkeypatch, *arguments):
    outcome = run_inside(capsys, monkeypatch, "reconcile", *arguments, "--json")
    assert outcome.code == 0, outcome.stderr
    return outcome.json["results"]


def lines(results, key="figures"):
    return {line["name"]: line for line in results[key]}


# --- the comparison -------------------------------------------------------------------------------------------------------------


def test_a_log_that_agrees(capsys, monkeypatch, write):
    first = answer(capsys, monkeypatch, write(llama_log()), *PAIR)
    expected = lines(first)["kv_cache"]["predicted"] / GIB
    found = answer(capsys, monkeypatch, write(llama_log(kv=round(expected, 2))), *PAIR)
    assert found["verdict"] == "the prediction holds"
    assert found["explained_by"] is None or abs(found["gap_bytes"]) < 0.01 * expected * GIB
    assert found["contradictions"] == []
    for name in ("weights", "kv_cache", "kv_tokens", "max_concurrency"):
        line = lines(found)[name]
        assert line["difference"] == line["printed"] - line["predicted"]
        assert line["low"] <= line["predicted"] <= line["high"]


def test_the_term_that_explains_the_gap_is_named(capsys, monkeypatch, write):
    plain = lines(answer(capsys, monkeypatch, write(llama_log()), *PAIR))["kv_cache"]["predicted"] / GIB
    found = answer(capsys, monkeypatch, write(llama_log(weights=14.99 + 5, kv=plain - 5)), *PAIR)
    assert found["explained_by"] == "weights"
    assert "weights explains most of it" in found["verdict"]
    assert found["gap_bytes"] == pytest.approx(-5 * GIB, abs=0.02 * GIB)


@pytest.mark.parametrize(("engine", "expected"), [("vllm", "activation"), ("sglang", None), ("tensorrt-llm", "activation")])
def test_a_term_explains_what_it_moves_in_the_engines_own_law(engine, expected):
    """SGLang gives weights and cache a share of their own: activations that are larger leave no less for the cache."""
    one = calc.deploy(*PAIR, DeploymentOptions(engine=engine))
    held = one.engine.capacity(one.question())
    lost = 5 * GIB
    printed = {"activation": held.activation_bytes_per_gpu + lost, "kv_cache": held.kv_cache_bytes_per_gpu - lost}
    figures = tuple(Printed(name, float(size), "bytes", n) for n, (name, size) in enumerate(printed.items()))
    assert reconcile(one, StartUpLog(engine, {}, figures, 2, False)).explained_by == expected


def test_a_gap_without_a_printed_cause_is_said(capsys, monkeypatch, write):
    found = answer(capsys, monkeypatch, write(llama_log(kv=30.0)), *PAIR)
    assert found["explained_by"] is None
    assert "no printed term explains it" in found["verdict"]


def test_tokens_that_do_not_follow_from_the_cache_are_said(capsys, monkeypatch, write):
    found = answer(capsys, monkeypatch, write(llama_log(kv=50.0, tokens=int(2 * 50 * GIB // 131072))), *PAIR)
    assert any("8 bit instead of 16" in text for text in found["contradictions"])
    assert lines(found, "from_printed_cache")["kv_tokens"]["predicted"] == pytest.approx(50 * GIB / 131072, abs=16)


def test_terms_that_do_not_add_up_are_said(capsys, monkeypatch, write):
    text = start_up(record("v0-llama32-3b-a100")).replace("reserved for KV Cache is 23.46GiB", "reserved for KV Cache is 20.46GiB")
    found = answer(capsys, monkeypatch, write(text), "llama-3.2-3b-instruct", "a100-sxm4-40gb")
    assert any("another rank's" in text for text in found["contradictions"])


def test_model_and_device_come_from_the_log(capsys, monkeypatch, write):
    text = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n" + llama_log()
    stand_in = start_up(record("v0-llama32-3b-a100"))
    outcome = run_inside(capsys, monkeypatch, "reconcile", write(stand_in), "--json")
    assert outcome.code == 0
    assert "stand-in with its 39.56 GiB" in outcome.stderr
    assert outcome.json["inputs"]["model"] == "llama-3.2-3b-instruct"
    named = answer(capsys, monkeypatch, write(text), PAIR[0], PAIR[1])
    assert named["engine"] == "vllm"


def test_the_command_line_has_the_last_word(capsys, monkeypatch, write):
    path = write(llama_log())
    plain = answer(capsys, monkeypatch, path, *PAIR)
    longer = answer(capsys, monkeypatch, path, *PAIR, "--max-model-len", "16k")
    other = answer(capsys, monkeypatch, path, *PAIR, "--max-num-seqs", "16")
    assert lines(longer)["max_concurrency"]["predicted"] == pytest.approx(
        lines(plain)["max_concurrency"]["predicted"] / 2, rel=1e-3
    )
    assert lines(other)["kv_cache"]["predicted"] > lines(plain)["kv_cache"]["predicted"]


#: One log of every engine with a device of the library: what must agree with what was printed.
_AGREE = (
    ("v0-llama32-3b-a100", ("llama-3.2-3b-instruct", "a100-sxm4-40gb", "--max-num-seqs", "320"), ("activation", "kv_tokens"), 0.02),
    ("h100-qwen3-32b-tp2", ("qwen3-32b", "h100-sxm5-80gb"), ("weights", "activation", "kv_cache"), 0.01),
    ("gemma4-12b-98k-q8", ("gemma-4-12b-it", "rtx-4090"), ("kv_cache", "window_buffer", "window_cells"), 0.001),
    ("ik-qwen3-32b-q8kv-7900xtx", ("qwen3-32b", "rx-7900-xtx"), ("kv_cache", "kv_keys", "activation", "weights"), 0.01),
    ("ik-r1-mla2-q8", ("deepseek-r1", "rtx-4090"), ("kv_cache", "kv_keys"), 0.001),
)  # fmt: skip


@pytest.mark.parametrize(("identifier", "arguments", "names", "within"), _AGREE, ids=[a[0] for a in _AGREE])
def test_engines_agree_with_their_logs(capsys, monkeypatch, write, identifier, arguments, names, within):
    found = lines(answer(capsys, monkeypatch, write(start_up(record(identifier))), *arguments))
    for name in names:
        assert found[name]["predicted"] == pytest.approx(found[name]["printed"], rel=within), name


@pytest.mark.parametrize(
    "identifier",
    [r["id"] for r in records() if r["engine"] in ("vllm", "sglang", "llama.cpp", "trt-llm")][::4],
)
def test_every_log_is_answered_or_says_what_is_missing(capsys, monkeypatch, write, identifier):
    of = record(identifier)
    outcome = run_inside(capsys, monkeypatch, "reconcile", write(start_up(of)), "qwen3-8b", "h100-sxm5-80gb", "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["results"]["figures"]


# --- ways in and out ------------------------------------------------------------------------------------------------------------


def test_standard_input():
    done = subprocess.run(
        [sys.executable, "-c", "from calc.commands import main; main()", "reconcile", "-", *PAIR],
        cwd=ROOT,
        env=environment(),
        input=llama_log().encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert b"from the printed cache" in done.stdout


def test_overrides_are_a_scenario_that_holds(capsys, monkeypatch, write, tmp_path):
    out = tmp_path / "scenario.yaml"
    outcome = run_inside(capsys, monkeypatch, "reconcile", write(llama_log(kv=48.0)), *PAIR, "-o", str(out))
    assert outcome.code == 0, outcome.stderr
    text = out.read_text(encoding="utf-8")
    assert "kv_cache_memory" in text
    judged = run("run", str(out))
    assert judged.code == 0, judged.stdout + judged.stderr
    tokens = int(48 * GIB // (131072 * 16)) * 16
    assert f"equals: {tokens}" in text


def test_formats(capsys, monkeypatch, write):
    path = write(llama_log())
    page = run_inside(capsys, monkeypatch, "reconcile", path, *PAIR)
    assert "KV cache, tokens" in page.stdout
    rows = run_inside(capsys, monkeypatch, "reconcile", path, *PAIR, "--format", "csv")
    assert rows.code == 0
    assert rows.stdout.splitlines()[0].startswith("name,unit,predicted")


# --- refusals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no memory line"),
        (b"hello\nworld\n", "no memory line of a start-up log in 2 lines"),
        (b"\x00\x01\x02" * 4000, "no memory line"),
        (LLAMA_LOG.split("\n")[0].encode(), "stops before memory is printed"),
        (b"Listening on port 8080\nnginx: worker started\n" * 1000, "no memory line"),
    ],
)
def test_logs_without_memory_lines_are_refused(capsys, monkeypatch, write, content, said):
    outcome = run_inside(capsys, monkeypatch, "reconcile", write(content), *PAIR)
    assert outcome.code == 3
    assert said in outcome.stderr
    assert "looked for" in outcome.stderr
    assert outcome.stdout == ""


def test_a_file_that_is_not_there(capsys, monkeypatch, tmp_path):
    outcome = run_inside(capsys, monkeypatch, "reconcile", str(tmp_path / "none.log"), *PAIR)
    assert outcome.code == 3
    assert "no such file" in outcome.stderr
    folder = run_inside(capsys, monkeypatch, "reconcile", str(tmp_path), *PAIR)
    assert folder.code == 3


def test_what_neither_log_nor_user_names_is_asked_for(capsys, monkeypatch, write):
    bare = "Available KV cache memory: 10.00 GiB\nGPU KV cache size: 80,000 tokens\n"
    outcome = run_inside(capsys, monkeypatch, "reconcile", write(bare))
    assert outcome.code == 2
    assert "does not name the model" in outcome.stderr
    without = run_inside(capsys, monkeypatch, "reconcile", write(bare), PAIR[0])
    assert without.code == 2
    assert "prints no total memory" in without.stderr
