"""Published start-up figures of SGLang, llama.cpp and TensorRT-LLM."""

from __future__ import annotations

import pytest

from tests.support.golden import check
from tests.support.memory import GIB, MIB, held, printed
from tests.support.profiles import attention, decoder

H100 = "h100-sxm5-80gb"


def left(gib, **rest):
    """Options under which SGLang has so many GiB left for its pools."""
    return {
        "gpu_memory_bytes": int(gib * GIB) + GIB,
        "weights_bytes": GIB,
        "runtime_bytes": 0,
        "gpu_memory_utilization": 1.0,
        **rest,
    }


# --- SGLang ---------------------------------------------------------------------------------------------------------------------


def test_sglang_prints_what_keys_take():
    found = held("qwen3-235b-a22b", H100, "sglang", tp=4, max_total_tokens=367_404, kv_cache_bytes=40 * GIB)
    assert found.kv_tokens == 367_404
    check("sglang.qwen3_235b_fp8.tp4.k_gib", printed(found, "kv_keys") / GIB)


def test_sglang_splits_memory_between_state_and_tokens():
    found = held("qwen3.5-27b", H100, "sglang", **left(38.1))
    assert printed(found, "state_slots") == 124
    check("sglang.qwen36_27b.ssm_gib", printed(found, "state_matrix") / GIB)
    check("sglang.qwen36_27b.conv_gib", printed(found, "state_convolution") / GIB)
    assert found.kv_tokens == pytest.approx(330_323, rel=0.002)  # what is left is printed to 0.1 GiB only
    capped = held("qwen3.5-27b", H100, "sglang", **left(38.1, max_total_tokens=330_323))
    check("sglang.qwen36_27b.k_gib", printed(capped, "kv_keys") / GIB)


def test_sglang_state_slots_of_mamba_2():
    slot = held("granite-4.0-h-small", H100, "sglang").ranks[0].pool.slot_bytes
    found = held("granite-4.0-h-small", H100, "sglang", **left(219.5 * slot * 1.9 / 0.9 / GIB))
    assert printed(found, "state_slots") == 218
    check("sglang.granite4_h_small.ssm_gib", printed(found, "state_matrix") / GIB)


def test_sglang_window_pool_is_a_share_of_the_tokens():
    found = held("gemma-4-12b-it", H100, "sglang", max_total_tokens=1710)
    assert printed(found, "full_tokens") == 1710
    check("sglang.gemma4_12b.swa_tokens", printed(found, "window_tokens"))


def test_sglang_cell_counts_windows_by_their_share():
    check("sglang.gpt_oss_120b.cell", held("gpt-oss-120b", H100, "sglang").ranks[0].pool.cell_bytes)


def test_sglang_default_fraction():
    check("sglang.memfrac.h100_81559MiB.tp1", held("meta-llama-3.1-8b", H100, "sglang").gpu_memory_utilization)


# --- llama.cpp ------------------------------------------------------------------------------------------------------------------


def test_llama_cpp_keeps_windows_apart():
    found = held("gemma-3-27b-it", H100, "llama.cpp", context_size=32768, ubatch_size=512, max_num_seqs=1)
    assert printed(found, "window_cells") == 1536
    check("llamacpp.gemma3_27b.c32768.base", printed(found, "base_buffer"))
    check("llamacpp.gemma3_27b.c32768.swa", printed(found, "window_buffer"))


def test_llama_cpp_gpt_oss():
    found = held("gpt-oss-20b", H100, "llama.cpp", context_size=131072, max_num_seqs=1)
    check("llamacpp.gpt_oss_20b.c131072.base", printed(found, "base_buffer"))
    check("llamacpp.gpt_oss_20b.swa_cells", printed(found, "window_cells"))


def test_llama_cpp_streams_of_their_own():
    found = held("gpt-oss-20b", H100, "llama.cpp", context_size=16384, max_num_seqs=8, kv_unified=False)
    assert printed(found, "context_cells") == 2048
    check("llamacpp.gpt_oss_20b.np8.c16384.base", printed(found, "base_buffer"))


def test_llama_cpp_window_of_all_slots_in_one_cache():
    found = held("gemma-4-12b-it", H100, "llama.cpp", context_size=131072, max_num_seqs=4, kv_unified=True, ubatch_size=2048)
    check("llamacpp.gemma4.np4.swa_cells", printed(found, "window_cells"))


def test_llama_cpp_four_bit_cache():
    mixers = [attention(48, 8, 128), attention(48, 8, 128, "sliding", window=512)]
    laguna = decoder(hidden=2048, layers=48, mixers=mixers, width=8192, vocab=100_000, pattern=[0, 1, 1, 1] * 12)
    found = held(laguna, H100, "llama.cpp", context_size=1 << 20, max_num_seqs=1, cache_type_k="q4_0", cache_type_v="q4_0")
    check("llamacpp.laguna.q4_0.base", printed(found, "base_buffer"))
    assert printed(found, "window_cells") == 1024
    check("llamacpp.laguna.q4_0.swa", printed(found, "window_buffer"))


# --- TensorRT-LLM ---------------------------------------------------------------------------------------------------------------


def test_tensorrt_llm_pools():
    old = held("meta-llama-3.1-8b", H100, "tensorrt-llm", engine_version="0.15", kv_cache_bytes=int(26.9140625 * GIB))
    assert (old.blocks, old.kv_tokens) == (3445, 220_480)
    check("trtllm.8b.220480", old.kv_tokens * old.kv_bytes_per_token_per_gpu / GIB)
    new = held("meta-llama-3.1-8b", H100, "tensorrt-llm", kv_cache_bytes=1600 * MIB)
    assert (new.blocks, new.kv_tokens) == (400, 12_800)
    check("trtllm.8b.12800", new.kv_tokens * new.kv_bytes_per_token_per_gpu / GIB)
