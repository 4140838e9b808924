"""Golden values 7.1 and 7.7: keys, values and states per sequence."""

from __future__ import annotations

import pytest

from calc.numerics import CacheFormat, cache_format
from calc.operators.cache_law import CacheLaw
from calc.operators.layer_kinds import cache_laws
from calc.operators.numbers import NumberPlan, plan
from calc.profiles.model import FullAttention, LayerKind, ModelProfile, Rwkv, ShortConvolution, SlidingAttention
from tests.operators import architectures as known
from tests.operators.builders import BF16, cache_bytes, check_golden, laws, model, uniform


def cache_plan(name: str) -> NumberPlan:
    return plan("bf16", {}, compute="bf16", kv_cache=name)


def slope(profile: ModelProfile, numbers: NumberPlan = BF16) -> float:
    """Bytes per further token at large context."""
    return sum(
        count * law.token_bytes(numbers.keys, numbers.values) / law.tokens_per_entry
        for name, count in profile.layer_counts().items()
        for law in cache_laws(profile.layer_kinds[name], 1, profile.hidden_size)
        if law.grows
    )


def bounded(profile: ModelProfile) -> float:
    """Most bytes of windows and chunks."""
    return sum(
        count * law.token_bytes(BF16.keys, BF16.values) * (law.limit or 0)
        for name, count in profile.layer_counts().items()
        for law in cache_laws(profile.layer_kinds[name], 1, profile.hidden_size)
        if not law.grows
    )


def sequence(profile: ModelProfile, tokens: int, numbers: NumberPlan = BF16) -> float:
    return sum(
        count * cache_bytes(mixer, tokens, numbers=numbers, hidden_size=profile.hidden_size)
        for name, count in profile.layer_counts().items()
        for mixer in profile.layer_kinds[name].mixers
    )


def test_per_head_caches() -> None:
    check_golden("kv.mha32x4096.token", slope(known.MHA_32, cache_plan("fp16")))
    check_golden("kv.mha32x4096.4096tok", sequence(known.MHA_32, 4096, cache_plan("fp16")))
    check_golden("kv.llama3_70b.token", slope(known.LLAMA_70B))
    check_golden("kv.llama3_70b.b16x8192", 16 * sequence(known.LLAMA_70B, 8192))
    check_golden("kv.llama31_405b.token", slope(known.LLAMA_405B))
    check_golden("kv.qwen25_72b.token", slope(known.QWEN25_72B))


@pytest.mark.parametrize(("suffix", "name"), [("fp8", "fp8"), ("q8_0", "q8_0"), ("fp8_tokenhead", "fp8-per-token-head")])
def test_quantised_caches(suffix: str, name: str) -> None:
    check_golden(f"kv.llama3_70b.b16x8192.{suffix}", 16 * sequence(known.LLAMA_70B, 8192, cache_plan(name)))


def test_nine_bits_per_element_give_22_5_gib() -> None:
    nine = CacheFormat("8 bits with a 16-bit scale per 16", 8, block=16, block_bytes=2)
    law = CacheLaw("full", ((8, 128),), ((8, 128),))
    check_golden("kv.llama3_70b.b16x8192.9bit", 80 * 16 * 8192 * law.token_bytes(nine, nine))


@pytest.mark.parametrize("name", ["f16", "q8_0", "q4_0"])
def test_llama_8b_by_format(name: str) -> None:
    check_golden(f"kv.llama31_8b.8192.{name}", sequence(known.LLAMA_8B, 8192, cache_plan(name)))


def test_nvfp4_head_vector() -> None:
    check_golden("kv.nvfp4.head128", cache_format("nvfp4").vector_bytes(128))


def test_latent_caches() -> None:
    check_golden("kv.deepseek_v3.token.bf16", slope(known.DEEPSEEK_V3))
    check_golden("kv.deepseek_v32.token.bf16", slope(known.DEEPSEEK_V32))
    check_golden("kv.deepseek_v32.token.fp8_ds_mla", slope(known.DEEPSEEK_V32, cache_plan("fp8-ds-mla")))
    naive = uniform(
        7168, 1000, 61, [FullAttention(num_attention_heads=128, num_key_value_heads=128, head_dim=192, v_head_dim=128)], []
    )
    check_golden("kv.deepseek_v3.token.naive_mha", slope(naive))
    check_golden("state.kimi_linear.kv.token", slope(known.kimi_linear()))


def test_latent_cache_is_whole_on_every_rank() -> None:
    for tensor in (1, 2, 8):
        assert cache_bytes(known.DEEPSEEK_V3_ATTENTION, 100, tensor=tensor) == 100 * 1152


def test_windows_and_chunks() -> None:
    check_golden("kv.gemma3_27b.full.token", slope(known.GEMMA3_27B))
    check_golden("kv.gemma3_27b.sliding.max", bounded(known.GEMMA3_27B))
    check_golden("kv.gemma3_27b.131072.ideal", sequence(known.GEMMA3_27B, 131072))
    check_golden("kv.gpt_oss_120b.full.token", slope(known.GPT_OSS_120B))
    check_golden("kv.gpt_oss_120b.sliding.max", bounded(known.GPT_OSS_120B))
    scout = known.llama4_scout()
    check_golden("kv.llama4_scout.1Mi.full", slope(scout) * (1 << 20))
    check_golden("kv.llama4_scout.1Mi.chunked.max", bounded(scout))
    assert sequence(scout, 1 << 20) == slope(scout) * (1 << 20) + bounded(scout)


def test_ignoring_windows_would_give_the_known_wrong_answer() -> None:
    full = known.GEMMA3_27B.layer_kinds["full"].mixers[0]
    check_golden("kv.gemma3_27b.131072.allfull", 62 * cache_bytes(full, 131072))


def test_shared_caches_are_stored_once() -> None:
    heads = {"num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 80}
    kinds = {
        "own": LayerKind(mixers=[FullAttention(**heads)]),
        "shared": LayerKind(mixers=[FullAttention(**heads, kv_source="shared", kv_weights_stored=False)]),
    }
    from calc.profiles.model import Block

    hunyuan = model(6400, 128512, kinds, [Block(repeat=32, layers=["own", "shared"])])
    check_golden("kv.hunyuan_large_cla2.token", slope(hunyuan))

    gemma = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256}
    kinds = {
        "sliding": LayerKind(mixers=[SlidingAttention(**gemma, window=512)]),
        "full": LayerKind(mixers=[FullAttention(**gemma)]),
        "shared sliding": LayerKind(mixers=[SlidingAttention(**gemma, window=512, kv_source="shared")]),
        "shared full": LayerKind(mixers=[FullAttention(**gemma, kv_source="shared")]),
    }
    stack = [
        Block(repeat=4, layers=["sliding"] * 4 + ["full"]),
        Block(repeat=3, layers=["shared sliding"] * 4 + ["shared full"]),
    ]
    gemma3n = model(2048, 262400, kinds, stack)
    assert gemma3n.num_hidden_layers == 35
    check_golden("kv.gemma3n_e4b.full.token", slope(gemma3n))
    check_golden("kv.gemma3n_e4b.sliding.max", bounded(gemma3n))


def test_delta_rule_states() -> None:
    bf16_state = plan("bf16", {}, compute="bf16", state_dtype="bf16")
    check_golden("state.qwen3_next.layer.bf16", cache_bytes(known.QWEN3_NEXT_LINEAR, 7, numbers=bf16_state))
    check_golden("state.qwen3_next.layer.fp32", cache_bytes(known.QWEN3_NEXT_LINEAR, 7))
    check_golden("state.qwen3_next.seq.fp32", 36 * cache_bytes(known.QWEN3_NEXT_LINEAR, 7))
    check_golden("state.qwen3_next.kv.token", slope(known.QWEN3_NEXT))
    check_golden("state.qwen35_0.8b.layer.fp32", cache_bytes(known.QWEN35_08B_LINEAR, 7))
    # Kimi's state stays fp32 whatever the state dtype asks.
    check_golden("state.kimi_linear.layer", cache_bytes(known.KIMI_LINEAR_KDA, 7, numbers=bf16_state))
    check_golden("state.kimi_linear.seq", 20 * cache_bytes(known.KIMI_LINEAR_KDA, 7))


def test_other_states() -> None:
    bf16_state = plan("bf16", {}, compute="bf16", state_dtype="bf16")
    check_golden("state.minimax_01.seq.bf16", 70 * cache_bytes(known.LIGHTNING, 7, numbers=bf16_state))
    assert 70 * cache_bytes(known.LIGHTNING, 7) == 2 * 146_800_640
    check_golden("state.mamba2_2.7b.seq.fp32", 64 * cache_bytes(known.MAMBA2_27B_MIXER, 7))
    check_golden("state.mamba1_2.8b.seq.fp32", 64 * cache_bytes(known.MAMBA1_28B_MIXER, 7))
    check_golden("state.recurrentgemma_9b.seq", 26 * cache_bytes(known.RECURRENT_GEMMA_9B_UNIT, 7))
    rwkv = Rwkv(version=7, attention_size=2560, head_dim=64)
    check_golden("state.rwkv7_2.9b.seq", 32 * cache_bytes(rwkv, 7, hidden_size=2560))
    check_golden("state.lfm2_1.2b.seq", 10 * cache_bytes(ShortConvolution(conv_kernel=3), 7, hidden_size=2048))


def test_states_do_not_depend_on_the_context() -> None:
    for mixer in (known.QWEN3_NEXT_LINEAR, known.KIMI_LINEAR_KDA, known.LIGHTNING, known.MAMBA2_27B_MIXER):
        assert cache_bytes(mixer, 1) == cache_bytes(mixer, 1_000_000)


def test_compressed_caches() -> None:
    """DeepSeek-V4-Flash: 584-byte entries at ratios 4 and 128, an index key per 4 tokens, a window of 128 everywhere."""
    packed = cache_plan("fp8-ds-mla")
    window, entries = laws(known.deepseek_v4_mixer(4))
    assert (window.limit, window.token_bytes(packed.keys, packed.values)) == (128, 584)
    assert entries.token_bytes(packed.keys, packed.values) == 584 + 132
    assert [entries.stored_tokens(c) for c in (3, 4, 7, 8)] == [0, 1, 1, 2]
    (alone,) = laws(known.deepseek_v4_mixer(0))
    assert alone == window
    layers = [0, 0] + [4, 128] * 20 + [4]
    per_token = sum(
        law.token_bytes(packed.keys, packed.values) / law.tokens_per_entry
        for ratio in layers
        for law in laws(known.deepseek_v4_mixer(ratio))
        if law.grows
    )
    assert per_token == 21 * (584 + 132) / 4 + 20 * 584 / 128


def test_packed_formats_refuse_other_widths() -> None:
    from calc.errors import UsageError

    with pytest.raises(UsageError, match="no layout for vectors of 128"):
        cache_bytes(known.LLAMA_8B.layer_kinds["layer"].mixers[0], 1, numbers=cache_plan("fp8-ds-mla"))
