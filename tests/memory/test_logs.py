"""Start-up texts of each engine, written from records of real logs: every printed figure is found, whatever stands around it."""

from __future__ import annotations

import io

import pytest

from calc.errors import ProfileError
from calc.memory.engines.logs import MAX_BYTES, read_log
from tests.support.memory import GIB, MIB
from tests.support.start_up import record, records, start_up

#: Reported quantity → name in a log, its unit in base units and half of its last printed digit.
_READ = {
    "weights_gib_per_gpu": ("weights", GIB, 0.005),
    "activation_peak_gib": ("activation", GIB, 0.005),
    "kv_cache_gib_per_gpu": ("kv_cache", GIB, 0.02),
    "cuda_graph_gib": ("cuda_graphs", GIB, 0.005),
    "kv_tokens": ("kv_tokens", 1, 0),
    "gpu_blocks": ("blocks", 1, 0),
    "max_concurrency": ("max_concurrency", 1, 0.005),
    "attention_block_size": ("block_tokens", 1, 0),
    "mamba_page_padding_pct": ("page_padding", 1, 0.005),
    "mamba_ssm_gib": ("state_matrix", GIB, 0.005),
    "mamba_conv_gib": ("state_convolution", GIB, 0.005),
    "max_mamba_cache_size": ("state_slots", 1, 0),
    "kv_mib_total": ("kv_cache", MIB, 0.011),
    "kv_k_mib": ("kv_keys", MIB, 0.005),
    "kv_v_mib": ("kv_values", MIB, 0.005),
    "swa_cells": ("window_cells", 1, 0),
    "swa_mib": ("window_buffer", MIB, 0.005),
    "non_swa_mib": ("base_buffer", MIB, 0.005),
    "recurrent_mib": ("state_buffer", MIB, 0.005),
    "recurrent_r_mib": ("state_convolution", MIB, 0.005),
    "recurrent_s_mib": ("state_matrix", MIB, 0.005),
    "compute_buffer_mib": ("activation", MIB, 0.005),
    "model_buffer_mib": ("weights", MIB, 0.005),
    "total_gib": ("gpu_memory", GIB, 0.005),
    "available_before_kv_gib": ("free", GIB, 0.005),
}
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llama.cpp", "trt-llm": "tensorrt-llm"}
LOGGED = [r for r in records() if r["engine"] in _ENGINES]


def read(text):
    return read_log(io.BytesIO(text if isinstance(text, bytes) else text.encode()), "a.log")


def figures(log):
    return {name: log.value(name).value for name in {f.name for f in log.figures}}


@pytest.mark.parametrize("of", LOGGED, ids=lambda r: r["id"])
def test_every_figure_is_found(of):
    text = start_up(of)
    log = read(text)
    assert log.engine == _ENGINES[of["engine"]]
    found = figures(log)
    for key, (name, unit, half) in _READ.items():
        value = of["reported"].get(key)
        if not isinstance(value, (int, float)):
            continue
        if any(shown in text for shown in (f"{value:,}", f"{value:.2f}", str(value))):
            assert found[name] == pytest.approx(value * unit, abs=half * unit + 1e-6), (key, name)


def test_hardly_a_printed_figure_is_left_out():
    """The wording above covers the records: nine of ten figures stand in the texts and are read."""
    wanted = found = 0
    for of in LOGGED:
        read_names = set(figures(read(start_up(of))))
        for key, (name, _, _) in _READ.items():
            if isinstance(of["reported"].get(key), (int, float)):
                wanted += 1
                found += name in read_names
    assert found >= 0.9 * wanted


def test_settings_are_read():
    v0 = read(start_up(record("v0-llama32-3b-a100"))).settings
    assert v0["model"] == "unsloth/Llama-3.2-3B-Instruct"
    assert v0["engine_version"] == "0.8.1"
    assert (v0["engine_generation"], v0["max_model_len"], v0["tensor_parallel_size"]) == ("v0", "2048", "1")
    assert "quantization" not in v0
    assert "kv_cache_dtype" not in v0
    state = read(start_up(record("sgl-nemotron-nano-tp4-spark"))).settings
    assert state["tensor_parallel_size"] == "4"
    cells = read(start_up(record("gemma4-12b-98k-q8"))).settings
    assert {"context_size", "ubatch_size", "model"} <= cells.keys()


def test_command_lines_are_read():
    line = "$ vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2 --max-model-len=8192 -q fp8 --enforce-eager --kv-cache-dtype fp8_e4m3\n"
    found = read(line + "GPU KV cache size: 1,000 tokens\n").settings
    assert found == {
        "model": "Qwen/Qwen3-8B",
        "tensor_parallel_size": "2",
        "max_model_len": "8192",
        "quantization": "fp8",
        "enforce_eager": "True",
        "kv_cache_dtype": "fp8",
    }


# --- what stands around -------------------------------------------------------------------------------------------------------------

PLAIN = start_up(record("v0-llama32-3b-a100"))


def _coloured(text):
    return "".join(f"\x1b[32m{line}\x1b[0m\x1b[K\n" for line in text.splitlines())


def _container(text):
    return "".join(
        f"2025-06-07T12:34:56.789Z vllm-0 | \x1b[36m(VllmWorker rank=0 pid=77)\x1b[0;0m {line}\n" for line in text.splitlines()
    )


def _progress(text):
    bar = "\r".join(f"Loading safetensors checkpoint shards: {n}% |" for n in range(0, 101, 5))
    return "".join(f"{bar}\r{line}\n" for line in text.splitlines())


def _binary(text):
    noise = bytes(range(256)) * 3
    return b"\n".join(noise + b"\n" + line.encode() + b"\x00\xff" for line in text.splitlines())


def _unrelated(text):
    other = "Traceback: took 12.3 GiB of time\nhttpx INFO HTTP Request: GET / 200\n" * 50
    return other + other.join(line + "\n" for line in text.splitlines()) + other


@pytest.mark.parametrize(
    "changed",
    [
        _coloured,
        _container,
        _progress,
        _binary,
        _unrelated,
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.encode("utf-16"),
        lambda t: t.encode("utf-16-be"),
        lambda t: b"\xef\xbb\xbf" + t.encode(),
        lambda t: t.rstrip("\n"),
    ],
)
def test_whatever_stands_around(changed):
    assert figures(read(changed(PLAIN))) == figures(read(PLAIN))


def test_of_several_ranks_the_one_with_least_cache_rules():
    lines = [f"(VllmWorker TP{rank} pid={rank}) INFO Available KV cache memory: {30 - rank:.2f} GiB" for rank in range(4)]
    lines += [f"(VllmWorker TP{rank} pid={rank}) INFO Model loading took {15 + rank:.2f} GiB and 1.0 seconds" for rank in range(4)]
    log = read("\n".join(lines))
    assert log.value("kv_cache").value == 27 * GIB
    assert log.value("weights").value == 18 * GIB
    assert [f.rank for f in log.all("kv_cache")] == [0, 1, 2, 3]


def test_a_cache_sized_twice_counts_as_last_printed():
    text = "".join(
        f"[TensorRT-LLM][INFO] [MemUsageChange] Allocated {size} GiB for max tokens in paged KV cache ({tokens}).\n"
        for size, tokens in (("0.50", 8224), ("16.05", 262944))
    )
    assert read(text).value("kv_tokens").value == 262_944


def test_devices_of_llama_cpp_are_summed_and_the_host_is_not():
    text = (
        "llama_kv_cache_init:      CUDA0 KV buffer size =   512.00 MiB\nllama_kv_cache_init:      CUDA1 KV buffer size =   256.00 MiB\n"
        "load_tensors:        CUDA0 model buffer size =  4000.00 MiB\nload_tensors:        CUDA1 model buffer size =  2000.00 MiB\n"
        "load_tensors:   CPU_Mapped model buffer size =   315.30 MiB\n"
    )
    log = read(text)
    assert log.value("kv_cache").value == 768 * MIB
    assert log.value("weights").value == 6000 * MIB


# --- what is refused ------------------------------------------------------------------------------------------------------------


def test_an_unreadable_text_says_what_was_looked_for():
    with pytest.raises(ProfileError, match="no memory line of a start-up log in 3 lines") as caught:
        read("one\ntwo\nthree\n")
    assert "GPU KV cache size" in (caught.value.hint or "")
    assert "KV self size" in (caught.value.hint or "")


def test_a_log_that_stops_too_early_is_recognised():
    early = "INFO [llm_engine.py:240] Initializing a V0 LLM engine (v0.8.1) with config: model='a/b', max_seq_len=2048\n"
    with pytest.raises(ProfileError, match="looks like vllm but stops before memory is printed"):
        read(early)


@pytest.mark.parametrize("content", [b"", b"\x00" * 5000, bytes(range(256)) * 400])
def test_noise_is_refused(content):
    with pytest.raises(ProfileError, match="no memory line"):
        read(content)


def test_a_huge_log_is_read_to_a_bound():
    filler = b"x" * 1023 + b"\n"
    huge = filler * (MAX_BYTES // len(filler) + 2) + PLAIN.encode()
    with pytest.raises(ProfileError, match="the first 16 MiB"):
        read(huge)
    log = read(PLAIN.encode() + filler * (MAX_BYTES // len(filler) + 2))
    assert log.truncated
    assert figures(log) == figures(read(PLAIN))


def test_one_endless_line_is_cut():
    log = read(b"GPU KV cache size: 5 tokens " + b"GPU KV cache size: 5 tokens " * 400_000)
    assert log.value("kv_tokens").value == 5
    assert len(log.figures) <= 10_000
