"""Options that only some engine's memory law knows: of ``capacity`` and ``reconcile``."""

from __future__ import annotations

from typing import Any

from calc.commands import options as opt

#: What only memory depends on, and only with some engine.
ENGINE = (
    opt.text("engine_generation", "--engine-generation", help="v0 or v1: vLLM 0.8 to 0.10 has both.", metavar="NAME"),
    opt.text("runtime_memory", "--runtime-memory", help="Memory outside the framework per GPU.", metavar="SIZE"),
    opt.text("graph_memory", "--graph-memory", help="CUDA graphs per GPU.", metavar="SIZE"),
    opt.flag("enforce_eager", "--enforce-eager", help="No CUDA graphs."),
    opt.flag("no_prefix_caching", "--no-enable-prefix-caching", help="Prefix caching off."),
    opt.text("state_mode", "--mamba-cache-mode", help="Prefix caching of recurrent state: none, align, all.", metavar="MODE"),
    opt.flag("no_hybrid_kv_cache", "--disable-hybrid-kv-cache-manager", help="Store windows like full attention."),
    opt.flag("no_async_scheduling", "--no-async-scheduling", help="vLLM: no step is prepared while another runs."),
    opt.text("draft_layers", "--draft-layers", help="Layers of a draft head beside the model (EAGLE).", metavar="N"),
    opt.flag("own_windows", "--max-attention-window", help="TensorRT-LLM: told of the model's windows, which get pools of their own."),
    opt.text("layer_split", "--layer-split", help="Layers of each stage, e.g. 16,32.", metavar="N,N"),
    opt.text("devices", "--devices", help="Device of each stage where they differ, e.g. rtx-5090,rtx-3090.", metavar="NAME,NAME"),
    opt.text("lora_slots", "--max-loras", help="LoRA slots.", metavar="N"),
    opt.text("lora_rank", "--max-lora-rank", help="Rank of the LoRA slots.", metavar="N"),
    opt.text("max_total_tokens", "--max-total-tokens", help="Most tokens in the cache (SGLang, TensorRT-LLM).", metavar="TOKENS"),
    opt.text("window_ratio", "--swa-full-tokens-ratio", help="SGLang: window tokens over full tokens.", metavar="RATIO"),
    opt.text("state_ratio", "--mamba-full-memory-ratio", help="SGLang: state memory over token memory.", metavar="RATIO"),
    opt.text("context_size", "--ctx-size", "-c", help="llama.cpp: context of all slots together.", metavar="TOKENS"),
    opt.text("ubatch_size", "--ubatch-size", "-ub", help="llama.cpp: tokens of a micro-batch.", metavar="TOKENS"),
    opt.text("kv_unified", "--kv-unified", help="llama.cpp: one cache for all slots, on or off.", metavar="ON|OFF"),
    opt.flag("no_kv_offload", "--no-kv-offload", "-nkvo", help="llama.cpp: the cache stays on the host."),
    opt.flag("swa_full", "--swa-full", help="llama.cpp: windows at the full context."),
    opt.text("flash_attention", "--flash-attn", "-fa", help="llama.cpp: on or off.", metavar="ON|OFF"),
    opt.text("split_mode", "--split-mode", "-sm", help="llama.cpp: layer or row.", metavar="MODE"),
    opt.text("latent_cache", "--latent-cache", help="llama.cpp, MLA: none (all heads), key, key-and-value.", metavar="MODE"),
    opt.text("gpu_experts", "--gpu-experts", help="Routed experts of a layer on the GPU.", metavar="N"),
)  # fmt: skip

_SWITCH = {"on": True, "off": False}
#: Flags without a value → (memory option, value).
_FLAGS = {
    "enable_prefix_caching": ("prefix_caching", True),
    "no_prefix_caching": ("prefix_caching", False),
    "enforce_eager": ("enforce_eager", True),
    "no_hybrid_kv_cache": ("hybrid_kv_cache", False),
    "swa_full": ("swa_full", True),
    "no_kv_offload": ("kv_offload", False),
    "no_async_scheduling": ("async_scheduling", False),
    "own_windows": ("max_attention_window", True),
}


def engine_memory(options: dict[str, Any]) -> dict[str, Any]:
    """Parsed memory options by field name; only what was given. Raises UsageError with the option's name."""
    from calc.errors import UsageError

    if options.get("enable_prefix_caching") and options.get("no_prefix_caching"):
        raise UsageError("--enable-prefix-caching and --no-enable-prefix-caching contradict each other", "leave one of them out")
    found = {
        "engine_generation": _choice(options, "engine_generation", {"v0": "v0", "v1": "v1"}),
        "state_mode": _choice(options, "state_mode", {m: m for m in ("none", "align", "all")}),
        "split_mode": _choice(options, "split_mode", {m: m for m in ("layer", "row")}),
        "latent_cache": _choice(options, "latent_cache", {m: m for m in ("none", "key", "key-and-value")}),
        "kv_unified": _choice(options, "kv_unified", _SWITCH),
        "flash_attention": _choice(options, "flash_attention", _SWITCH),
        "runtime_bytes": opt.size(options, "runtime_memory"),
        "graph_bytes": opt.size(options, "graph_memory"),
        "draft_layers": _count(options, "draft_layers", minimum=0, maximum=1 << 10),
        "lora_slots": _count(options, "lora_slots", maximum=1 << 16),
        "lora_rank": _count(options, "lora_rank", maximum=1 << 12),
        "max_total_tokens": _count(options, "max_total_tokens"),
        "context_size": _count(options, "context_size"),
        "ubatch_size": _count(options, "ubatch_size", maximum=1 << 24),
        "gpu_experts": _count(options, "gpu_experts", minimum=0, maximum=1 << 16),
        "window_ratio": _ratio(options, "window_ratio"),
        "state_ratio": _ratio(options, "state_ratio"),
        "pipeline_layers": _layer_split(options),
        "devices": _devices(options),
    }
    found |= {field: value for name, (field, value) in _FLAGS.items() if options.get(name)}
    return {name: value for name, value in found.items() if value is not None}


def _flag(name: str) -> str:
    """An option as it is written on the command line."""
    info = next(p.annotation.__metadata__[0] for p in ENGINE if p.name == name)
    names = (info.default, *info.param_decls)  # in an annotation the first name stands where a default would
    return next(str(n) for n in names if str(n).startswith("--"))


def _count(options: dict[str, Any], name: str, minimum: int = 1, maximum: int | None = None) -> int | None:
    from calc import units

    value = options.get(name)
    return None if value is None else units.parse_count(value, _flag(name), minimum=minimum, maximum=maximum or units.MAX_COUNT)


def _choice(options: dict[str, Any], name: str, known: dict[str, Any]) -> Any:
    from calc.errors import UsageError

    value = options.get(name)
    if value is None:
        return None
    if value.lower() not in known:
        raise UsageError(f"{_flag(name)} must be {' or '.join(known)}, not {value!r}", f"like {_flag(name)} {next(iter(known))}")
    return known[value.lower()]


def _ratio(options: dict[str, Any], name: str) -> float | None:
    from calc import units

    value = options.get(name)
    return None if value is None else units.parse_fraction(value, _flag(name), maximum=1000.0)


def _layer_split(options: dict[str, Any]) -> tuple[int, ...] | None:
    from calc import units

    text = options.get("layer_split")
    return None if not text else tuple(units.parse_count(n, "--layer-split", minimum=0) for n in text.split(","))


def _devices(options: dict[str, Any]) -> tuple[Any, ...] | None:
    import calc

    text = options.get("devices")
    if not text:
        return None
    return tuple(calc.load_hardware(name.strip(), options.get("profiles_dir")).profile for name in text.split(","))
