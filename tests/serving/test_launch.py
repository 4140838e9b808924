"""Launch commands: every option is one that the engine documents, with a value it takes."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from calc.memory.options import MemoryOptions
from calc.serving.launch.command import Launch, launch
from calc.serving.load.traffic import uniform
from calc.serving.speculation import Drafting
from tests.support.profiles import attention, decoder, deployment, device, loaded

DOCUMENTED = yaml.safe_load(Path(__file__).with_name("engine_flags.yaml").read_text(encoding="utf-8"))
MODEL = decoder(hidden=1024, layers=8, mixers=attention(16, 4, 64), width=4096, vocab=32000, hub_id="org/Toy", id="toy")
EXPERTS_LAYER = {"kind": "experts", "num_experts": 8, "num_experts_per_token": 2, "intermediate_size": 512}
EXPERTS = decoder(
    hidden=1024, layers=8, mixers=attention(16, 4, 64), width=4096, vocab=32000, hub_id="org/Toy-MoE",
    feed_forward=EXPERTS_LAYER,
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


def test_data_parallel_attention_is_said_with_the_limits_of_one_rank():
    split = {"tensor_parallel_size": 2, "data_parallel_size": 4, "enable_expert_parallel": True}
    words = {e: launch(deployment(EXPERTS, DEVICE, engine=e, **split), uniform(10, 10), 22) for e in ("vllm", "sglang")}
    found = {e: checked(started.words, e) for e, started in words.items()}
    assert (found["vllm"]["--data-parallel-size"], found["vllm"]["--max-num-seqs"]) == ("4", "6")
    sglang = found["sglang"]
    assert [sglang[f] for f in ("--tp-size", "--dp-size", "--ep-size", "--max-running-requests")] == ["8", "4", "8", "22"]
    assert "--enable-dp-attention" in words["sglang"].words
    for engine, option in {"vllm": "--all2all-backend", "sglang": "--moe-a2a-backend"}.items():
        assert option in said(words[engine], engine)  # all eight ranks lie on one host


def said(started: Launch, engine: str) -> list[str]:
    """Options that the notes name; each must be documented."""
    found = [word.rstrip(",") for note in started.notes for word in note.split() if word.startswith("--")]
    assert set(found) <= set(DOCUMENTED[engine]["flags"]), found
    return found


def test_tensorrt_llm_reads_of_data_parallel_attention_in_one_file():
    split = {"data_parallel_size": 4, "enable_expert_parallel": True}
    one = deployment(EXPERTS, DEVICE, engine="tensorrt-llm", **split, memory=MemoryOptions(speculative_tokens=3))
    for draft, entries in ((None, 1), (Drafting((0.7,), looked_up=True).draft(one), 2)):
        started = launch(one, uniform(10, 10), 22, draft)
        file = checked(started.words, "tensorrt-llm")["--extra_llm_api_options"]
        assert any("enable_attention_dp: true" in note for note in started.notes)
        assert sum(note.startswith(file) for note in started.notes) == entries


@pytest.mark.parametrize(
    ("engine", "split", "options"),
    [
        ("vllm", {"data_parallel_size": 16}, "--data-parallel-size-local 8 --data-parallel-address HOST"),
        ("vllm", {"tensor_parallel_size": 2, "data_parallel_size": 8}, "--data-parallel-size-local 4 --data-parallel-address HOST"),
        ("vllm", {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}, "--nnodes 2 --node-rank I --master-addr HOST"),
        ("sglang", {"data_parallel_size": 16}, "--nnodes 2 --node-rank I --dist-init-addr HOST:PORT"),
        ("tensorrt-llm", {"data_parallel_size": 16}, "trtllm-llmapi-launch"),
    ],
)
def test_a_replica_on_several_hosts_is_started_on_each(engine, split, options):
    links = {
        "scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 8,
        "scale_out_gb_per_s_per_direction_per_device": 50.0,
    }  # fmt: skip
    sixteen = {**EXPERTS_LAYER, "num_experts": 16}
    model = decoder(hidden=1024, layers=8, mixers=attention(16, 8, 64), width=4096, vocab=32000, feed_forward=sixteen)
    wide = {"enable_expert_parallel": True} if "data_parallel_size" in split else {}
    started = launch(deployment(model, device(links=links), engine=engine, **split, **wide), uniform(10, 10), 32)
    assert any(options in note and "2 hosts" in note for note in started.notes), started.notes
    said(started, engine)
    rack = launch(
        deployment(model, device(links=links | {"scale_up_domain_size": 12}), engine=engine, **split, **wide), uniform(10, 10), 32
    )
    assert not any("hosts" in note for note in rack.notes)  # a fabric of more than a host: of how many is not known


def test_a_format_that_needs_its_own_checkpoint_is_said():
    started = launch(deployment(MODEL, DEVICE, engine="vllm", quantization="awq"), uniform(10, 10), 2)
    assert "--quantization" not in started.words
    assert "Toy-awq" in started.words
    assert any("awq" in note for note in started.notes)


def test_the_ideal_engine_cannot_be_started():
    started = launch(deployment(MODEL, DEVICE, engine="ideal"), uniform(10, 10), 2)
    assert str(started) == ""
    assert "--engine" in started.notes[0]


@pytest.mark.parametrize(("engine", "said"), [("gpt-fast", "no server"), ("exllamav2", "TabbyAPI"), ("transformers", "no limit")])
def test_engines_without_a_fitting_server_say_so_instead_of_a_command(engine, said):
    started = launch(deployment(MODEL, device(vendor="NVIDIA"), engine=engine), uniform(10, 10), 2)
    assert started.words == ()
    assert said in started.notes[0]
    assert "--engine" in started.notes[0]


def test_mlx_is_started_with_its_own_server_and_notes_what_that_cannot_say():
    mac = device(vendor="Apple")
    plain = launch(deployment(MODEL, mac, engine="mlx"), uniform(1000, 200), 24)
    assert str(plain) == "mlx_lm.server --model org/Toy --decode-concurrency 24"
    assert plain.notes == ()
    split = launch(deployment(MODEL, mac, engine="mlx", pipeline_parallel_size=2, kv_cache_dtype="fp8"), uniform(10, 10), 2)
    assert split.words[-1] == "--pipeline"
    assert ["mlx.launch" in split.notes[0], "--kv-bits" in split.notes[1]] == [True, True]


def drafted(engine: str, what: str):
    """A launch with three drafts a round of a model of its own, of n-grams, or of the model's next-token layers."""
    one = deployment(MODEL, DEVICE, engine=engine, memory=MemoryOptions(speculative_tokens=3))
    small = decoder(hidden=256, layers=2, mixers=attention(4, 2, 64), width=512, vocab=32000, hub_id="org/Small", id="small")
    draft = Drafting((0.7,), loaded(small) if what == "model" else None, looked_up=what != "model").draft(one)
    if what == "layers":
        draft = replace(draft, name="next-token layers", deployment=one, part_of_model=True)
    return launch(one, uniform(1000, 200), 24, draft)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "tensorrt-llm"])
@pytest.mark.parametrize("what", ["model", "ngram", "layers"])
def test_drafts_are_said_in_the_words_of_the_engine(engine, what):
    started = drafted(engine, what)
    found = checked(started.words, engine)
    if engine == "vllm":
        config = json.loads(found["--speculative-config"])
        assert config["num_speculative_tokens"] == 3
        assert config["method"] == {"model": "draft_model", "ngram": "ngram", "layers": "mtp"}[what]
        assert config.get("model") == ("org/Small" if what == "model" else None)
    elif engine == "sglang":
        assert found["--speculative-num-draft-tokens"] == "4"  # the token that starts the chain counts
        assert found.get("--speculative-num-steps", "3") == "3"
    elif engine == "llama.cpp":
        assert found["--spec-draft-n-max"] == "3"
    else:
        assert any("3" in n and found["--extra_llm_api_options"] in n for n in started.notes)
    assert tuple(shlex.split(str(started))) == started.words


def test_what_stays_on_the_host_is_said():
    streamed = deployment(MODEL, DEVICE, engine="vllm", memory=MemoryOptions(cpu_offload_bytes=1 << 26))
    assert checked(launch(streamed, uniform(10, 10), 2).words, "vllm")["--cpu-offload-gb"] == "0.0625"
    host = deployment(MODEL, DEVICE, engine="llama.cpp", memory=MemoryOptions(gpu_layers=5, host_bandwidth_bytes_per_s=50e9))
    assert checked(launch(host, uniform(10, 10), 2).words, "llama.cpp")["--n-gpu-layers"] == "5"


def test_words_survive_a_shell():
    model = decoder(hidden=1024, layers=8, mixers=attention(16, 4, 64), width=4096, vocab=32000, hub_id="org/it's a model")
    started = launch(deployment(model, DEVICE, engine="vllm"), uniform(10, 10), 2)
    assert tuple(shlex.split(str(started))) == started.words
