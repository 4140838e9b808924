"""The laws of SGLang, llama.cpp and TensorRT-LLM beyond their published figures."""

from __future__ import annotations

import pytest

from calc.errors import UsageError
from tests.support.memory import GIB, MIB, held, printed, term

H100, LLAMA = "h100-sxm5-80gb", "meta-llama-3.1-8b"

# --- SGLang ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tp", "share"), [(1, 0.88), (2, 0.87), (4, 0.85), (8, 0.81)])
def test_sglang_fractions_before_mid_2025(tp, share):
    assert held(LLAMA, H100, "sglang", tp=tp, engine_version="0.4.5").gpu_memory_utilization == share


def test_sglang_fraction_of_each_class_of_device():
    found = {n: held(LLAMA, n, "sglang").gpu_memory_utilization for n in (H100, "rtx-4090", "b200-sxm")}
    # reserve: metadata 512 + activations 1.5 x chunk + 1024 per 8 ranks + 2 MiB a graph, at least 10 GiB on large devices
    assert found["rtx-4090"] == round((24564 - 512 - 1.5 * 2048 - 128 - 2 * 24) / 24564, 3)
    assert found["b200-sxm"] < 0.9
    assert held("qwen2.5-vl-7b-instruct", H100, "sglang").gpu_memory_utilization == round(0.835 * 0.95, 3)


@pytest.mark.parametrize("model", [LLAMA, "qwen2.5-vl-7b-instruct"])
def test_sglang_leaves_some_share_of_the_smallest_device(model):
    assert held(model, "rtx-4090", "sglang", gpu_memory_bytes=GIB).gpu_memory_utilization == 0.05


def test_sglang_keeps_weights_inside_its_share():
    found = held(
        LLAMA, H100, "sglang", gpu_memory_utilization=0.8, gpu_memory_bytes=80 * GIB, runtime_bytes=GIB, weights_bytes=15 * GIB
    )
    assert found.kv_cache_bytes_per_gpu == int(79 * GIB * 0.8) - 15 * GIB


def test_sglang_windows_have_a_pool_since_mid_2025():
    old, new = (held("gpt-oss-20b", H100, "sglang", engine_version=v) for v in ("0.4.5", "0.5"))
    assert old.ranks[0].pool.window_tokens(old.kv_cache_bytes_per_gpu) == 0
    assert new.ranks[0].pool.window_tokens(new.kv_cache_bytes_per_gpu) == int(0.8 * new.kv_tokens)
    assert (
        old.ranks[0].pool.cell_bytes == 2 * held("gpt-oss-20b", H100).kv_bytes_per_token_per_gpu
    )  # half of the layers are windows
    assert new.ranks[0].pool.cell_bytes == pytest.approx(1.8 / 2 * old.ranks[0].pool.cell_bytes)
    wide = held("gpt-oss-20b", H100, "sglang", window_ratio=0.1)
    assert wide.kv_tokens > new.kv_tokens


def test_sglang_slots_of_a_request_with_and_without_a_radix_cache():
    options = {"kv_cache_bytes": None, "gpu_memory_bytes": 80 * GIB, "max_model_len": 1024}
    cached = held("mamba2-2.7b", H100, "sglang", **options)
    apart = held("mamba2-2.7b", H100, "sglang", prefix_caching=False, **options)
    assert apart.max_concurrency == pytest.approx(3 * cached.max_concurrency, rel=1e-6)


def test_sglang_tokens_are_capped():
    assert held(LLAMA, H100, "sglang", max_total_tokens=1000).kv_tokens == 1000
    assert held(LLAMA, H100, "sglang", max_total_tokens=1 << 40).kv_tokens == held(LLAMA, H100, "sglang").kv_tokens


def test_sglang_pages_of_latent_attention():
    assert held("deepseek-v3.2", "h200-sxm-141gb", "sglang", tp=8).block_tokens == 64
    assert held("deepseek-v3", "b200-sxm", "sglang", tp=8).block_tokens == 128
    assert held(LLAMA, H100, "sglang").block_tokens == 1


def test_sglang_allocates_a_cache_for_layers_that_read_anothers():
    """Gemma 4 E4B: 7 of 42 layers see everything, 3 of them by a cache of an earlier layer."""
    ours, vllm = (held("gemma-4-e4b-it", H100, engine) for engine in ("sglang", "vllm"))
    each = 2 * 2 * 512 * 2  # keys and values of 2 heads of 512 elements in 16 bit
    assert (ours.kv_bytes_per_token_per_gpu, vllm.kv_bytes_per_token_per_gpu) == (7 * each, 4 * each)
    layers = [sum(layer.count for layer in found.ranks[0].pool.cache.layers) for found in (ours, vllm)]
    assert layers == [42, 24]


# --- llama.cpp ------------------------------------------------------------------------------------------------------------------


def figures(model, **options):
    found = held(model, H100, "llama.cpp", **options)
    return {f.name: f.value for f in found.printed}


def test_llama_cpp_rounds_cells_up_to_256():
    assert figures(LLAMA, context_size=1000, max_num_seqs=1)["context_cells"] == 1024
    assert figures(LLAMA, context_size=4096, max_num_seqs=3, kv_unified=False)["context_cells"] == 1536


@pytest.mark.parametrize(
    ("build", "cells"),
    [("b5300", 32768), ("b5500", 3072), ("b6000", 1536), ("ik", 32768)],  # whole; by the batch of 2,048; by the micro-batch of 512
)
def test_llama_cpp_windows_by_build(build, cells):
    found = figures("gemma-3-27b-it", context_size=32768, max_num_seqs=1, engine_version=build)
    windows = found["kv_buffer"] - 10 * 32768 * 2 * 16 * 128 * 2
    assert windows == 52 * cells * 2 * 16 * 128 * 2


@pytest.mark.parametrize(("build", "ahead"), [("b5500", 2048), ("b6000", 512)])
def test_llama_cpp_slots_look_ahead_as_their_buffers_do(build, ahead):
    options = {"kv_unified": False, "max_num_seqs": 2, "max_model_len": 32768, "engine_version": build}
    found = held("gemma-3-27b-it", H100, "llama.cpp", **options)
    slot = 2 * 16 * 128 * 2 * (10 * 32768 + 52 * (1024 + ahead))
    assert found.kv_bytes_per_sequence["reserved"] == slot
    assert 2 * slot == {f.name: f.value for f in found.printed}["kv_buffer"]


def test_llama_cpp_full_windows_when_told():
    whole = figures("gemma-3-27b-it", context_size=32768, max_num_seqs=1, swa_full=True)
    assert whole["kv_buffer"] == 62 * 32768 * 2 * 16 * 128 * 2


@pytest.mark.parametrize(
    ("latent_cache", "keys", "values"),
    [("none", 16 * 192, 16 * 128), ("key", 576, 0), ("key-and-value", 576, 512)],
)
def test_llama_cpp_latents_by_mla_mode(latent_cache, keys, values):
    found = figures("deepseek-v2-lite", context_size=4096, max_num_seqs=1, latent_cache=latent_cache)
    assert found["kv_keys"] == 27 * 4096 * keys * 2
    assert found["kv_values"] == 27 * 4096 * values * 2


def test_llama_cpp_caches_all_heads_before_latents_were_known():
    old = figures("deepseek-v2-lite", context_size=4096, max_num_seqs=1, engine_version="b5000")
    assert old == figures("deepseek-v2-lite", context_size=4096, max_num_seqs=1, latent_cache="none")


def test_llama_cpp_states_are_fp32_and_one_a_slot():
    one, two = (figures("qwen3.5-9b", context_size=4096, max_num_seqs=n) for n in (1, 2))
    assert two["state_matrix"] == 2 * one["state_matrix"] == 2 * 24 * 32 * 128 * 128 * 4
    drafting = figures("qwen3.5-9b", context_size=4096, max_num_seqs=1, speculative_tokens=2)
    assert drafting["state_matrix"] == 3 * one["state_matrix"]


@pytest.mark.parametrize(("form", "bits"), [("f16", 16), ("q8_0", 8.5), ("q5_1", 6), ("q4_0", 4.5)])
def test_llama_cpp_formats_of_keys_and_values(form, bits):
    found = figures(LLAMA, context_size=8192, max_num_seqs=1, cache_type_k=form, cache_type_v="f16")
    assert found["kv_keys"] == 32 * 8192 * 1024 * bits / 8
    assert found["kv_values"] == 32 * 8192 * 1024 * 2


def test_llama_cpp_layers_left_to_the_host():
    some = held(LLAMA, H100, "llama.cpp", context_size=4096, max_num_seqs=1, gpu_layers=17)
    assert printed(some, "kv_buffer") == 16 * 4096 * 4096  # the output layer counts as one
    none = held(LLAMA, H100, "llama.cpp", context_size=4096, max_num_seqs=1, gpu_layers=0)
    assert printed(none, "kv_buffer") == 0
    host = held(LLAMA, H100, "llama.cpp", context_size=4096, max_num_seqs=1, kv_offload=False)
    assert printed(host, "kv_buffer") == 0
    assert host.weights_bytes_per_gpu > some.weights_bytes_per_gpu


def test_llama_cpp_experts_left_to_the_host():
    whole, without = (
        held("qwen3-30b-a3b", H100, "llama.cpp", context_size=4096, gpu_experts=n).weights_bytes_per_gpu for n in (None, 0)
    )
    assert without < 0.1 * whole


def test_llama_cpp_splits_by_layer_or_by_row():
    one = held(LLAMA, H100, "llama.cpp", context_size=4096, max_num_seqs=1)
    layers = held(LLAMA, H100, "llama.cpp", context_size=4096, max_num_seqs=1, tp=2)
    rows = held(LLAMA, H100, "llama.cpp", context_size=4096, max_num_seqs=1, tp=2, split_mode="row")
    assert sum(r.term("weights") for r in layers.ranks) == pytest.approx(one.weights_bytes_per_gpu, rel=1e-6)
    assert {r.term("weights") for r in rows.ranks} == {-(-one.weights_bytes_per_gpu // 2)}
    assert [bool(r.pool.cache.layers) for r in rows.ranks] == [True, False]
    with pytest.raises(UsageError, match="does not deal"):
        held(LLAMA, H100, "llama.cpp", tp=2, pipeline_layers=(10, 10))


def test_llama_cpp_refuses_a_context_that_is_not_allocated_at_once():
    fits, too_long = (held(LLAMA, "rtx-4090", "llama.cpp", context_size=n, max_num_seqs=1).fits for n in (8192, 1 << 20))
    assert fits
    assert not too_long


def test_llama_cpp_mixes_spread():
    mixed = term(held(LLAMA, H100, "llama.cpp", quantization="q4_k_m"), "weights")
    plain = term(held(LLAMA, H100, "llama.cpp", quantization="q8_0"), "weights")
    assert mixed.most - mixed.least > 5 * (plain.most - plain.least)


# --- TensorRT-LLM ---------------------------------------------------------------------------------------------------------------


def test_tensorrt_llm_takes_a_share_of_what_is_free():
    terms = {"weights_bytes": 20 * GIB, "activation_bytes": 2 * GIB, "runtime_bytes": GIB}
    found = held(LLAMA, H100, "tensorrt-llm", gpu_memory_bytes=80 * GIB, gpu_memory_utilization=0.5, **terms)
    assert found.kv_cache_bytes_per_gpu == int(57 * GIB * 0.5)


@pytest.mark.parametrize(("version", "block"), [("0.8", 64), ("0.16", 64), ("0.17", 32), (None, 32)])
def test_tensorrt_llm_blocks(version, block):
    assert held(LLAMA, H100, "tensorrt-llm", engine_version=version).block_tokens == block


def test_tensorrt_llm_rounds_blocks_up_and_refuses_odd_ones():
    assert held(LLAMA, H100, "tensorrt-llm", kv_cache_bytes=32 * 131072 + 1).blocks == 2
    with pytest.raises(UsageError, match="refuses blocks of 48"):
        held(LLAMA, H100, "tensorrt-llm", block_size=48)


def test_tensorrt_llm_windows_count_only_when_told():
    whole = held("gpt-oss-120b", H100, "tensorrt-llm", kv_cache_bytes=10 * GIB, max_model_len=65536)
    assert whole.kv_tokens == -(-10 * GIB // (73_728 * 32)) * 32  # the log's 73,728 bytes a token: all 36 layers
    told = held("gpt-oss-120b", H100, "tensorrt-llm", kv_cache_bytes=10 * GIB, max_model_len=65536, max_attention_window=True)
    assert told.kv_tokens > 1.9 * whole.kv_tokens


def test_tensorrt_llm_tokens_are_capped_in_whole_blocks():
    assert held(LLAMA, H100, "tensorrt-llm", max_total_tokens=1000).kv_tokens == 1024


def test_tensorrt_llm_states_come_out_of_the_same_memory():
    found = held("mamba2-2.7b", H100, "tensorrt-llm", kv_cache_bytes=1700 * MIB, max_num_seqs=64)
    assert found.max_concurrency == pytest.approx(1700 * MIB / found.state_bytes_per_sequence_per_gpu)


def test_a_micro_batch_of_llama_cpp_is_no_larger_than_its_batch():
    small, cut = (held(LLAMA, H100, "llama.cpp", **options) for options in ({"ubatch_size": 256}, {"max_num_batched_tokens": 256}))
    usual = held(LLAMA, H100, "llama.cpp")
    assert small.activation_bytes_per_gpu == cut.activation_bytes_per_gpu < usual.activation_bytes_per_gpu
