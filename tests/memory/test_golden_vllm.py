"""vLLM's published start-up figures, reproduced from model, version and the memory that was left."""

from __future__ import annotations

import pytest

from calc.memory.engines.vllm_blocks import BlockPool, Group
from calc.operators.cache_law import CacheLaw
from tests.support.golden import check
from tests.support.memory import GIB, MIB, held, printed

H100 = "h100-sxm5-80gb"


@pytest.mark.parametrize(
    ("block", "padding", "model", "options"),
    [
        (
            "vllm.qwen3_next.tp2.block",
            "vllm.qwen3_next.tp2.pad_pct",
            "qwen3-next-80b-a3b-instruct",
            {"tp": 2, "engine_version": "0.10.2"},
        ),
        ("vllm.qwen35_0.8b.block", "vllm.qwen35_0.8b.pad_pct", "qwen3.5-0.8b", {"engine_version": "0.22"}),
        (
            "vllm.kimi_linear.tp2.block",
            "vllm.kimi_linear.tp2.pad_pct",
            "kimi-linear-48b-a3b-instruct",
            {"tp": 2, "engine_version": "0.11"},
        ),
    ],
)
def test_a_block_holds_one_recurrent_state(block, padding, model, options):
    found = held(model, H100, **options)
    check(block, found.block_tokens)
    check(padding, printed(found, "page_padding"))


def test_era_b_shares_the_blocks_out_among_the_groups():
    # 16 attention and 48 recurrent layers: four groups of 16
    found = held(
        "qwen3.5-27b",
        H100,
        engine_version="0.19.0",
        prefix_caching=False,
        max_model_len=32768,
        kv_cache_bytes=1487 * 16 * 784 * 4096,
    )
    check("vllm.qwen36_27b.block", found.block_tokens)
    assert found.blocks == 1487
    check("vllm.qwen35_27b.tokens", found.kv_tokens)
    check("vllm.qwen35_27b.concurrency", found.max_concurrency)
    newer = held(
        "qwen3.5-27b", H100, engine_version="0.22", prefix_caching=False, max_model_len=32768, kv_cache_bytes=1487 * 16 * 784 * 4096
    )
    assert newer.kv_tokens == 1_082_800  # what the next era would print for the same blocks


def test_two_blocks_a_state_when_it_is_cached_at_block_boundaries():
    found = held(
        "qwen3.5-122b-a10b",
        H100,
        engine_version="0.19.0",
        state_mode="align",
        max_model_len=131072,
        kv_cache_bytes=361 * 12 * 4_292_608,
    )
    check("vllm.64vheads.block", found.block_tokens)
    assert found.blocks == 361
    check("vllm.pr30515.tokens", found.kv_tokens)
    check("vllm.pr30515.concurrency", found.max_concurrency)


def test_era_c_prints_concurrency_times_length():
    found = held("qwen3.5-0.8b", H100, engine_version="0.22", max_model_len=262144, kv_cache_bytes=int(67.081 * GIB))
    check("vllm.qwen35_0.8b.blocks", found.blocks)
    check("vllm.qwen35_0.8b.tokens", found.kv_tokens)


def test_era_c_of_a_pool_whose_block_count_is_known():
    from dataclasses import replace

    base = held("meta-llama-3.1-8b", H100, engine_version="0.24").ranks[0].pool
    full = CacheLaw("full", ((8, 128),), ((8, 128),))
    pool = BlockPool(base.cache, 1.0, 1, (Group(full, 32, 1, 2416),), 2416, replace(base.settings, token_line="C"))
    assert pool.blocks_per_request(1_000_000) == 414
    check("vllm.glm.tokens", pool.printed_tokens(643, 1_000_000))


def test_windows_and_full_layers_share_a_pool():
    found = held("gpt-oss-120b", H100, engine_version="0.11", kv_cache_bytes=int(5.3823 * GIB))
    assert found.blocks == 9798
    check("vllm.gpt_oss_120b.tokens", found.kv_tokens)


def test_gemma_3_takes_seven_groups():
    pool = held("gemma-3-27b-it", H100, engine_version="0.11", max_model_len=131072, max_num_batched_tokens=8192).ranks[0].pool
    check("vllm.gemma3_27b.groups", sum(g.groups for g in pool.layers))
    check("vllm.gemma3_27b.blocks_per_req", pool.blocks_per_request(131072))
    check("vllm.gemma3_27b.bytes_per_req", pool.reserved_bytes(131072))


def test_v0_prints_blocks_of_sixteen_tokens():
    found = held("meta-llama-3.1-8b", "rtx-3090", engine_version="0.6", max_model_len=20000, kv_cache_bytes=1952 * 2 * MIB)
    assert found.blocks == 1952
    check("vllm.v0.llama31_8b_3090.bytes", found.blocks * found.block_tokens * found.kv_bytes_per_token_per_gpu)
    check("vllm.v0.llama31_8b_3090.concurrency", found.max_concurrency)
    fewer = held("meta-llama-3.1-8b", "rtx-3090", engine_version="0.6", max_model_len=20000, kv_cache_bytes=1478 * 2 * MIB)
    assert fewer.kv_tokens == 23_648


def test_early_v1_divides_tokens_by_length():
    per_block = 16 * held("meta-llama-3.1-8b", H100).kv_bytes_per_token_per_gpu
    found = held("meta-llama-3.1-8b", H100, engine_version="0.8", max_model_len=2048, kv_cache_bytes=int(127_626 * per_block))
    assert found.kv_tokens == 2_042_016
    check("vllm.v1.pr13596.concurrency", found.max_concurrency)
    few = held("meta-llama-3.1-8b", H100, engine_version="0.8", max_model_len=2048, kv_cache_bytes=int(1381 * per_block))
    assert few.max_concurrency == pytest.approx(10.79, abs=0.005)
