"""What an engine leaves in the host's memory: some bytes of every rank's layers (vLLM, SGLang), or whole layers (llama.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calc.errors import UsageError
from calc.memory.options import MemoryOptions
from calc.memory.term import Term
from calc.units import GIB, format_bytes

if TYPE_CHECKING:
    from calc.memory.budget import MemoryQuestion

#: Engines that keep bytes of a model's layers in host memory: ``--cpu-offload-gb`` (docs.vllm.ai, engine arguments; docs.sglang.io,
#: server arguments). ``ideal`` stands for any.
STREAMING = ("vllm", "sglang", "ideal")
#: Engines that run whole layers on the host: ``--n-gpu-layers`` (llama.cpp tools/server/README.md).
LAYERWISE = ("llama.cpp",)
#: Parts of a model outside its decoder layers: engines offload layers alone.
_OUTSIDE = ("embedding", "lm_head", "encoder", "next_token_layers", "towers", "extras")


def check(engine: str, options: MemoryOptions) -> None:
    """Refuse an offload that the engine does not have. Raises UsageError."""
    if options.cpu_offload_bytes and engine not in STREAMING:
        other = "--n-gpu-layers says how many layers stay on the device" if engine in LAYERWISE else "choose vllm or sglang"
        raise UsageError(f"{engine} has no --cpu-offload-gb", other)
    if options.gpu_layers is not None and engine not in LAYERWISE:
        other = "--cpu-offload-gb leaves weights in host memory" if engine in STREAMING else "choose --engine llama.cpp"
        raise UsageError(f"{engine} has no --n-gpu-layers", other)
    if options.gpu_experts is not None and engine not in (*STREAMING, *LAYERWISE):
        raise UsageError(f"{engine} has no --gpu-experts", "choose llama.cpp, or sglang with KTransformers")


def layer_bytes(parts: dict[str, int]) -> int:
    """Bytes of a rank's decoder layers, of its weights by part."""
    return sum(size for part, size in parts.items() if part not in _OUTSIDE)


def less(question: MemoryQuestion, weights: Term, parts: dict[str, int]) -> Term:
    """The weights of a rank without what stays on the host. Raises UsageError where that is more than its layers."""
    left = question.options.cpu_offload_bytes
    if not left:
        return weights
    most = layer_bytes(parts)
    if left > most:
        raise UsageError(
            f"--cpu-offload-gb {format_bytes(left)} exceeds the {format_bytes(most)} of layers that a GPU holds",
            f"at most {most / GIB:.4g}; with more GPUs each holds less",
        )
    return Term(
        weights.name,
        weights.bytes - left,
        f"{weights.evidence}, without those in host memory",
        weights.least - left,
        weights.most - left,
        (*weights.parts, ("left in host memory", -left)),
    )


def layers_on_host(layers: int, gpu_layers: int | None) -> int:
    """Of so many layers those that llama.cpp runs on the host; the output matrix counts as one more, and is the last to go."""
    return 0 if gpu_layers is None else min(layers, max(0, layers + 1 - gpu_layers))
