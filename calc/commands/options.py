"""Every option of the interface, once; commands name the groups they take. Values arrive as text and are parsed here with units."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calc.serving.deployment import DeploymentOptions
    from calc.serving.request import Workload

Parameter = inspect.Parameter


def text(
    name: str,
    *flags: str,
    help: str,
    default: str | None = None,
    metavar: str = "TEXT",
    complete: Callable[[str], list[str]] | None = None,
) -> Parameter:
    """An option that takes a value; parsing is ours, so that messages name the option and the remedy."""
    option = typer.Option(*flags, help=help, metavar=metavar, show_default=False, autocompletion=complete)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[str | None, option])


def many(name: str, *flags: str, help: str, metavar: str = "TEXT") -> Parameter:
    """An option that takes a value and may be repeated."""
    annotation = Annotated[list[str] | None, typer.Option(*flags, help=help, metavar=metavar, show_default=False)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def flag(name: str, *flags: str, help: str) -> Parameter:
    """An option without a value."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, typer.Option(*flags, help=help)])


def _complete(kind: str) -> Callable[[str], list[str]]:
    def names(incomplete: str) -> list[str]:
        from calc.profiles.catalog import completions

        return completions(incomplete, kind)  # type: ignore[arg-type]

    return names


def _engines(incomplete: str) -> list[str]:
    from calc.memory.engines import all_engines

    return [name for name in all_engines() if name.startswith(incomplete.lower())]


_ENGINE_HELP = (
    "vllm, sglang, llama.cpp, tensorrt-llm, ideal; for times also gpt-fast, mlx, exllamav2, transformers. "
    "Default: vllm (Apple: llama.cpp)."
)

MODEL = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Name, alias or file of a model profile; a config.json, a .gguf file, or hf:org/name.",
        autocompletion=_complete("model"),
    ),
]
HARDWARE = Annotated[
    str,
    typer.Argument(metavar="HARDWARE", help="Name, alias or file of a hardware profile.", autocompletion=_complete("hardware")),
]

DEPLOYMENT = (
    text("gpus", "--gpus", "-n", help="Number of GPUs. Default: tp x pp x dp.", metavar="N"),
    text("tensor_parallel_size", "--tensor-parallel-size", "-tp", help="Tensor parallel size.", metavar="N"),
    text("pipeline_parallel_size", "--pipeline-parallel-size", "-pp", help="Pipeline parallel size.", metavar="N"),
    text("data_parallel_size", "--data-parallel-size", "-dp", help="Data parallel size: replicas, or attention ranks.", metavar="N"),
    flag("enable_expert_parallel", "--enable-expert-parallel", help="Whole experts on tensor x data parallel ranks."),
    text("overlap", "--overlap", help="Share of messages hidden behind compute, 0 to 1. Default: 0.", metavar="SHARE"),
    text("decode_context_parallel_size", "--decode-context-parallel-size", "-dcp", help="Ranks sharing a sequence's tokens.", metavar="N"),
    text("dtype", "--dtype", help="auto, bf16, fp16 or fp32. Default: auto, the checkpoint's 16-bit type.", metavar="TYPE"),
    text("quantization", "--quantization", "-q", help="Weights: none, fp8, awq, q4_k_m, ... Default: as stored.", metavar="FORMAT"),
    text("kv_cache_dtype", "--kv-cache-dtype", help="auto, bf16, fp8, int8, q8_0, ...", metavar="FORMAT"),
    text("cache_type_k", "--cache-type-k", help="Format of keys alone.", metavar="FORMAT"),
    text("cache_type_v", "--cache-type-v", help="Format of values alone.", metavar="FORMAT"),
    text("engine", "--engine", help=_ENGINE_HELP, metavar="ENGINE", complete=_engines),
    text("engine_version", "--engine-version", help="Version of the engine. Default: the newest known.", metavar="VERSION"),
    text("gpu_memory_utilization", "--gpu-memory-utilization", help="Share of GPU memory the engine may use.", metavar="SHARE"),
    text("gpu_memory", "--gpu-memory", help="Memory the driver reports, e.g. 81559MiB.", metavar="SIZE"),
    text("kv_cache_memory", "--kv-cache-memory", help="KV cache per GPU; replaces the budget.", metavar="SIZE"),
    text("weights_memory", "--weights-memory", help="Weights per GPU, e.g. from a start-up log.", metavar="SIZE"),
    text("activation_memory", "--activation-memory", help="Activation peak per GPU.", metavar="SIZE"),
    text("max_model_len", "--max-model-len", help="Longest sequence, e.g. 32k.", metavar="TOKENS"),
    text("max_num_seqs", "--max-num-seqs", help="Most sequences at once.", metavar="N"),
    text("max_num_batched_tokens", "--max-num-batched-tokens", help="Most tokens in a step.", metavar="TOKENS"),
    text("block_size", "--block-size", help="Tokens per KV block.", metavar="TOKENS"),
    flag("enable_prefix_caching", "--enable-prefix-caching", help="Prefix caching on (vLLM's default)."),
    text("gpu_layers", "--n-gpu-layers", "--gpu-layers", "-ngl", help="llama.cpp: layers on the GPU; all or -1: every one.", metavar="N"),
    text("cpu_offload_gb", "--cpu-offload-gb", help="vLLM, SGLang: GiB of each GPU's weights left in host memory.", metavar="GIB"),
    text("host_memory_bandwidth", "--host-memory-bandwidth", help="GB/s that host memory reaches; layers there need it.", metavar="RATE"),
    text("speculative_tokens", "--speculative-tokens", help="Draft tokens per step; loads next-token layers.", metavar="N"),
    text("fusion", "--fusion", help="Fusion policy: separate or fused. Default: separate.", metavar="POLICY"),
    text("efficiency", "--efficiency", help="Efficiency file to use instead of the default factors.", metavar="FILE"),
    text("profiles_dir", "--profiles-dir", help="Folder with profiles of your own.", metavar="DIR"),
)  # fmt: skip

WORK = (
    text("batch_size", "--batch-size", "-b", help="Requests at once. Default: 1.", metavar="N"),
    text("input_len", "--input-len", "-i", help="Prompt tokens, e.g. 2k. Default: 1024.", metavar="TOKENS"),
    text("output_len", "--output-len", help="Output tokens. Default: 256.", metavar="TOKENS"),
    text("context_len", "--context-len", help="Keys a decode step sees, itself included. Default: input + output/2.", metavar="TOKENS"),
    text("cached_len", "--cached-len", help="Prompt tokens already cached (prefix hit). Default: 0.", metavar="TOKENS"),
)  # fmt: skip

OUTPUT = (
    text("format_", "--format", "-f", help="table, json, csv or markdown.", metavar="FORMAT"),
    flag("json_", "--json", help="Same as --format json."),
    text("output", "--output", "-o", help="Write to a file; the suffix gives the format.", metavar="FILE"),
    flag("no_color", "--no-color", help="No colour."),
    flag("quiet", "--quiet", help="No notices on standard error."),
)

VERBOSE = (flag("verbose", "--verbose", help="Say on standard error what was read, from where, and each default taken."),)

PICTURE = (
    flag("plot", "--plot", help="Draw in the terminal too; -o FILE.png, .svg or .html draws into a file."),
    text("theme", "--theme", help="Ground of a PNG or SVG: light or dark. Default: light.", metavar="THEME"),
)

EXPLAIN = (flag("explain", "--explain", help="Show formula, values, their sources and evidence of each headline number."),)

PROFILES_DIR = (text("profiles_dir", "--profiles-dir", help="Folder with profiles of your own.", metavar="DIR"),)


def takes(*groups: tuple[Parameter, ...] | Parameter) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that is written as ``f(model, hardware, **options)`` the options of the named groups."""
    extra = [p for g in groups for p in (g if isinstance(g, tuple) else (g,))]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        parameters = own + extra
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {p.name: p.annotation for p in parameters}
        return function

    return decorate


def written(name: str) -> str:
    """A parameter's name as it is written on the command line."""
    return "--" + name.replace("_", "-")


def count(options: dict[str, Any], name: str, minimum: int = 1, maximum: int | None = None) -> int | None:
    """A whole number given under an option's name; None where it is not."""
    from calc import units

    value = options.get(name)
    if value is None:
        return None
    return units.parse_count(value, written(name), minimum=minimum, maximum=maximum or units.MAX_COUNT)


def size(options: dict[str, Any], name: str) -> int | None:
    """Bytes given under an option's name; None where they are not."""
    from calc import units

    value = options.get(name)
    return None if value is None else units.parse_bytes(value, written(name), minimum=1)


def _in_unit(options: dict[str, Any], name: str, unit: str, minimum: int) -> int | None:
    """Bytes given under an option's name; a bare number is in ``unit``."""
    from calc import units

    value = options.get(name)
    if value is None:
        return None
    text = value.strip().removesuffix("/s")
    return units.parse_bytes(text + (unit if text[-1:].isdigit() else ""), written(name), minimum=minimum)


_SIZES = ("gpus", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size")
#: Options of a deployment that are whole numbers, and the smallest and largest that are taken (None: any that is exact).
COUNTS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(_SIZES, (1, 1 << 16)),
    "max_model_len": (1, None),
    "max_num_seqs": (1, 1 << 24),
    "max_num_batched_tokens": (1, 1 << 30),
    "block_size": (1, 1 << 20),
    "speculative_tokens": (0, 1024),
    "gpu_layers": (0, 1 << 16),
}


#: llama.cpp's words for its default of --n-gpu-layers.
ALL_LAYERS = ("all", "-1")


def _limited(options: dict[str, Any], name: str) -> int | None:
    if name == "gpu_layers" and options.get(name) in ALL_LAYERS:
        return None
    minimum, maximum = COUNTS[name]
    return count(options, name, minimum, maximum)


def deployment_options(options: dict[str, Any]) -> DeploymentOptions:
    """Parsed deployment options. Raises UsageError with the option's name."""
    from calc import units
    from calc.commands.engine_options import engine_memory
    from calc.memory.budget import MemoryOptions
    from calc.operators.fusion import policy
    from calc.serving.deployment import DeploymentOptions

    share = options.get("gpu_memory_utilization")
    memory = MemoryOptions(
        gpu_memory_utilization=None if share is None else units.parse_fraction(share, "--gpu-memory-utilization"),
        gpu_memory_bytes=size(options, "gpu_memory"),
        kv_cache_bytes=size(options, "kv_cache_memory"),
        weights_bytes=size(options, "weights_memory"),
        activation_bytes=size(options, "activation_memory"),
        max_model_len=_limited(options, "max_model_len"),
        max_num_seqs=_limited(options, "max_num_seqs"),
        max_num_batched_tokens=_limited(options, "max_num_batched_tokens"),
        block_size=_limited(options, "block_size"),
        speculative_tokens=_limited(options, "speculative_tokens") or 0,
        engine_version=options.get("engine_version"),
        gpu_layers=_limited(options, "gpu_layers"),
        cpu_offload_bytes=_in_unit(options, "cpu_offload_gb", "GiB", minimum=0) or 0,
        host_bandwidth_bytes_per_s=_in_unit(options, "host_memory_bandwidth", "GB", minimum=10**6),
        **engine_memory(options),
    )
    return DeploymentOptions(
        **{name: _limited(options, name) for name in _SIZES},
        enable_expert_parallel=bool(options.get("enable_expert_parallel")),
        dtype=options.get("dtype") or "auto",
        quantization=options.get("quantization"),
        kv_cache_dtype=options.get("kv_cache_dtype") or "auto",
        cache_type_k=options.get("cache_type_k"),
        cache_type_v=options.get("cache_type_v"),
        engine=options.get("engine"),
        fusion=policy(options.get("fusion") or "separate"),
        efficiency=options.get("efficiency"),
        overlap=0.0 if options.get("overlap") is None else units.parse_fraction(options["overlap"], "--overlap", zero=True),
        memory=memory,
    )


def workload(options: dict[str, Any]) -> Workload:
    """Parsed workload; what is not given has the default of ``Workload``. Raises UsageError with the option's name."""
    from calc.serving.request import Workload
    from calc.units import MAX_BATCH, MAX_TOKENS

    asked = {
        "batch_size": count(options, "batch_size", maximum=MAX_BATCH),
        "input_len": count(options, "input_len", maximum=MAX_TOKENS),
        "output_len": count(options, "output_len", maximum=MAX_TOKENS),
        "context_len": count(options, "context_len", maximum=MAX_TOKENS),
        "cached_len": count(options, "cached_len", minimum=0, maximum=MAX_TOKENS),
    }
    return Workload(**{name: value for name, value in asked.items() if value is not None})
