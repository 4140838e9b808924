"""What SGLang prints at start-up. Wording of sglang/srt/model_executor/model_runner.py, mem_cache/memory_pool.py and server_args.py, 0.3 to
0.5; its "GB" are GiB."""

from __future__ import annotations

import re

from calc.memory.engines.log_rules import NUMBER, SIZE, Printed, Rules, rule
from calc.memory.engines.log_vllm import CACHE, FORMATS

_FIGURES = (
    rule(rf"Load weight begin\. avail mem={SIZE}", "free_before gib"),
    rule(rf"Load weight end\..*?avail mem={SIZE}(?:, mem usage={SIZE})?", "free_after gib", "weights gib"),
    rule(
        rf"KV Cache is allocated\..*?#tokens: {NUMBER}, (?:K size: {SIZE}, V size: {SIZE}|KV size: {SIZE})",
        "kv_tokens tokens",
        "kv_keys gib",
        "kv_values gib",
        "kv_cache gib",
    ),
    rule(
        rf"Mamba Cache is allocated\..*?max_mamba_cache_size: {NUMBER}, conv_state size: {SIZE}, ?ssm_state size: {SIZE}",
        "state_slots slots",
        "state_convolution gib",
        "state_matrix gib",
    ),
    rule(rf"full_layer_tokens=? ?{NUMBER}, swa_layer_tokens=? ?{NUMBER}", "full_tokens tokens", "window_tokens tokens"),
    rule(rf"Capture (?:cuda|piecewise CUDA) graph end\..*?mem usage={SIZE}", "cuda_graphs gib"),
    rule(rf"Memory pool end\. avail mem={SIZE}", "free_left gib"),
    rule(rf"max_total_num_tokens={NUMBER}", "kv_tokens tokens"),
    rule(rf"max_running_requests={NUMBER}", "max_running x"),
)

_DUMP_KEYS = {
    "model_path": "model", "tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size", "dp_size": "data_parallel_size",
    "mem_fraction_static": "gpu_memory_utilization", "context_length": "max_model_len", "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype", "max_running_requests": "max_num_seqs", "max_total_tokens": "max_total_tokens",
    "chunked_prefill_size": "max_num_batched_tokens", "page_size": "block_size", "disable_radix_cache": "no_prefix_caching",
    "disable_cuda_graph": "enforce_eager", "swa_full_tokens_ratio": "window_ratio", "mamba_full_memory_ratio": "state_ratio",
    "speculative_num_steps": "speculative_tokens",
}  # fmt: skip
_FLAGS = {"--" + key.replace("_", "-"): option for key, option in _DUMP_KEYS.items()} | {
    "--tp": "tensor_parallel_size", "--pp": "pipeline_parallel_size", "--dp": "data_parallel_size", "--model": "model",
}  # fmt: skip


def _finish(found: list[Printed]) -> list[Printed]:
    """Keys and values are printed apart; together they are the pool."""
    pairs = zip([f for f in found if f.name == "kv_keys"], [f for f in found if f.name == "kv_values"], strict=False)
    return found + [Printed("kv_cache", k.value + v.value, "bytes", k.line, k.rank) for k, v in pairs]


_WORDS = (
    b"avail mem", b"Cache is allocated", b"layer_tokens", b"max_total_num_tokens", b"erverArgs", b"server_args", b"sglang.", b"sglang ",
    b"sglang=", b"graph end",
)  # fmt: skip

RULES = Rules(
    words=_WORDS,
    figures=_FIGURES,
    dumps=re.compile(r"server_args=|ServerArgs\("),
    dump_keys=_DUMP_KEYS,
    commands=re.compile(r"sglang\.launch_server|sglang serve|sglang\.bench"),
    flags=_FLAGS,
    others=(
        (re.compile(r"sglang[ =]+v?(\d+\.\d+[\w.]*)"), "engine_version"),
        (re.compile(r"max_total_num_tokens=.*context_len=(\d+)"), "max_model_len"),
    ),
    values={"quantization": FORMATS, "kv_cache_dtype": CACHE},
    example="KV Cache is allocated. #tokens: 123456, K size: 1.23 GB, V size: 1.23 GB",
    finish=_finish,
)
