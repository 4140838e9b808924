"""What vLLM prints at start-up, V0 and V1, INFO and DEBUG lines. Wording of vllm/worker/worker.py, vllm/v1/worker/gpu_worker.py,
vllm/v1/core/kv_cache_utils.py, vllm/executor/executor_base.py and vllm/engine/arg_utils.py, versions 0.2 to 0.28."""

from __future__ import annotations

import re

from calc.memory.engines.log_rules import NUMBER, SIZE, Printed, Rules, rule

FORMATS = {
    "bitsandbytes": "nf4-double", "awq_marlin": "awq", "gptq_marlin": "gptq", "auto_round": "gptq", "auto-round": "gptq",
    "modelopt": "fp8", "modelopt_fp4": "nvfp4", "compressed-tensors": "None", "compressed_tensors": "None", "fbgemm_fp8": "fp8-channel",
    "gguf": "None", "quark": "None", "petit_nvfp4": "nvfp4", "experts_int8": "w8a16",
}  # fmt: skip
CACHE = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}

_FIGURES = (
    rule(rf"total_gpu_memory[ =]\(?{SIZE}", "gpu_memory gib"),
    rule(rf"Free memory on device \S* ?\({NUMBER}/{NUMBER} GiB\)", "free_before gib", "gpu_memory gib"),
    rule(rf"gpu_memory_utilization[ =]\(?{NUMBER}", "utilization share"),
    rule(rf"Desired GPU memory utilization is \({NUMBER}", "utilization share"),
    rule(rf"(?:Loading model weights took|Model loading took|model weights take|weights memory:) {SIZE}", "weights gib"),
    rule(rf"Actual usage is {SIZE} for weights?", "weights gib"),
    rule(
        rf"(?:PyTorch activation peak memory takes|torch peak memory increase:|torch_peak_increase[=:]) ?{SIZE}", "activation gib"
    ),
    rule(rf"{SIZE} for peak activation", "activation gib"),
    rule(rf"(?:non_torch_memory takes|non_torch_memory=|non-torch forward increase memory:) ?{SIZE}", "runtime gib"),
    rule(rf"{SIZE} for non-torch memory", "runtime gib"),
    rule(rf"peak_torch_memory={SIZE}", "peak_torch gib"),
    rule(rf"(?:model |total )?consumed memory:? {SIZE}", "consumed gib"),
    rule(rf"(?:reserved for KV Cache is|kv_cache_size=|Available KV cache memory:) ?{SIZE}", "kv_cache gib"),
    rule(rf"# (?:GPU|cuda|CUDA) blocks: {NUMBER}", "blocks blocks"),
    rule(rf"GPU KV cache size: {NUMBER} tokens", "kv_tokens tokens"),
    rule(rf"Maximum concurrency for {NUMBER} tokens per request: {NUMBER}x", "request_tokens tokens", "max_concurrency x"),
    rule(rf"Graph capturing finished in \d+ secs?, took {SIZE}", "cuda_graphs gib"),
    rule(rf"CUDA ?graph (?:pool )?memory(?: profiling)?:? \(?(?:estimated\)?:? )?{SIZE}", "cuda_graphs gib"),
    rule(rf"{SIZE} for CUDAGraph memory", "cuda_graphs gib"),
    rule(rf"Setting attention block size to {NUMBER} tokens", "block_tokens tokens"),
    rule(rf"Padding mamba page size by {NUMBER}%", "page_padding percent"),
    rule(rf"estimated maximum model length is {NUMBER}", "longest_tokens tokens"),
)

_DUMP_KEYS = {
    "model": "model", "max_seq_len": "max_model_len", "max_model_len": "max_model_len", "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size", "data_parallel_size": "data_parallel_size", "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype", "enforce_eager": "enforce_eager", "gpu_memory_utilization": "gpu_memory_utilization",
    "max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens", "block_size": "block_size",
    "enable_prefix_caching": "enable_prefix_caching", "enable_expert_parallel": "enable_expert_parallel",
    "decode_context_parallel_size": "decode_context_parallel_size", "num_speculative_tokens": "speculative_tokens",
    "num_spec_tokens": "speculative_tokens", "enable_lora": "lora_slots", "max_loras": "lora_slots", "max_lora_rank": "lora_rank",
}  # fmt: skip
_FLAGS = {"--" + key.replace("_", "-"): option for key, option in _DUMP_KEYS.items() if key != "max_seq_len"} | {
    "-tp": "tensor_parallel_size", "-pp": "pipeline_parallel_size", "-dp": "data_parallel_size", "-q": "quantization",
}  # fmt: skip


def _finish(found: list[Printed]) -> list[Printed]:
    """V0 prints blocks alone: of 16 tokens."""
    names = {f.name for f in found}
    if "blocks" in names and "kv_tokens" not in names:
        found += [Printed("kv_tokens", f.value * 16, "tokens", f.line, f.rank) for f in found if f.name == "blocks"]
    return found


_WORDS = (
    b"gpu_memory", b"emory", b"KV cache s", b"weights", b"loading took", b"blocks: ", b"Maximum conc", b"Graph capt", b"CUDA graph",
    b"CUDAGraph", b"block size to", b"page size by", b"maximum model length", b"LLM engine", b"args", b"Namespace(", b"vllm serve",
    b"api_server", b"vLLM Version", b"GPU 0: ", b"Chunked prefill is",
)  # fmt: skip

RULES = Rules(
    words=_WORDS,
    figures=_FIGURES,
    dumps=re.compile(r"LLM engine|non-default args|Namespace\(|EngineArgs|VllmConfig|Chunked prefill is enabled with"),
    dump_keys=_DUMP_KEYS,
    commands=re.compile(r"\bvllm serve|vllm\.entrypoints|api_server"),
    flags=_FLAGS,
    others=(
        (re.compile(r"LLM engine \(v?(\d[^)\s]*)\)"), "engine_version"),
        (re.compile(r"vLLM API server version v?(\d\S*)"), "engine_version"),
        (re.compile(r"vLLM Version\s*: v?(\d\S*)"), "engine_version"),
        (re.compile(r"Initializing a (V1) LLM engine"), "engine_generation"),
        (re.compile(r"Initializing a (V0) LLM engine"), "engine_generation"),
        (re.compile(r"Initializing an (LLM) engine"), "engine_generation"),
        (re.compile(r"vllm serve ([^\s-]\S*)"), "model"),
        (re.compile(r"GPU \d+: (NVIDIA [^(\n]+?|Tesla [^(\n]+?|AMD [^(\n]+?)(?: \(UUID|$)"), "hardware"),
        (re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)"), "max_num_batched_tokens"),
        (re.compile(r"Maximum concurrency for ([\d,]+) tokens per request"), "max_model_len"),
    ),
    values={
        "quantization": FORMATS,
        "kv_cache_dtype": CACHE,
        "lora_slots": {"true": "1"},
        "engine_generation": {"v1": "v1", "v0": "v0", "llm": "v0"},
    },
    example="GPU KV cache size: 123,456 tokens",
    finish=_finish,
)
