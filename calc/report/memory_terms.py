"""Names of the terms of the memory budget: in full for tables, short for lines and pictures."""

from __future__ import annotations

FULL = {
    "gpu_memory": "total memory", "weights": "weights", "activation": "activation peak", "runtime": "runtime (context, NCCL)",
    "cuda_graphs": "CUDA graphs", "kv_cache": "left for the KV cache",
}  # fmt: skip
SHORT = {
    "weights": "weights", "activation": "activations", "runtime": "runtime", "cuda_graphs": "graphs", "kv_cache": "KV cache",
    "kv_cache_needed": "KV",
}  # fmt: skip
