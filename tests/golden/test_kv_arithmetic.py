"""Golden KV cache figures of attention with keys and values per head, through the cache law of the deployed model."""

from __future__ import annotations

import pytest

from calc.memory.kv_cache import RankCache, rank_caches
from calc.numerics import cache_format
from calc.operators.numbers import plan
from calc.profiles.model import ModelProfile
from tests.support.golden import check
from tests.support.profiles import ONE, attention, decoder, llama


def cache_of(model: ModelProfile, kv_cache: str = "bf16") -> RankCache:
    (only,) = rank_caches(model, ONE, plan("bf16", {}, compute="bf16", kv_cache=kv_cache))
    return only


def stack(layers: int, mixers: list, pattern: list[int] | None = None) -> ModelProfile:
    """Only the caches matter here: any widths do."""
    return decoder(hidden=64, layers=layers, mixers=mixers, pattern=pattern, width=64, vocab=None)


MHA = stack(32, attention(32, 32, 128))
LLAMA_70B = llama("70b")
GEMMA3_27B = stack(62, [attention(32, 16, 128, "sliding", window=1024), attention(32, 16, 128)], [*([0] * 5 + [1]) * 10, 0, 0])
GPT_OSS_120B = stack(36, [attention(64, 8, 64, "sliding", window=128), attention(64, 8, 64)])
LLAMA4_SCOUT = stack(48, [attention(40, 8, 128, "chunked", chunk=8192), attention(40, 8, 128)], ([0] * 3 + [1]) * 12)
HUNYUAN_LARGE = stack(64, [attention(80, 8, 80), attention(80, 8, 80, kv_source="shared")])
GEMMA3N_E4B = stack(
    35,
    [
        attention(8, 2, 256, "sliding", window=512),
        attention(8, 2, 256),
        attention(8, 2, 256, "sliding", window=512, kv_source="shared"),
        attention(8, 2, 256, kv_source="shared"),
    ],
    [*([0] * 4 + [1]) * 4, *([2] * 4 + [3]) * 3],
)


@pytest.mark.parametrize(
    ("identifier", "model"),
    [
        ("kv.mha32x4096.token", MHA),
        ("kv.llama3_70b.token", LLAMA_70B),
        ("kv.llama31_405b.token", llama("405b")),
        ("kv.qwen25_72b.token", stack(80, attention(64, 8, 128))),
        ("kv.hunyuan_large_cla2.token", HUNYUAN_LARGE),
        ("kv.gemma3_27b.full.token", GEMMA3_27B),
        ("kv.gpt_oss_120b.full.token", GPT_OSS_120B),
        ("kv.gemma3n_e4b.full.token", GEMMA3N_E4B),
    ],
)
def test_bytes_per_further_token_count_storing_unbounded_layers_only(identifier, model):
    cache = cache_of(model)
    check(identifier, cache.bytes_per_token)
    long = 1 << 20
    check(identifier, cache.ideal_bytes(long + 1) - cache.ideal_bytes(long))


def test_a_sequence_is_tokens_times_bytes_per_token_where_attention_is_full():
    check("kv.mha32x4096.4096tok", cache_of(MHA).ideal_bytes(4096))


@pytest.mark.parametrize(
    ("identifier", "kv_cache"),
    [
        ("kv.llama3_70b.b16x8192", "bf16"),
        ("kv.llama3_70b.b16x8192.fp8", "fp8"),
        ("kv.llama3_70b.b16x8192.q8_0", "q8_0"),
        ("kv.llama3_70b.b16x8192.fp8_tokenhead", "fp8_per_token_head"),
    ],
)
def test_sixteen_sequences_of_llama_70b_in_each_cache_format(identifier, kv_cache):
    check(identifier, 16 * cache_of(LLAMA_70B, kv_cache).ideal_bytes(8192))


def test_the_published_22_5_gib_would_need_nine_bits_an_element():
    """No 16-bit or 8-bit reading gives the published figure: 9 bits do, or nine sequences in 16 bit."""
    elements = 2 * 80 * 8 * 128 * 16 * 8192
    check("kv.llama3_70b.b16x8192.9bit", elements * 9 / 8)
    check("kv.llama3_70b.b16x8192.9bit", 9 * cache_of(LLAMA_70B).ideal_bytes(8192))


@pytest.mark.parametrize(
    ("identifier", "model"),
    [
        ("kv.gemma3_27b.sliding.max", GEMMA3_27B),
        ("kv.gpt_oss_120b.sliding.max", GPT_OSS_120B),
        ("kv.gemma3n_e4b.sliding.max", GEMMA3N_E4B),
        ("kv.llama4_scout.1Mi.chunked.max", LLAMA4_SCOUT),
    ],
)
def test_bounded_layers_hold_at_most_their_window(identifier, model):
    cache = cache_of(model)
    check(identifier, cache.window_bytes_max)
    long = 1 << 20
    check(identifier, cache.ideal_bytes(long) - long * cache.bytes_per_token)


def test_gemma3_27b_at_its_longest_context():
    check("kv.gemma3_27b.131072.ideal", cache_of(GEMMA3_27B).ideal_bytes(131072))


def test_gemma3_27b_with_windows_ignored_is_the_wrong_answer():
    check("kv.gemma3_27b.131072.allfull", cache_of(stack(62, attention(32, 16, 128))).ideal_bytes(131072))


def test_llama4_scout_full_layers_at_a_mebitoken():
    check("kv.llama4_scout.1Mi.full", (1 << 20) * cache_of(LLAMA4_SCOUT).bytes_per_token)


@pytest.mark.parametrize("kv_cache", ["f16", "q8_0", "q4_0"])
def test_llama_8b_in_the_cache_types_of_llama_cpp(kv_cache):
    check(f"kv.llama31_8b.8192.{kv_cache}", cache_of(llama("8b"), kv_cache).ideal_bytes(8192))


def test_an_nvfp4_head_vector_carries_its_block_scales():
    check("kv.nvfp4.head128", cache_format("nvfp4").vector_bytes(128))
    assert cache_format("bf16").vector_bytes(128) == 256
