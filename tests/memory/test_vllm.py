"""vLLM's law: what each version counts, its defaults by device, how blocks are cut."""

from __future__ import annotations

import pytest

import calc
from calc.errors import UsageError
from calc.memory.kv_cache import MAX_CONTEXT
from calc.serving.deployment import DeploymentOptions, resolve
from tests.support.memory import GIB, held, term
from tests.support.profiles import attention, decoder, device

H100, LLAMA = "h100-sxm5-80gb", "meta-llama-3.1-8b"


@pytest.mark.parametrize(
    ("version", "hardware", "seqs", "tokens"),
    [
        ("0.7", H100, 256, 8192),  # V0: whole prompts
        ("0.9", "t4", 256, 8192),  # still V0 for want of compute capability 8
        ("0.9", H100, 1024, 8192),
        ("0.9", "a100-sxm4-80gb", 256, 2048),  # whatever its memory
        ("0.9", "l40s", 256, 2048),
        ("0.27", "b200-sxm", 1024, 8192),
        ("0.28", "b200-sxm", 1024, 16384),
        ("0.28", "h200-sxm-141gb", 1024, 8192),
    ],
)
def test_batches_by_version_and_device(version, hardware, seqs, tokens):
    found = held(LLAMA, hardware, engine_version=version, max_model_len=8192)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (seqs, tokens)


def test_v0_prefills_long_models_in_chunks():
    assert held(LLAMA, H100, engine_version="0.7", max_model_len=131072).max_num_batched_tokens == 2048


@pytest.mark.parametrize(("version", "share"), [("0.5", 0.90), ("0.23", 0.90), ("0.24", 0.92), (None, 0.92)])
def test_the_default_share_of_memory(version, share):
    assert held(LLAMA, H100, engine_version=version).gpu_memory_utilization == share


def test_graphs_are_counted_since_0_21_and_never_when_eager():
    assert held(LLAMA, H100, engine_version="0.20").graph_bytes_per_gpu == 0
    assert held(LLAMA, H100, engine_version="0.21").graph_bytes_per_gpu > 0
    assert held(LLAMA, H100, engine_version="0.21", enforce_eager=True).graph_bytes_per_gpu == 0


def test_the_sampler_sorts_until_0_15():
    options = {"max_num_seqs": 320, "max_num_batched_tokens": 2048}
    sorting = held("llama-3.2-3b-instruct", "a100-sxm4-40gb", engine_version="0.8.1", **options)
    # the log of this configuration prints 1.49 GiB
    assert sorting.activation_bytes_per_gpu / GIB == pytest.approx(1.49, rel=0.01)
    later = held("llama-3.2-3b-instruct", "a100-sxm4-40gb", engine_version="0.17", **options)
    assert later.activation_bytes_per_gpu < sorting.activation_bytes_per_gpu / 3


def test_the_peak_is_the_largest_never_the_sum():
    few = held(LLAMA, H100, engine_version="0.9", max_num_seqs=1, max_num_batched_tokens=65536)
    assert "layers" in term(few, "activation").evidence
    many = held(LLAMA, H100, engine_version="0.9", max_num_seqs=1024, max_num_batched_tokens=1024)
    assert "sampler" in term(many, "activation").evidence
    tower = held("qwen2.5-vl-7b-instruct", "t4", engine_version="0.9", max_num_seqs=1)
    assert "tower" in term(tower, "activation").evidence


def test_only_the_last_stage_samples():
    found = held(LLAMA, H100, engine_version="0.9", pp=2)
    first, last = (r.term("activation") for r in found.ranks)
    assert first < last


def test_generations_of_one_version():
    old = held(LLAMA, H100, engine_version="0.8.5", engine_generation="v0")
    new = held(LLAMA, H100, engine_version="0.8.5", engine_generation="v1")
    assert (old.max_num_seqs, new.max_num_seqs) == (256, 1024)
    assert held(LLAMA, H100, engine_version="0.8.5-v0").max_num_seqs == 256
    assert held(LLAMA, "t4", engine_version="0.9").max_num_seqs == 256  # V1 needs compute capability 8


def test_windows_are_whole_before_groups_and_when_told():
    at = {v: held("gemma-3-27b-it", H100, engine_version=v, max_model_len=65536, kv_cache_bytes=40 * GIB) for v in ("0.9", "0.11")}
    told = held("gemma-3-27b-it", H100, engine_version="0.11", max_model_len=65536, kv_cache_bytes=40 * GIB, hybrid_kv_cache=False)
    assert at["0.9"].max_concurrency == pytest.approx(told.max_concurrency, rel=1e-6)
    assert at["0.11"].max_concurrency > 3 * at["0.9"].max_concurrency


def test_windows_look_ahead_by_the_tokens_in_flight():
    options = {"max_model_len": 131072, "max_num_batched_tokens": 8192}
    blocks = {
        (version, overlap): held("gemma-3-27b-it", H100, engine_version=version, async_scheduling=overlap, **options)
        .ranks[0]
        .pool.blocks_per_request(131072)
        for version, overlap in (("0.25", None), ("0.26", None), ("0.26", False))
    }
    assert blocks["0.26", False] == blocks["0.25", None] < blocks["0.26", None]
    assert blocks["0.26", None] - blocks["0.25", None] == 6 * 8192 // 16


def test_kinds_of_nearly_equal_counts_make_one_group_each():
    def groups(full, sliding):
        pattern = [0] * full + [1] * sliding
        mixers = [attention(8, 8, 64), attention(8, 8, 64, "sliding", window=256)]
        model = decoder(hidden=512, layers=full + sliding, mixers=mixers, width=1024, vocab=1000, pattern=pattern)
        pool = held(model, device(), engine_version="0.20").ranks[0].pool
        return pool.group_size, sum(g.groups for g in pool.layers)

    assert groups(10, 14) == (14, 2)
    assert groups(10, 15) == (10, 3)
    assert groups(10, 20) == (10, 3)


def test_modes_of_recurrent_state():
    options = {"engine_version": "0.20", "max_model_len": 32768, "kv_cache_bytes": 20 * GIB}
    none, align, whole = (
        held("qwen3.5-9b", H100, state_mode=mode, **options).ranks[0].pool.blocks_per_request(32768)
        for mode in ("none", "align", "all")
    )
    assert none < align < whole
    off = held("qwen3.5-9b", H100, prefix_caching=False, **options).ranks[0].pool.blocks_per_request(32768)
    default = held("qwen3.5-9b", H100, **options).ranks[0].pool.blocks_per_request(32768)
    assert (off, default) == (none, align)
    before = held("qwen3.5-9b", H100, engine_version="0.19", max_model_len=32768).ranks[0].pool.blocks_per_request(32768)
    assert before == none


def test_draft_tokens_need_blocks_and_layers_of_their_own():
    plain = held("deepseek-v3", "h200-sxm-141gb", tp=8)
    drafting = held("deepseek-v3", "h200-sxm-141gb", tp=8, speculative_tokens=1)
    assert drafting.weights_bytes_per_gpu > plain.weights_bytes_per_gpu
    assert drafting.kv_bytes_per_token_per_gpu == plain.kv_bytes_per_token_per_gpu * 62 // 61


@pytest.mark.parametrize(
    ("model", "hardware", "version", "block"),
    [
        (LLAMA, H100, None, 16),
        (LLAMA, "ascend-910b", None, 128),
        ("deepseek-v3", "h200-sxm-141gb", "0.12", 64),
        ("deepseek-v3", "b200-sxm", "0.12", 128),
        ("deepseek-v3", "b200-sxm", "0.20", 64),
        ("deepseek-v3", "a100-sxm4-80gb", "0.12", 16),
        ("deepseek-v3.2", "b200-sxm", "0.12", 64),
    ],
)
def test_blocks_of_the_attention_kernels(model, hardware, version, block):
    assert held(model, hardware, tp=8, engine_version=version).block_tokens == block


def test_blocks_that_the_kernels_refuse():
    with pytest.raises(UsageError, match="refuse blocks of 20"):
        held(LLAMA, H100, block_size=20)
    with pytest.raises(UsageError, match="refuse blocks of 16"):
        held("deepseek-v3", "h200-sxm-141gb", tp=8, block_size=16)
    assert held(LLAMA, H100, block_size=32).block_tokens == 32


@pytest.mark.parametrize(("form", "size"), [("bf16", 78_324), ("fp8_ds_mla", 48_068), ("fp8", 43_188)])
def test_layouts_of_the_latent_cache(form, size):
    assert held("deepseek-v3.2", "h200-sxm-141gb", tp=8, kv_cache_dtype=form).kv_bytes_per_token_per_gpu == size


def test_adapters_reserve_their_slots():
    plain = held(LLAMA, H100, engine_version="0.9")
    ranked = held(LLAMA, H100, engine_version="0.9", lora_slots=2, lora_rank=16)
    layer = (3 * 4096 + 6144) + (4096 + 4096) + (2 * 4096 + 28672) + (14336 + 4096)
    assert ranked.weights_bytes_per_gpu - plain.weights_bytes_per_gpu == 2 * 2 * 16 * (32 * layer + 2 * 128256)
    open_rank = term(held(LLAMA, H100, engine_version="0.9", lora_slots=2), "weights")
    assert open_rank.most - open_rank.least > term(plain, "weights").most - term(plain, "weights").least


def test_rotary_tables_and_padding_are_loaded():
    model = decoder(hidden=512, layers=2, mixers=attention(8, 8, 64), width=1024, vocab=1000, max_position_embeddings=1 << 20)
    short = decoder(hidden=512, layers=2, mixers=attention(8, 8, 64), width=1024, vocab=1000, max_position_embeddings=1)
    found, without = (held(m, device()).weights_bytes_per_gpu for m in (model, short))
    assert found - without == pytest.approx(64 * 2 * (1 << 20), rel=0.01)


def test_a_four_bit_mixture_may_leave_its_attention_in_sixteen():
    spread = term(held("qwen3.5-122b-a10b", "b200-sxm", quantization="nvfp4"), "weights")
    stored = term(held("qwen3.5-122b-a10b", "b200-sxm"), "weights")
    assert (spread.most - spread.least) / spread.bytes > 0.05 > (stored.most - stored.least) / stored.bytes


def test_a_compressed_cache_is_answered_as_a_range():
    found = held("deepseek-v4-flash", "b200-sxm", tp=4)
    assert found.kv_tokens_low < found.kv_tokens < found.kv_tokens_high
    assert any("compress" in text for _, text in found.warnings)


def test_an_encoder_caches_nothing():
    encoder = decoder(hidden=256, layers=4, mixers=attention(4, 4, 64, causal=False), width=512, vocab=1000)
    found = held(encoder, device())
    assert (found.kv_tokens, found.blocks, found.kv_bytes_per_token_per_gpu) == (0, 0, 0)
    assert found.max_context_tokens == MAX_CONTEXT  # memory does not limit it
    assert found.fits


def test_a_decoder_with_an_encoder_caches_its_own_tokens_in_the_room_beside_the_encoders():
    found = held("whisper-large-v3", H100)
    assert found.kv_tokens == int(found.max_concurrency * found.max_model_len)
    assert found.fits


def test_an_encoder_is_split_over_the_ranks():
    whole, half = (held("whisper-large-v3", H100, tp=n).ranks[0].taken[0] for n in (1, 2))
    parts = [{name.split(",")[0]: size for name, size in weights.parts} for weights in (whole, half)]
    assert parts[1]["encoder"] == pytest.approx(
        parts[0]["encoder"] / 2, rel=0.03
    )  # convolutions, positions and norms are replicated


# --- memory of devices ----------------------------------------------------------------------------------------------------------


def test_unified_memory_is_a_range_that_a_warning_names():
    found = held(LLAMA, "apple-m4-max", "llama.cpp")
    memory = term(found, "gpu_memory")
    assert memory.least < memory.bytes < memory.most
    assert memory.bytes == pytest.approx(0.75 * 128 * GIB, rel=1e-6)
    text = dict(found.warnings)["memory_not_reported"]
    assert "48, 64" in text
    assert "--gpu-memory" in text
    settled = held(LLAMA, "apple-m4-max", "llama.cpp", gpu_memory_bytes=96 * GIB)
    assert "memory_not_reported" not in dict(settled.warnings)


def test_cuda_reports_nearly_all_of_a_unified_memory():
    assert term(held(LLAMA, "jetson-agx-orin-64gb"), "gpu_memory").bytes == pytest.approx(0.94 * 64 * GIB, rel=1e-6)


def test_the_default_engine_of_apple_devices():
    loaded = calc.load_model(LLAMA)
    found = {n: resolve(loaded, calc.load_hardware(n), DeploymentOptions()).engine.NAME for n in ("apple-m4-max", H100)}
    assert found == {"apple-m4-max": "llama.cpp", H100: "vllm"}
