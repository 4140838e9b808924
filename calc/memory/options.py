"""What the user may say about memory. None leaves it to the engine's law of the version asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calc.errors import require
from calc.profiles.hardware import HardwareProfile


@dataclass(frozen=True)
class MemoryOptions:
    """Sizes are bytes per GPU, lengths are tokens. Every field replaces a term or a default of the engine.

    ``gpu_memory_utilization`` is the share of total memory (vLLM, ideal), the static fraction (SGLang) or the share of what stays free
    after loading (TensorRT-LLM). ``max_model_len`` of llama.cpp is the context of one request; ``context_size`` its ``-c``.
    """

    def __post_init__(self) -> None:
        require(self.gpu_memory_utilization, "gpu_memory_utilization", 1e-6, 1.0)
        for name in ("gpu_memory_bytes", "weights_bytes", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"):
            require(getattr(self, name), name, 1, 1 << 60)
        for name in (
            "kv_cache_bytes", "activation_bytes", "runtime_bytes", "graph_bytes", "cached_tokens", "speculative_tokens",
            "cpu_offload_bytes", "gpu_layers", "draft_layers",
        ):  # fmt: skip
            require(getattr(self, name), name, 0, 1 << 60)
        require(self.host_bandwidth_bytes_per_s, "host_bandwidth_bytes_per_s", 1e6, 1e15)

    # the budget, term by term
    gpu_memory_utilization: float | None = None
    gpu_memory_bytes: int | None = None
    kv_cache_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    runtime_bytes: int | None = None
    graph_bytes: int | None = None
    # the scheduler
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    prefix_caching: bool | None = None
    cached_tokens: int = 0  # a prefix that all requests share: stored once
    enforce_eager: bool = False  # no CUDA graphs
    speculative_tokens: int = 0
    draft_layers: int | None = None  # attention layers of a separate draft head (EAGLE); None: the model's own next-token layers
    # the engine
    engine_version: str | None = None
    engine_generation: Literal["v0", "v1"] | None = None  # vLLM 0.8 to 0.10 has both
    state_mode: Literal["none", "align", "all"] | None = None  # prefix caching of recurrent state (vLLM)
    hybrid_kv_cache: bool = True  # False: windows are stored as full attention
    async_scheduling: bool | None = None
    devices: tuple[
        HardwareProfile, ...
    ] = ()  # the device of each pipeline stage (llama.cpp: of each share of the layers) where unequal
    pipeline_layers: tuple[int, ...] | None = None  # layers of each stage (VLLM_PP_LAYER_PARTITION, llama.cpp --tensor-split)
    lora_slots: int = 0
    lora_rank: int | None = None
    max_total_tokens: int | None = None  # upper bound of the pool (SGLang --max-total-tokens, TensorRT-LLM max_tokens)
    max_attention_window: bool = False  # TensorRT-LLM: windows are stored as such only where the engine is told of them
    window_ratio: float | None = None  # SGLang --swa-full-tokens-ratio
    state_ratio: float | None = None  # SGLang --mamba-full-memory-ratio
    # llama.cpp
    context_size: int | None = None
    ubatch_size: int | None = None
    kv_unified: bool | None = None
    swa_full: bool = False
    flash_attention: bool | None = None
    latent_cache: Literal["none", "key", "key-and-value"] | None = None  # how MLA is cached: heads in full, latents, latents twice
    gpu_layers: int | None = None
    split_mode: Literal["layer", "row"] = "layer"
    kv_offload: bool = True
    # the host
    cpu_offload_bytes: int = 0  # weights of each GPU that stay in host memory (vLLM, SGLang --cpu-offload-gb)
    host_bandwidth_bytes_per_s: float | None = None  # of the host's memory, as programs reach it
    gpu_experts: int | None = None  # routed experts of a layer that stay on the GPU (llama.cpp --n-cpu-moe, KTransformers)
