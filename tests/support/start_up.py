"""Start-up texts in each engine's wording, written from records of real logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from benchmarks.memory import DEFAULT_RECORDS, load
from benchmarks.memory_model.spellings import cache_formats

Record = dict[str, Any]


@cache
def records() -> list[Record]:
    """The records of the benchmark."""
    return load(DEFAULT_RECORDS)


def record(identifier: str) -> Record:
    """One of them."""
    return next(r for r in records() if r["id"] == identifier)


def start_up(of: Record) -> str:
    """The start-up text that would have held the record's figures."""
    writer = {"vllm": _vllm, "sglang": _sglang, "llama.cpp": _llama_cpp, "trt-llm": _tensorrt_llm}[of["engine"]]
    return "\n".join(writer(of, {k: v for k, v in of["reported"].items() if v is not None})) + "\n"


def _vllm(of: Record, r: dict[str, Any]) -> Iterator[str]:
    old = of["engine_generation"] == "v0"
    generation, stamp = ("V0", "INFO 06-07 12:34:56") if old else ("V1", "(EngineCore_0 pid=812) INFO 06-07 12:34:56")
    version, length = of["engine_version"] or "0.9.1", of["max_model_len"] or 4096
    settings = {
        "model": repr(of["model"] or "some/model"),
        "tokenizer": repr(of["model"] or "some/model"),
        "dtype": "torch.bfloat16",
        "max_seq_len": length,
        "tensor_parallel_size": of["tp"] or 1,
        "pipeline_parallel_size": of["pp"] or 1,
        "quantization": "None",
        "enforce_eager": "False",
        "kv_cache_dtype": "auto",
    }
    listed = ", ".join(f"{k}={v}" for k, v in settings.items())
    yield "INFO 06-07 12:34:50 [__init__.py:239] Automatically detected platform cuda."
    yield f"{stamp} [llm_engine.py:240] Initializing a {generation} LLM engine (v{version.split()[0]}) with config: {listed}"
    yield f"{stamp} [loader.py:447] Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:03<00:00, 1.2it/s]"
    if "weights_gib_per_gpu" in r:
        yield f"{stamp} [model_runner.py:1146] Model loading took {r['weights_gib_per_gpu']:.4f} GiB and 6.214981 seconds"
    yield from _vllm_memory(of, r, old, stamp)
    if "attention_block_size" in r:
        yield (
            f"{stamp} [config.py:376] Setting attention block size to {r['attention_block_size']} tokens to ensure that attention "
            "page size is >= mamba page size."
        )
    if "mamba_page_padding_pct" in r:
        yield (
            f"{stamp} [config.py:397] Padding mamba page size by {r['mamba_page_padding_pct']:.2f}% to ensure that mamba page size and "
            "attention page size are exactly equal."
        )
    if "max_concurrency" in r:
        asked = f"{length:,}" if not old else length
        yield f"{stamp} [kv_cache_utils.py:638] Maximum concurrency for {asked} tokens per request: {r['max_concurrency']:.2f}x"
    if "cuda_graph_gib" in r:
        yield f"{stamp} [model_runner.py:1592] Graph capturing finished in 21 secs, took {r['cuda_graph_gib']:.2f} GiB"


def _vllm_memory(of: Record, r: dict[str, Any], old: bool, stamp: str) -> Iterator[str]:
    share, total = of["gpu_memory_utilization"], of["gpu_memory_gib"]
    if old:
        if share and total:
            yield (
                f"{stamp} [worker.py:287] the current vLLM instance can use total_gpu_memory ({total:.2f}GiB) x "
                f"gpu_memory_utilization ({share:.2f}) = {share * total:.2f}GiB"
            )
        parts = [
            (key, text)
            for key, text in (
                ("weights_gib_per_gpu", "model weights take {:.2f}GiB"),
                ("non_torch_gib", "non_torch_memory takes {:.2f}GiB"),
                ("activation_peak_gib", "PyTorch activation peak memory takes {:.2f}GiB"),
                ("kv_cache_gib_per_gpu", "the rest of the memory reserved for KV Cache is {:.2f}GiB."),
            )
            if key in r
        ]
        if parts:
            yield f"{stamp} [worker.py:287] " + "; ".join(text.format(r[key]) for key, text in parts)
        if "gpu_blocks" in r:
            yield f"{stamp} [executor_base.py:112] # cuda blocks: {r['gpu_blocks']}, # CPU blocks: 2048"
        return
    if "activation_peak_gib" in r:
        yield (
            f"DEBUG 06-07 12:34:57 [gpu_worker.py:263] Memory profiling takes 2.91 seconds. torch peak memory increase: "
            f"{r['activation_peak_gib']:.2f}GiB; non-torch forward increase memory: {r.get('non_torch_gib', 0.0):.2f}GiB"
        )
    if "kv_cache_gib_per_gpu" in r:
        yield f"{stamp} [gpu_worker.py:276] Available KV cache memory: {r['kv_cache_gib_per_gpu']:.2f} GiB"
    if "kv_tokens" in r:
        yield f"{stamp} [kv_cache_utils.py:634] GPU KV cache size: {r['kv_tokens']:,} tokens"


def _sglang(of: Record, r: dict[str, Any]) -> Iterator[str]:
    stamp = "[2025-09-01 08:15:42 TP0]" if (of["tp"] or 1) > 1 else "[2025-09-01 08:15:42]"
    share = f"mem_fraction_static={of['gpu_memory_utilization']}, " if of["gpu_memory_utilization"] else ""
    yield (
        f"{stamp} server_args=ServerArgs(model_path='{of['model'] or 'some/model'}', tokenizer_mode='auto', dtype='auto', "
        f"quantization=None, kv_cache_dtype='auto', tp_size={of['tp'] or 1}, pp_size=1, {share}"
        f"context_length={of['max_model_len'] or 'None'}, disable_cuda_graph=False)"
    )
    before = r.get("avail_before_load_gib", 78.5)
    yield f"{stamp} Load weight begin. avail mem={before:.2f} GB"
    used = r.get("weights_gib_per_gpu")
    after = r.get("avail_after_load_gib", before - (used or 1))
    usage = f", mem usage={used:.2f} GB" if used else ""
    yield f"{stamp} Load weight end. elapsed=4.21 s, type=SomeForCausalLM, dtype=torch.bfloat16, avail mem={after:.2f} GB{usage}."
    if "mamba_ssm_gib" in r and "max_mamba_cache_size" in r:
        yield (
            f"{stamp} Mamba Cache is allocated. max_mamba_cache_size: {r['max_mamba_cache_size']}, conv_state size: "
            f"{r['mamba_conv_gib']:.2f}GB, ssm_state size: {r['mamba_ssm_gib']:.2f}GB "
        )
    if {"kv_tokens", "kv_k_gib", "kv_v_gib"} <= r.keys():
        yield (
            f"{stamp} KV Cache is allocated. dtype: torch.bfloat16, #tokens: {r['kv_tokens']}, K size: {r['kv_k_gib']:.2f} GB, "
            f"V size: {r['kv_v_gib']:.2f} GB"
        )
    yield f"{stamp} Memory pool end. avail mem=9.35 GB"
    if "cuda_graph_gib" in r:
        yield f"{stamp} Capture cuda graph end. Time elapsed: 9.12 s. mem usage={r['cuda_graph_gib']:.2f} GB. avail mem=8.01 GB."
    if "kv_tokens" in r:
        yield (
            f"{stamp} max_total_num_tokens={r['kv_tokens']}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            f"max_running_requests=2048, context_len={of['max_model_len'] or 32768}, available_gpu_mem=8.01 GB"
        )


def _llama_cpp(of: Record, r: dict[str, Any]) -> Iterator[str]:
    cells = of["max_model_len"] or 4096
    fork = str(of["engine_version"]).startswith("ik")
    yield "INFO [main] build info | build=3658" if fork else f"build: {_build(of)} (ab47dec) with cc 12.2.0 for x86_64-linux-gnu"
    yield "llama_model_loader: - kv   2:                               general.name str              = " + (
        of["model"] or "Some Model"
    )
    if of["quantization"]:
        kind = of["quantization"].split()[0].replace("_K_M", "_K - Medium")
        yield f"llm_load_print_meta: model ftype      = {kind}" if fork else f"print_info: file type   = {kind}"
    if isinstance(r.get("model_buffer_mib"), (int, float)):
        yield f"load_tensors:        CUDA0 model buffer size = {r['model_buffer_mib']:9.2f} MiB"
    yield "load_tensors:   CPU_Mapped model buffer size =   315.30 MiB"
    context = "llama_new_context_with_model" if fork else "llama_context"
    if of["max_num_seqs"]:
        yield f"{context}: n_seq_max     = {of['max_num_seqs']}"
    yield f"{context}: n_ctx         = {cells}"
    if fork:
        yield f"{context}: mla_attn      = {_mla(of)}"
    yield f"{context}: n_ubatch      = {of.get('ubatch') or 512}"
    yield from _llama_cpp_caches(of, r, cells, context, fork)
    if isinstance(r.get("compute_buffer_mib"), (int, float)):
        yield f"{context}:      CUDA0 compute buffer size = {r['compute_buffer_mib']:9.2f} MiB"
    yield f"{context}:  CUDA_Host compute buffer size =    24.01 MiB"


def _build(of: Record) -> int:
    named = re.search(r"build (\d+)", of["engine_version"])
    return int(named[1]) if named else 4800 if "2025-03" in of["engine_version"] else 8800


def _mla(of: Record) -> str:
    named = re.search(r"\bmla (\d)", of["other_flags"] or "")
    return named[1] if named else "0"


def _llama_cpp_caches(of: Record, r: dict[str, Any], cells: int, context: str, fork: bool) -> Iterator[str]:
    keys, values = cache_formats(of["kv_dtype"])
    names = {"fp16": "f16"}
    k, v = f"K ({names.get(keys, keys)})", f"V ({names.get(values, values)})"
    if {"kv_k_mib", "kv_v_mib"} <= r.keys():
        both = f"{k}: {r['kv_k_mib']:8.2f} MiB, {v}: {r['kv_v_mib']:8.2f} MiB"
        if fork:
            yield f"llama_kv_cache_init:      CUDA0 KV buffer size = {r['kv_mib_total']:9.2f} MiB"
            yield f"{context}: KV self size  = {r['kv_mib_total']:8.2f} MiB, {both}"
        else:
            yield f"llama_kv_cache:      CUDA0 KV buffer size = {r['kv_mib_total']:9.2f} MiB"
            yield f"llama_kv_cache: size = {r['kv_mib_total']:8.2f} MiB ({cells:6d} cells,  32 layers,  1/1 seqs), {both}"
    elif "swa_mib" in r:
        for size, held in ((r["non_swa_mib"], cells), (r["swa_mib"], r["swa_cells"])):
            half = f"{k}: {size / 2:8.2f} MiB, {v}: {size / 2:8.2f} MiB"
            yield f"llama_kv_cache: size = {size:8.2f} MiB ({held:6d} cells,  10 layers,  4/1 seqs), {half}"
    elif str(of["kv_dtype"]).endswith("none"):
        total = r["kv_mib_total"]
        yield f"{context}: KV self size  = {total:8.2f} MiB, c^KV ({names.get(keys, keys)}): {total:8.2f} MiB, kv^T: not used"
    elif "kv_mib_total" in r:
        yield f"llama_kv_cache_init:      CUDA0 KV buffer size = {r['kv_mib_total']:9.2f} MiB"
    if "recurrent_r_mib" in r:
        yield (
            f"llama_memory_recurrent: size = {r['recurrent_mib']:8.2f} MiB (     1 cells,  32 layers,  1 seqs), "
            f"R (f32): {r['recurrent_r_mib']:8.2f} MiB, S (f32): {r['recurrent_s_mib']:8.2f} MiB"
        )


def _tensorrt_llm(of: Record, r: dict[str, Any]) -> Iterator[str]:
    stamp = "[03/04/2025-10:11:12] [TRT-LLM] [I]"
    yield f"{stamp} TensorRT-LLM version: {of['engine_version'] or '0.17.0'}"
    if "available_before_kv_gib" in r:
        total = r.get("total_gib", 79.11)
        yield (
            f"[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: {total:.2f} GiB, "
            f"available: {r['available_before_kv_gib']:.2f} GiB"
        )
    if "gpu_blocks" in r:
        yield f"[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: {r['gpu_blocks']}"
    if {"kv_tokens", "kv_cache_gib_per_gpu"} <= r.keys():
        yield (
            f"[TensorRT-LLM][INFO] [MemUsageChange] Allocated {r['kv_cache_gib_per_gpu']:.2f} GiB for max tokens in paged KV cache "
            f"({r['kv_tokens']})."
        )
