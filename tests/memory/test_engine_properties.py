"""What every engine's law must do: more memory, a larger share or shorter requests never hold less; ranges hold the expected value;
the inverse searches agree with the forward law."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.memory.capacity import concurrency, mixed_concurrency
from calc.memory.engines import WITHOUT_LAW, all_engines, engine
from calc.serving import remedies
from calc.serving.deployment import DeploymentOptions
from tests.support.memory import GIB, MIB, deploy, held, term
from tests.support.profiles import attention, decoder, device

ENGINES = [n for n in all_engines() if n not in ("ideal", *WITHOUT_LAW)]
H100 = "h100-sxm5-80gb"
#: One model of every kind of cache: full, windows, latents, states beside attention, states alone, several windows.
MODELS = (
    "meta-llama-3.1-8b",
    "gpt-oss-20b",
    "deepseek-v2-lite",
    "qwen3.5-9b",
    "mamba2-2.7b",
    "gemma-3-12b-it",
)
engines, models = st.sampled_from([*ENGINES, "ideal"]), st.sampled_from(MODELS)
lengths = st.integers(1, 1 << 18)


def ask(model, engine_name, **options):
    """Settled where engines choose by the class of the device: their steps are not monotone in memory."""
    settled = {"max_model_len": 4096, "max_num_batched_tokens": 4096, "max_num_seqs": 64, "gpu_memory_utilization": 0.9}
    return held(model, device(memory_capacity_gb=200.0), engine_name, **(settled | options))


@settings(max_examples=60, deadline=None)
@given(engines, models, st.integers(8, 160), st.integers(0, 40 << 10))
def test_more_memory_never_holds_less(engine_name, model, gib, more):
    less = ask(model, engine_name, gpu_memory_bytes=gib * GIB)
    larger = ask(model, engine_name, gpu_memory_bytes=gib * GIB + more * MIB)
    assert larger.kv_tokens >= less.kv_tokens
    assert larger.blocks >= less.blocks
    assert larger.max_concurrency >= less.max_concurrency
    assert larger.max_context_tokens >= less.max_context_tokens
    assert larger.fits >= less.fits


@settings(max_examples=60, deadline=None)
@given(engines, models, st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_a_larger_share_never_holds_less(engine_name, model, one, other):
    low, high = sorted((one, other))
    less = ask(model, engine_name, gpu_memory_bytes=60 * GIB, gpu_memory_utilization=low)
    larger = ask(model, engine_name, gpu_memory_bytes=60 * GIB, gpu_memory_utilization=high)
    assert larger.kv_cache_bytes_per_gpu >= less.kv_cache_bytes_per_gpu
    assert larger.kv_tokens >= less.kv_tokens


@settings(max_examples=60, deadline=None)
@given(engines, models, lengths, lengths, st.sampled_from([0, 100, 5000]))
def test_longer_requests_never_fit_more_often(engine_name, model, one, other, prefix):
    short, long = sorted((one, other))
    found = ask(model, engine_name, gpu_memory_bytes=80 * GIB)
    assert concurrency(found, long, min(prefix, short)) <= concurrency(found, short, min(prefix, short)) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(engines, models, st.integers(256, 1 << 17), st.floats(0.0, 1.0))
def test_a_shared_prefix_never_costs_room(engine_name, model, context, share):
    found = ask(model, engine_name, gpu_memory_bytes=80 * GIB)
    apart, shared = concurrency(found, context), concurrency(found, context, int(share * context))
    if apart >= 2:  # one request alone has nobody to share with
        assert shared >= apart * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(engines, models, st.integers(10, 160))
def test_ranges_hold_the_expected_value(engine_name, model, gib):
    found = ask(model, engine_name, gpu_memory_bytes=gib * GIB)
    for item in found.terms:
        assert item.least <= item.bytes <= item.most, item.name
    assert found.kv_tokens_low <= found.kv_tokens <= found.kv_tokens_high
    assert found.max_concurrency_low <= found.max_concurrency <= found.max_concurrency_high


@settings(max_examples=40, deadline=None)
@given(engines, models, st.integers(20, 160))
def test_the_longest_context_is_the_longest(engine_name, model, gib):
    found = ask(model, engine_name, gpu_memory_bytes=gib * GIB)
    longest = found.max_context_tokens
    if 0 < longest < 1 << 39:
        assert concurrency(found, longest) >= 1
        assert concurrency(found, longest + 1) < 1


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_blocks_are_counted_within_the_memory(engine_name, model):
    found = ask(model, engine_name, gpu_memory_bytes=80 * GIB)
    used = concurrency(found, 4096) * found.kv_bytes_per_sequence["ideal"]
    assert used <= found.kv_cache_bytes_per_gpu * 1.001
    assert found.kv_bytes_per_sequence["reserved"] >= found.kv_bytes_per_sequence["ideal"] * (1 - 1e-9)


@pytest.mark.parametrize("engine_name", ENGINES)
def test_given_terms_replace_the_law(engine_name):
    found = ask(
        "meta-llama-3.1-8b",
        engine_name,
        gpu_memory_bytes=40 * GIB,
        weights_bytes=17 * GIB,
        activation_bytes=GIB,
        runtime_bytes=2 * GIB,
        graph_bytes=3 * GIB,
    )
    assert term(found, "gpu_memory").bytes == 40 * GIB
    assert term(found, "weights").bytes == 17 * GIB
    assert term(found, "runtime").bytes == 2 * GIB
    if engine_name != "sglang":  # its activations live in what is left free
        assert term(found, "activation").bytes == GIB
        assert term(found, "cuda_graphs").bytes == 3 * GIB
    whole = ask("meta-llama-3.1-8b", engine_name, kv_cache_bytes=5 * GIB)
    assert whole.kv_cache_bytes_per_gpu == 5 * GIB


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_newer_version_is_answered_with_a_warning(engine_name):
    newer = "b99999" if engine_name == "llama.cpp" else "97.1"
    found = ask("meta-llama-3.1-8b", engine_name, engine_version=newer)
    same = ask("meta-llama-3.1-8b", engine_name)
    assert found.kv_tokens == same.kv_tokens
    if engine_name != "llama.cpp":  # builds count on; the law is that of the newest layout known
        assert "engine_version_unknown" in dict(found.warnings)
        assert "engine_version_unknown" not in dict(same.warnings)


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_version_that_is_none_is_refused(engine_name):
    with pytest.raises(UsageError, match=r"version|build"):
        ask("meta-llama-3.1-8b", engine_name, engine_version="fast")


def test_other_names_of_engines():
    assert engine("trtllm").NAME == engine("TensorRT-LLM").NAME == "tensorrt-llm"
    assert engine("llamacpp").NAME == "llama.cpp"


# --- ranks ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_name", ["vllm", "sglang", "tensorrt-llm"])
def test_uneven_stages_the_smallest_rank_rules(engine_name):
    model = decoder(hidden=1024, layers=9, mixers=attention(8, 8, 128), width=4096, vocab=32000)
    even = held(model, device(), engine_name, pp=2, pipeline_layers=(5, 4))
    skewed = held(model, device(), engine_name, pp=2, pipeline_layers=(8, 1))
    assert len(even.ranks) == 2
    assert even.kv_tokens == min(r.pool.printed_tokens(r.kv.bytes, even.max_model_len) for r in even.ranks)
    assert skewed.kv_tokens < even.kv_tokens
    assert skewed.kv_bytes_per_token_per_gpu == 8 * 2 * 8 * 128 * 2


def test_layers_of_stages_must_add_up():
    model = decoder(hidden=1024, layers=9, mixers=attention(8, 8, 128), width=4096, vocab=32000)
    with pytest.raises(UsageError, match="9 layers"):
        held(model, device(), pp=2, pipeline_layers=(5, 5))


def test_more_ranks_than_heads_replicate_the_cache():
    at = {tp: held("qwen3-30b-a3b", H100, tp=tp).kv_bytes_per_token_per_gpu for tp in (1, 4, 8)}
    assert at[4] == at[1] / 4
    assert at[8] == at[4]  # 4 key-value heads


def test_latents_are_not_split_but_contexts_are():
    one, eight = (held("deepseek-v3", "h200-sxm-141gb", tp=tp).kv_bytes_per_token_per_gpu for tp in (1, 8))
    assert eight == one == 70_272
    split = held("deepseek-v3", "h200-sxm-141gb", tp=8, decode_context_parallel_size=8, kv_cache_bytes=20 * GIB)
    whole = held("deepseek-v3", "h200-sxm-141gb", tp=8, kv_cache_bytes=20 * GIB)
    assert split.max_concurrency == pytest.approx(8 * whole.max_concurrency, rel=0.01)


def test_expert_parallelism_deals_experts_over_data_parallel_ranks():
    apart = held("deepseek-v3", "h200-sxm-141gb", dp=8, weights_bytes=None)
    dealt = held("deepseek-v3", "h200-sxm-141gb", dp=8, enable_expert_parallel=True)
    assert dealt.weights_bytes_per_gpu < apart.weights_bytes_per_gpu / 5
    assert dealt.kv_bytes_per_token_per_gpu == apart.kv_bytes_per_token_per_gpu  # attention is whole on every rank


def test_unequal_devices_are_stages_of_their_own():
    import calc as library

    small, large = (library.load_hardware(n).profile for n in ("rtx-3090", "rtx-4090"))
    found = held("qwen2.5-14b-instruct", "rtx-3090", pp=2, devices=(small, large))
    memories = [r.memory.bytes for r in found.ranks]
    assert memories[0] != memories[1]


def test_a_mix_of_lengths_lies_between_its_ends():
    found = held("meta-llama-3.1-8b", H100)
    mixed = mixed_concurrency(found, [(0.5, 1000), (0.5, 9000)])
    assert concurrency(found, 9000) < mixed < concurrency(found, 1000)


# --- the inverse ----------------------------------------------------------------------------------------------------------------


def _find(model, hardware, wanted, length, **options):
    loaded, machine = calc.load_model(model), calc.load_hardware(hardware)
    asked = deploy(model, hardware, **options)
    return loaded, machine, asked, remedies.find(loaded, machine, _options(asked, options), wanted, length)


def _options(deployment, options):
    return DeploymentOptions(
        engine=deployment.engine.NAME,
        tensor_parallel_size=deployment.sharding.tensor,
        pipeline_parallel_size=deployment.sharding.pipeline,
        memory=deployment.memory,
    )


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize(("wanted", "length"), [(20, 4096), (200, 8192)])
def test_remedies_hold_what_they_promise(engine_name, wanted, length):
    loaded, machine, deployment, found = _find("meta-llama-3.1-8b", "l40s", wanted, length, engine=engine_name)
    options = _options(deployment, {})

    def room(changed):
        from calc.serving.deployment import resolve

        return remedies.room(resolve(loaded, machine, changed), length, wanted)

    assert found.fits == (room(options) >= wanted)
    assert found.requests == int(room(options))
    if found.gpu_memory_utilization is not None:
        share = found.gpu_memory_utilization
        at = {s: room(replace(options, memory=replace(options.memory, gpu_memory_utilization=s))) for s in (share, share - 0.001)}
        assert at[share] >= wanted > at[share - 0.001]
    if found.gpus is not None:
        tensor, pipeline = found.gpus.tensor, found.gpus.pipeline
        assert room(replace(options, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)) >= wanted
        if (tensor, pipeline) != (1, 1) and pipeline == 1:
            assert room(replace(options, tensor_parallel_size=tensor // 2, pipeline_parallel_size=1)) < wanted
    if found.kv_cache_dtype is not None:
        assert room(replace(options, kv_cache_dtype=found.kv_cache_dtype)) >= wanted
    if found.quantization is not None:
        assert room(replace(options, quantization=found.quantization)) >= wanted


def test_what_nothing_can_hold_has_no_remedy():
    _, _, _, found = _find("meta-llama-3.1-70b", "rtx-3060-12gb", 1 << 20, 1 << 17)
    assert not found.fits
    assert (found.gpu_memory_utilization, found.gpus, found.kv_cache_dtype, found.quantization) == (None, None, None, None)
    assert found.context == 0


def test_the_longest_length_of_so_many_requests():
    _, _, deployment, found = _find("meta-llama-3.1-8b", H100, 50, 4096)
    assert remedies.room(deployment, found.context, 50) >= 50 > remedies.room(deployment, found.context + 1, 50)
