"""What the KV cache must do whatever the model: grow with tokens, stay within windows, be inverted exactly, replicate under splits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.memory.budget import MemoryOptions
from calc.memory.kv_cache import largest_context, rank_caches
from calc.operators.numbers import plan
from calc.operators.sharding import Sharding, stage_layers
from calc.serving.request import Workload
from tests.support.profiles import BF16, ONE, attention, decoder, deployment, device, llama

MIB, GIB = 1 << 20, 1 << 30
contexts = st.integers(1, 1 << 24)
kv_counts = st.sampled_from([1, 2, 4, 8])
widths = st.sampled_from([32, 64, 96, 128])


def stack(layers, mixers, **rest):
    return decoder(hidden=64, layers=layers, mixers=mixers, width=64, vocab=None, **rest)


def caches(model, sharding=ONE, kv_cache="bf16"):
    return rank_caches(model, sharding, plan("bf16", {}, compute="bf16", kv_cache=kv_cache))


# --- a function of tokens -------------------------------------------------------------------------------------------------------


@given(kv_counts, widths, st.integers(1, 64), contexts, st.integers(1, 1 << 12))
def test_full_attention_is_linear_in_tokens(kv_heads, head_dim, layers, context, times):
    (cache,) = caches(stack(layers, attention(kv_heads * 2, kv_heads, head_dim)))
    assert cache.ideal_bytes(context) == layers * 2 * kv_heads * head_dim * 2 * context
    assert cache.ideal_bytes(times * context) == times * cache.ideal_bytes(context)
    assert cache.bytes_per_token == layers * 2 * kv_heads * head_dim * 2


@given(kv_counts, widths, widths, contexts)
def test_keys_and_values_of_different_width_are_both_counted(kv_heads, keys, values, context):
    (cache,) = caches(stack(3, attention(kv_heads, kv_heads, keys, v_head_dim=values)))
    assert cache.ideal_bytes(context) == 3 * kv_heads * (keys + values) * 2 * context


@given(st.sampled_from([("sliding", "window"), ("chunked", "chunk")]), st.integers(1, 1 << 16), contexts)
def test_windows_and_chunks_store_the_smaller_of_context_and_bound(kind, bound, context):
    (cache,) = caches(stack(5, attention(4, 2, 64, kind[0], **{kind[1]: bound})))
    each = 5 * 2 * 2 * 64 * 2
    assert cache.ideal_bytes(context) == each * min(context, bound)
    assert cache.window_bytes_max == each * bound
    assert cache.bytes_per_token == 0


@given(st.integers(1, 1 << 14), st.integers(1, 1 << 14), contexts)
def test_a_mixed_stack_is_the_sum_of_its_layers(window, chunk, context):
    kinds = [
        attention(8, 2, 64),
        attention(8, 2, 64, "sliding", window=window),
        attention(8, 2, 64, "chunked", chunk=chunk),
        attention(8, 2, 64, kv_source="shared"),
    ]
    pattern = [0, 1, 1, 2, 1, 1, 0, 3, 3]
    (cache,) = caches(stack(9, kinds, pattern=pattern))
    each = 2 * 2 * 64 * 2
    assert cache.ideal_bytes(context) == each * (2 * context + 4 * min(context, window) + min(context, chunk))


@given(contexts, st.integers(0, 1 << 20), st.integers(1, 1 << 12))
def test_more_tokens_never_take_fewer_bytes(context, more, window):
    (cache,) = caches(stack(4, [attention(8, 2, 64), attention(8, 2, 64, "sliding", window=window)]))
    assert cache.ideal_bytes(context + more) >= cache.ideal_bytes(context)


@pytest.mark.parametrize(
    ("kv_cache", "bytes_of_a_head"),
    [
        ("bf16", 256),
        ("fp8", 128),
        ("int8", 128),
        ("fp8_per_token_head", 132),
        ("int4_per_token_head", 68),
        ("nvfp4", 72),
        ("q8_0", 136),
        ("q5_1", 96),
        ("q5_0", 88),
        ("q4_1", 80),
        ("q4_0", 72),
        ("iq4_nl", 72),
    ],
)
def test_cache_formats_carry_their_scales(kv_cache, bytes_of_a_head):
    (cache,) = caches(stack(1, attention(1, 1, 128)), kv_cache=kv_cache)
    assert cache.ideal_bytes(10) == 10 * 2 * bytes_of_a_head


# --- its inverse ----------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 39))
def test_largest_context_is_the_last_one_that_fits(limit):
    assert largest_context(lambda c: c <= limit) == limit


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 14))
def test_inverse_of_a_window_stack_is_exact(memory, window):
    (cache,) = caches(stack(4, [attention(8, 2, 64), attention(8, 2, 64, "sliding", window=window)]))
    longest = largest_context(lambda c: cache.ideal_bytes(c) <= memory)
    if longest:
        assert cache.ideal_bytes(longest) <= memory
    assert cache.ideal_bytes(longest + 1) > memory


# --- splits -----------------------------------------------------------------------------------------------------------------------


@given(st.sampled_from([1, 2, 4, 8, 16]), kv_counts, contexts)
def test_key_value_heads_fewer_than_ranks_are_replicated(tp, kv_heads, context):
    model = stack(3, attention(16, kv_heads, 64))
    (whole,), (rank,) = caches(model), caches(model, Sharding(tensor=tp))
    assert rank.ideal_bytes(context) == 3 * max(1, kv_heads // tp) * 2 * 64 * 2 * context
    assert rank.ideal_bytes(context) * tp == whole.ideal_bytes(context) * max(1, tp // kv_heads)


def vllm_stages(layers: int, stages: int) -> list[int]:
    """The even split with the remainder given one by one to stages counted from the second-last backwards."""
    parts = [layers // stages] * stages
    for i in range(2, layers % stages + 2):
        parts[-i] += 1
    return parts


@given(st.integers(1, 200), st.integers(1, 64))
def test_pipeline_stages_split_layers_as_vllm_does(layers, stages):
    if stages <= layers:
        assert stage_layers(layers, stages) == vllm_stages(layers, stages)


def test_sixty_one_layers_on_four_stages():
    assert stage_layers(61, 4) == [15, 15, 16, 15]


@given(st.integers(2, 40), st.integers(1, 8), contexts)
def test_caches_of_all_stages_sum_to_the_whole(layers, stages, context):
    stages = min(stages, layers)
    kinds = [attention(8, 2, 64), attention(8, 2, 64, "sliding", window=100)]
    model = stack(layers, kinds, pattern=[i % 2 for i in range(layers)])
    (whole,) = caches(model)
    parts = caches(model, Sharding(pipeline=stages))
    assert len(parts) == stages
    assert sum(p.ideal_bytes(context) for p in parts) == whole.ideal_bytes(context)


@given(st.integers(1, 8), contexts)
def test_data_parallel_replicas_do_not_change_the_bytes_of_a_rank(data, context):
    model = stack(3, attention(8, 8, 64))
    assert caches(model, Sharding(data=data))[0].ideal_bytes(context) == caches(model)[0].ideal_bytes(context)


@given(st.sampled_from([1, 2, 4]), st.integers(1, 1 << 20))
def test_decode_context_parallel_ranks_share_the_tokens_of_a_sequence(ranks, context):
    """Eight ranks on two heads hold every head four times; sharing tokens among ``ranks`` of them removes that much."""
    model = stack(3, attention(8, 2, 64))
    (alone,) = caches(model, Sharding(tensor=8))
    (shared,) = caches(model, Sharding(tensor=8, decode_context=ranks))
    assert shared.ideal_bytes(context) == alone.ideal_bytes(-(-context // ranks))


# --- through the engines' laws ------------------------------------------------------------------------------------------------------

MODEL = decoder(hidden=1024, layers=16, mixers=attention(16, 4, 64), width=4096, vocab=32000, max_position_embeddings=1 << 20)
WINDOWED = decoder(
    hidden=1024,
    layers=16,
    mixers=[attention(16, 4, 64, "sliding", window=512), attention(16, 4, 64)],
    pattern=([0] * 3 + [1]) * 4,
    width=4096,
    vocab=32000,
    max_position_embeddings=1 << 20,
)
FULL_CARD = device(memory_reported_mib=81920.0)


def held(model=MODEL, engine="vllm", sharding=None, **memory):
    return calc.capacity_deployment(deployment(model, FULL_CARD, engine=engine, memory=MemoryOptions(**memory), **(sharding or {})))


@pytest.mark.parametrize("engine", ["ideal", "vllm"])
@settings(max_examples=30)
@given(st.integers(64 * MIB, 64 * GIB), st.integers(0, 4 * GIB))
def test_more_kv_memory_never_holds_less(engine, memory, more):
    small, large = (held(engine=engine, kv_cache_bytes=b, max_model_len=4096) for b in (memory, memory + more))
    for key in ("kv_tokens", "blocks", "max_concurrency", "max_context_tokens"):
        assert getattr(large, key) >= getattr(small, key)


@settings(max_examples=30)
@given(st.integers(1 * MIB, 64 * GIB), st.sampled_from([8, 16, 32]))
def test_vllm_blocks_are_memory_over_page_over_layers(memory, block):
    found = held(kv_cache_bytes=memory, block_size=block, max_model_len=4096)
    page = block * 4 * (64 + 64) * 2
    assert found.block_tokens == block
    assert found.blocks == memory // page // 16
    assert found.max_concurrency == pytest.approx(found.blocks / (4096 // block))
    assert found.kv_tokens == found.blocks * block


@settings(max_examples=30)
@given(st.integers(1 * MIB, 8 * GIB), st.sampled_from([2, 4, 8]))
def test_vllm_blocks_of_a_rank_use_its_own_heads(memory, tp):
    found = held(sharding={"tensor_parallel_size": tp}, kv_cache_bytes=memory, max_model_len=4096)
    assert found.blocks == memory // (16 * max(1, 4 // tp) * 128 * 2) // 16


@settings(max_examples=30)
@given(st.integers(1 * MIB, 8 * GIB), st.sampled_from([2, 3, 5]))
def test_the_stage_with_the_most_layers_rules_the_blocks(memory, pp):
    found = held(sharding={"pipeline_parallel_size": pp}, kv_cache_bytes=memory, max_model_len=4096)
    assert found.blocks == memory // (16 * 4 * 128 * 2) // max(stage_layers(16, pp))


@settings(max_examples=30)
@given(st.sampled_from([MODEL, WINDOWED]), st.integers(16 * MIB, 16 * GIB))
def test_the_longest_context_fits_and_one_token_more_does_not(model, memory):
    found = held(model, "ideal", kv_cache_bytes=memory, max_model_len=4096)
    (cache,) = caches(model)
    assert cache.ideal_bytes(found.max_context_tokens) <= memory < cache.ideal_bytes(found.max_context_tokens + 1)


@pytest.mark.parametrize("engine", ["ideal", "vllm"])
@pytest.mark.parametrize("model", [MODEL, WINDOWED], ids=["full", "windowed"])
def test_reserved_bytes_are_never_below_ideal(model, engine):
    for length in (1, 15, 16, 17, 1000, 4096, 100_001):
        sizes = held(model, engine, max_model_len=length).kv_bytes_per_sequence
        assert sizes["reserved"] >= sizes["ideal"] > 0
        assert sizes["read_per_step"] <= sizes["ideal"]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 1000, 4096])
def test_block_rounding_wastes_less_than_a_block(length):
    sizes = held(max_model_len=length).kv_bytes_per_sequence
    token = 16 * 4 * 128 * 2
    assert sizes["reserved"] == -(-length // 16) * 16 * token
    assert sizes["ideal"] == length * token


def test_bytes_per_sequence_are_summed_over_the_ranks_of_a_replica():
    one, eight = (held(sharding={"tensor_parallel_size": n}, max_model_len=4096).kv_bytes_per_sequence for n in (1, 8))
    assert eight["ideal"] == 2 * one["ideal"], "eight ranks on four heads hold each head twice"
    two = held(sharding={"pipeline_parallel_size": 2}, max_model_len=4096).kv_bytes_per_sequence
    assert two["ideal"] == one["ideal"]


# --- the budget ---------------------------------------------------------------------------------------------------------------------


def test_ideal_budget_is_memory_times_utilisation_less_weights():
    found = held(engine="ideal", max_model_len=4096)
    weights = calc_weights(MODEL)
    assert found.weights_bytes_per_gpu == weights
    assert found.gpu_memory_utilization == 1.0
    assert found.capacity_bytes_per_gpu == 81920 * MIB
    assert found.kv_cache_bytes_per_gpu == 81920 * MIB - weights
    assert found.activation_bytes_per_gpu == found.runtime_bytes_per_gpu == found.graph_bytes_per_gpu == 0
    assert found.block_tokens == 1


def calc_weights(model) -> int:
    from calc.operators.parameters import count_parameters

    return 2 * count_parameters(model).total


def test_ideal_budget_takes_a_utilisation():
    found = held(engine="ideal", max_model_len=4096, gpu_memory_utilization=0.5)
    assert found.kv_cache_bytes_per_gpu == pytest.approx(81920 * MIB * 0.5 - calc_weights(MODEL), abs=1)


def test_vllm_budget_terms_add_up():
    found = held(max_model_len=4096, gpu_memory_utilization=0.9)
    parts = (
        found.weights_bytes_per_gpu
        + found.activation_bytes_per_gpu
        + found.runtime_bytes_per_gpu
        + found.graph_bytes_per_gpu
        + found.kv_cache_bytes_per_gpu
    )
    assert parts == pytest.approx(found.capacity_bytes_per_gpu * 0.9, abs=2)


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("kv_cache_bytes", "kv_cache_bytes_per_gpu"),
        ("weights_bytes", "weights_bytes_per_gpu"),
        ("activation_bytes", "activation_bytes_per_gpu"),
        ("gpu_memory_bytes", "capacity_bytes_per_gpu"),
    ],
)
def test_every_term_is_replaced_by_what_the_user_gives(option, key):
    given = 7 * GIB if option != "gpu_memory_bytes" else 40 * GIB
    found = held(max_model_len=4096, **{option: given})
    assert getattr(found, key) == given
    terms = {t.name: t for t in found.terms}
    assert any(t.bytes == given and t.evidence == "given" for t in terms.values()), terms


def test_every_term_names_its_evidence_and_its_range_holds_its_value():
    for engine in ("ideal", "vllm"):
        for term in held(engine=engine, max_model_len=4096).terms:
            assert term.name
            assert term.evidence
            assert term.least <= term.bytes <= term.most


# --- does it fit ----------------------------------------------------------------------------------------------------------------------


def answer(**workload):
    return calc.estimate_deployment(deployment(MODEL, device(memory_reported_mib=8192.0)), Workload(**workload))


@settings(max_examples=25)
@given(st.integers(1, 2000), st.integers(1, 20_000), st.integers(1, 2000))
def test_what_is_offered_instead_fits_and_one_more_does_not(batch, input_len, output_len):
    found = answer(batch_size=batch, input_len=input_len, output_len=output_len)
    times = (found.prefill.time_s, found.decode.time_s, found.request.ttft_s, found.request.tpot_s, found.request.e2e_s)
    if found.fit.fits:
        assert all(t.expected is not None for t in times)
        return
    assert all((t.floor, t.low, t.expected, t.high) == (None,) * 4 for t in times)
    largest, longest = found.fit.largest_batch, found.fit.largest_context
    if largest:
        assert answer(batch_size=largest, input_len=input_len, output_len=output_len).fit.fits
    assert not answer(batch_size=(largest or 0) + 1, input_len=input_len, output_len=output_len).fit.fits
    assert longest < input_len + output_len
    if longest > 1:
        assert answer(batch_size=batch, input_len=longest - 1, output_len=1).fit.fits
    if longest:
        assert not answer(batch_size=batch, input_len=longest, output_len=1).fit.fits


def test_weights_that_do_not_fit_are_named():
    found = calc.estimate_deployment(deployment(llama("70b"), FULL_CARD), Workload())
    assert not found.fit.fits
    assert found.fit.too_large == "weights"
    assert not found.fit.largest_batch
    assert not found.fit.largest_context


def test_a_cache_that_does_not_fit_is_named():
    found = calc.estimate_deployment(deployment(llama("8b"), FULL_CARD), Workload(batch_size=1000, input_len=8192))
    assert not found.fit.fits
    assert found.fit.too_large == "kv_cache"


def test_numbers_used_here_are_16_bit():
    assert BF16.keys.vector_bytes(64) == 128
