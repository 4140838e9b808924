"""What llama.cpp and ik_llama.cpp print at start-up. Wording of src/llama-kv-cache.cpp, src/llama-memory-recurrent.cpp,
src/llama-context.cpp, src/llama-model.cpp, and of the older llama.cpp and ggml-cuda.cu; 2024 to 2026."""

from __future__ import annotations

import re
from dataclasses import replace

from calc.memory.engines.log_rules import NUMBER, Printed, Rules, rule

_MIB = NUMBER + r" MiB"
_FIGURES = (
    rule(rf"(?:llama_kv_cache\w*|kv_cache_init)\s*:\s*\S+ KV buffer size =\s*{_MIB}", "device_kv mib"),
    rule(
        rf"size =\s*{_MIB} \(\s*{NUMBER} cells,\s*\d+ layers,[^)]*\), K \([^)]*\):\s*{_MIB}, V \([^)]*\):\s*{_MIB}",
        "cache_size mib",
        "cache_cells cells",
        "cache_keys mib",
        "cache_values mib",
    ),
    rule(
        rf"KV self size\s+=\s*{_MIB}, K \([^)]*\):\s*{_MIB}, V \([^)]*\):\s*{_MIB}", "kv_cache mib", "kv_keys mib", "kv_values mib"
    ),
    rule(rf"KV self size\s+=\s*{_MIB}, c\^KV \([^)]*\):\s*{_MIB}, kv\^T", "kv_cache mib", "kv_keys mib"),
    rule(
        rf"size =\s*{_MIB} \(\s*{NUMBER} cells,[^)]*\), R \([^)]*\):\s*{_MIB}, S \([^)]*\):\s*{_MIB}",
        "state_buffer mib",
        "state_cells cells",
        "state_convolution mib",
        "state_matrix mib",
    ),
    rule(rf"creating\s+SWA KV cache, size = {NUMBER} cells", "window_cells cells"),
    rule(rf"creating non-SWA KV cache, size = {NUMBER} cells", "context_cells cells"),
    rule(rf"(?:load_tensors|llm_load_tensors)\s*:\s*(?!CPU)\S+ (?:model )?buffer size =\s*{_MIB}", "device_weights mib"),
    rule(rf":\s*(?!CPU|\w*_Host)\S+\s+compute buffer size =\s*{_MIB}", "device_compute mib"),
    rule(rf"\s(?:CPU\w*|\w+_Host)\s+(?:model )?buffer size =\s*{_MIB}", "host mib"),
)
_FLAGS = {
    "-m": "model", "--model": "model", "-hf": "model", "-c": "context_size", "--ctx-size": "context_size", "-np": "max_num_seqs",
    "--parallel": "max_num_seqs", "-b": "max_num_batched_tokens", "--batch-size": "max_num_batched_tokens", "-ub": "ubatch_size",
    "--ubatch-size": "ubatch_size", "-ngl": "gpu_layers", "--n-gpu-layers": "gpu_layers", "--gpu-layers": "gpu_layers",
    "-ctk": "cache_type_k", "--cache-type-k": "cache_type_k", "-ctv": "cache_type_v", "--cache-type-v": "cache_type_v",
    "--swa-full": "swa_full", "-sm": "split_mode", "--split-mode": "split_mode", "-mla": "latent_cache",
}  # fmt: skip
#: Older builds name no window or state apart: the sum of the devices is the cache.
_SUMMED = {"device_weights": "weights", "device_compute": "activation", "device_kv": "device_kv_sum"}


def _finish(found: list[Printed]) -> list[Printed]:
    """Caches are printed one by one (full attention, windows): their sum is the KV cache; buffers of devices are summed."""
    result = list(found)
    sizes = [f for f in found if f.name == "cache_size"]
    if sizes:
        for part, name in (("cache_size", "kv_cache"), ("cache_keys", "kv_keys"), ("cache_values", "kv_values")):
            rows = [f for f in found if f.name == part]
            result.append(replace(rows[-1], name=name, value=sum(f.value for f in rows)))
        cells = [f for f in found if f.name == "cache_cells"]
        if len(sizes) == 2:
            result += [replace(sizes[0], name="base_buffer"), replace(sizes[1], name="window_buffer")]
            result += [replace(cells[1], name="window_cells")]
        result.append(replace(cells[0], name="context_cells"))
    for part, name in _SUMMED.items():
        rows = [f for f in found if f.name == part]
        if rows:
            pick = max(f.value for f in rows) if name == "activation" else sum(f.value for f in rows)
            result.append(replace(rows[-1], name=name, value=pick))
    names = {f.name for f in result}
    if "kv_cache" not in names and "device_kv_sum" in names:
        total = next(f for f in result if f.name == "device_kv_sum")
        result.append(replace(total, name="kv_cache"))
    return result


_WORDS = (
    b"buffer size =", b"KV self size", b"MiB (", b"KV cache, size", b": n_ctx ", b": n_batch ", b": n_ubatch ", b": n_seq_max ",
    b"kv_unified", b"flash_attn", b"mla_attn", b"attn_max_b", b"fused_", b"ser  ", b"k_llama", b"general.name",
    b"file type", b"ftype", b"Device 0: ", b"devices", b"build: ", b"llama-", b"offloaded ", b"./main ", b"./server ",
)  # fmt: skip

RULES = Rules(
    words=_WORDS,
    figures=_FIGURES,
    dumps=re.compile(r"(?!)"),
    dump_keys={},
    commands=re.compile(r"llama-(?:server|cli|bench|run|sweep-bench)|\./main |\./server "),
    flags=_FLAGS,
    others=(
        (re.compile(r"llama_(?:context|new_context_with_model|init_from_model)\s*:\s*n_ctx\s+=\s*(\d+)"), "context_size"),
        (re.compile(r":\s*n_ubatch\s+=\s*(\d+)"), "ubatch_size"),
        (re.compile(r":\s*n_batch\s+=\s*(\d+)"), "max_num_batched_tokens"),
        (re.compile(r":\s*n_seq_max\s+=\s*(\d+)"), "max_num_seqs"),
        (re.compile(r":\s*kv_unified\s+=\s*(true|false)"), "kv_unified"),
        (re.compile(r":\s*flash_attn\s+=\s*(\w+)"), "flash_attention"),
        (re.compile(r"\bK \((\w+)\):"), "cache_type_k"),
        (re.compile(r"\bV \((\w+)\):"), "cache_type_v"),
        (re.compile(r"general\.name\s+(?:str\s*)?=\s*(.+?)\s*$"), "model"),
        (re.compile(r"Device \d+: ([^,]+), compute capability"), "hardware"),
        (re.compile(r"found (\d+) (?:CUDA|ROCm|Vulkan) devices"), "gpus"),
        (re.compile(r"\bbuild: (\d{3,6}) \("), "engine_version"),
        # the fork's own lines; a mainline before windows had caches of their own
        (re.compile(r":\s*(?:mla_attn|attn_max_b|fused_moe|fused_up_gate|ser)\s+=|[Ii]k_llama"), "engine_version"),
        (re.compile(r"(KV self size)"), "engine_version"),
        (re.compile(r"print_info: file type\s+=\s*(.+?)\s*$"), "quantization"),
        (re.compile(r"model ftype\s+=\s*(.+?)\s*$"), "quantization"),
        (re.compile(r"\bmla_attn\s+=\s*(\d)"), "latent_cache"),
        (re.compile(r"offloaded (\d+)/\d+ layers to GPU"), "gpu_layers"),
    ),
    values={
        "engine_version": {"true": "ik", "kv self size": "b5000"},
        "kv_unified": {"true": "on", "false": "off"},
        "flash_attention": {"1": "on", "0": "off", "true": "on", "enabled": "on", "auto": "on"},
        "latent_cache": {"0": "none", "1": "key-and-value", "2": "key", "3": "key"},
        "cache_type_k": {"f16": "fp16", "f32": "fp32"},
        "cache_type_v": {"f16": "fp16", "f32": "fp32"},
        "quantization": {
            "q4_k - medium": "q4_k_m",
            "q4_k - small": "q4_k_s",
            "q5_k - medium": "q5_k_m",
            "q5_k - small": "q5_k_s",
            "q3_k - medium": "q3_k_m",
            "q3_k - large": "q3_k_l",
            "q2_k - medium": "q2_k_m",
            "all f32": "fp32",
            "f16": "fp16",
            "bf16": "bf16",
            "mxfp4 moe": "None",
        },
    },
    example="KV self size = 1234.00 MiB, K (f16): 617.00 MiB, V (f16): 617.00 MiB",
    finish=_finish,
)
