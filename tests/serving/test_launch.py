"""Launch commands: every option is one that the engine documents, with a value it takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from calc.memory.options import MemoryOptions
from calc.serving.launch import launch
from calc.serving.traffic import uniform
from tests.support.profiles import attention, decoder, deployment, device

DOCUMENTED = yaml.safe_load(Path(__file__).with_name("engine_flags.yaml").read_text(encoding="utf-8"))
MODEL = decoder(hidden=1024, layers=8, mixers=attention(16, 4, 64), width=4096, vocab=32000, hub_id="org/Toy", id="toy")
EXPERTS = decoder(
    hidden=1024, layers=8, mixers=attention(16, 4, 64), width=4096, vocab=32000, hub_id="org/Toy-MoE",
    feed_forward={"kind": "experts", "num_experts": 8, "num_experts_per_token": 2, "intermediate_size": 512},
)  # fmt: skip
DEVICE = device(peaks={"fp32": 10.0, "fp16": 100.0, "bf16": 100.0, "fp8": 200.0})

CASES = {
    "plain": {},
    "split": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
    "fp8": {"quantization": "fp8", "kv_cache_dtype": "fp8"},
    "half": {"dtype": "fp16"},
    "limits": {
        "memory": MemoryOptions(gpu_memory_utilization=0.8, max_num_batched_tokens=2048, max_model_len=4096, block_size=64),
    },
}  # fmt: skip


def checked(words: tuple[str, ...], engine: str) -> dict[str, str]:
    """Options with their values; each must be documented."""
    known = DOCUMENTED[engine]
    assert list(words[: len(known["command"])]) == known["command"]
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            assert word in known["flags"], f"{word} is not an option of {engine} ({known['source']})"
            assert word not in found, f"{word} stands twice"
            found[word] = "" if following.startswith("--") else following
            if word in known.get("values", {}):
                assert following in [str(v) for v in known["values"][word]], (word, following)
    return found


@pytest.mark.parametrize("engine", sorted(DOCUMENTED))
@pytest.mark.parametrize("case", sorted(CASES))
def test_options_are_documented(engine, case):
    options = dict(CASES[case])
    if engine == "llama.cpp":
        if "quantization" in options:
            options |= {"quantization": "q4_k_m", "kv_cache_dtype": "q8_0"}
        if options.pop("tensor_parallel_size", None):
            options["pipeline_parallel_size"] = 4
    found = checked(launch(deployment(MODEL, DEVICE, engine=engine, **options), uniform(1000, 200, 16), 24).words, engine)
    limit = {
        "vllm": "--max-num-seqs",
        "sglang": "--max-running-requests",
        "llama.cpp": "--parallel",
        "tensorrt-llm": "--max_batch_size",
    }
    assert found[limit[engine]] == "24"
    if engine == "llama.cpp":
        assert int(found["--ctx-size"]) == 24 * (4096 if case == "limits" else 1200)
    if case == "fp8" and engine in ("vllm", "sglang"):
        assert found["--quantization"] == "fp8"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_expert_parallel_is_said(engine):
    one = deployment(EXPERTS, DEVICE, engine=engine, tensor_parallel_size=4, enable_expert_parallel=True)
    found = checked(launch(one, uniform(10, 10), 2).words, engine)
    assert found.keys() & {"--enable-expert-parallel", "--ep-size", "--ep_size"}


def test_a_format_that_needs_its_own_checkpoint_is_said():
    started = launch(deployment(MODEL, DEVICE, engine="vllm", quantization="awq"), uniform(10, 10), 2)
    assert "--quantization" not in started.words
    assert "Toy-awq" in started.words
    assert any("awq" in note for note in started.notes)


def test_the_ideal_engine_cannot_be_started():
    started = launch(deployment(MODEL, DEVICE, engine="ideal"), uniform(10, 10), 2)
    assert str(started) == ""
    assert "--engine" in started.notes[0]


def test_words_survive_a_shell():
    model = decoder(hidden=1024, layers=8, mixers=attention(16, 4, 64), width=4096, vocab=32000, hub_id="org/it's a model")
    started = launch(deployment(model, DEVICE, engine="vllm"), uniform(10, 10), 2)
    assert tuple(shlex.split(str(started))) == started.words
