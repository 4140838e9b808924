"""What TensorRT-LLM prints at start-up. Wording of cpp/tensorrt_llm/batch_manager (kvCacheManager, memory usage) and of
tensorrt_llm/_torch/pyexecutor, 0.8 to 1.2. The PyTorch backend allocates a small pool first: the last line counts."""

from __future__ import annotations

import re

from calc.memory.engines.log_rules import NUMBER, SIZE, Rules, rule
from calc.memory.engines.log_vllm import CACHE, FORMATS

_FIGURES = (
    rule(rf"calculating max tokens in paged kv cache: total: {SIZE}, available: {SIZE}", "gpu_memory gib", "free gib"),
    rule(
        rf"available KV cache memory when calculating max tokens: {SIZE}, fraction is set {NUMBER}",
        "kv_cache gib",
        "utilization share",
    ),
    rule(rf"device total memory {SIZE}", "gpu_memory gib"),
    rule(rf"Allocated {SIZE} for max tokens in paged KV cache \({NUMBER}\)", "kv_cache gib", "kv_tokens tokens"),
    rule(rf"Allocated {NUMBER} bytes for k/v cache", "kv_cache bytes"),
    rule(rf"Using {NUMBER} total tokens in paged KV cache", "kv_tokens tokens"),
    rule(rf"Number of blocks in KV cache primary pool: {NUMBER}", "blocks blocks"),
    rule(rf"Number of tokens per block: {NUMBER}", "block_tokens tokens"),
    rule(rf"Max KV cache (?:pages|blocks) per sequence: {NUMBER}", "pages_per_sequence blocks"),
    rule(rf"Allocated {SIZE} for (?:runtime|engine) buffers", "runtime gib"),
    rule(rf"Loaded engine size: {NUMBER} MiB", "weights mib"),
    rule(rf"Peak memory during memory usage profiling \(torch \+ non-torch\): {SIZE}", "consumed gib"),
)
_KEYS = {
    "model": "model", "tensor_parallel_size": "tensor_parallel_size", "tp_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size", "pp_size": "pipeline_parallel_size", "max_seq_len": "max_model_len",
    "max_batch_size": "max_num_seqs", "max_num_tokens": "max_num_batched_tokens", "tokens_per_block": "block_size",
    "free_gpu_memory_fraction": "gpu_memory_utilization", "kv_cache_free_gpu_mem_fraction": "gpu_memory_utilization",
    "kv_cache_free_gpu_memory_fraction": "gpu_memory_utilization", "max_tokens_in_paged_kv_cache": "max_total_tokens",
}  # fmt: skip

_WORDS = (
    b"paged ", b"k/v cache", b"KV cache p", b"KV cache m", b"KV cache b", b"tokens per block", b"LlmArgs", b"ExecutorConfig",
    b"KvCacheConfig", b"kv_cache_config", b"trtllm", b"engine size", b"usage profiling", b"TRTGptModel", b"TensorRT-LLM", b"TensorRT LLM",
    b" buffers",
)  # fmt: skip

RULES = Rules(
    words=_WORDS,
    figures=_FIGURES,
    dumps=re.compile(r"LlmArgs|ExecutorConfig|KvCacheConfig|kv_cache_config"),
    dump_keys=_KEYS,
    commands=re.compile(r"trtllm-(?:serve|bench|eval)"),
    flags={"--" + key: option for key, option in _KEYS.items()},
    others=(
        (re.compile(r"TensorRT[- ]LLM version:? v?(\d\S*)", re.IGNORECASE), "engine_version"),
        (re.compile(r"trtllm-serve (?:serve )?([^\s-]\S*)"), "model"),
        (re.compile(r"Number of tokens per block: (\d+)"), "block_size"),
        (re.compile(r"fraction is set (0?\.\d+)"), "gpu_memory_utilization"),
        (re.compile(r"(?:TRTGptModel maxSequenceLen: |max_seq_len[=: ]+)(\d+)"), "max_model_len"),
        (re.compile(r"TRTGptModel maxBatchSize: (\d+)"), "max_num_seqs"),
        (re.compile(r"TRTGptModel maxNumTokens: (\d+)"), "max_num_batched_tokens"),
    ),
    values={"quantization": FORMATS, "kv_cache_dtype": CACHE},
    example="Allocated 12.34 GiB for max tokens in paged KV cache (123456)",
)
