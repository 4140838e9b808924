"""How a deployment is cut over devices: the sizes that were asked for, those that follow, and what cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calc.errors import UsageError
from calc.operators import decode_context
from calc.operators.sharding import Sharding, deal_out
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import Experts, ModelProfile
from calc.timing.network import HOST_SLOTS

if TYPE_CHECKING:
    from calc.serving.deployment import DeploymentOptions

Warnings = tuple[tuple[str, str], ...]
#: Engines that deal out whole experts, with data-parallel attention beside (docs.vllm.ai, docs.sglang.io, TensorRT-LLM's
#: enable_attention_dp).
WIDE_ENGINES = ("vllm", "sglang", "tensorrt-llm", "ideal")
#: Engines whose ranks can share the tokens of a sequence (docs.vllm.ai, ``--decode-context-parallel-size``); ``ideal`` stands for any.
CONTEXT_ENGINES = ("vllm", "ideal")
#: Engines that deal out whole layers to devices, which pass one batch on in turn (llama.cpp tools/server/README.md, ``--split-mode``).
LAYER_SPLIT_ENGINES = ("llama.cpp",)


def scale_up_limit(device: HardwareProfile) -> int:
    """Most devices that share a fabric; without one, those of a host over PCIe."""
    domain = device.interconnect.scale_up_domain_size or 1
    return domain if domain > 1 else HOST_SLOTS


def parallel(model: ModelProfile, device: HardwareProfile, engine: str, options: DeploymentOptions) -> tuple[Sharding, Warnings]:
    """The sharding of a deployment. Raises UsageError for sizes that do not go together, with what would."""
    layers = engine in LAYER_SPLIT_ENGINES and options.memory.split_mode == "layer"
    tensor, pipeline, data = _sizes(device, options, layers=layers)
    context = options.decode_context_parallel_size or 1
    if tensor % context:
        fitting = ", ".join(str(n) for n in range(1, tensor + 1) if tensor % n == 0)
        raise UsageError(
            f"decode context parallel size {context} does not divide tensor parallel size {tensor}", f"sizes that would: {fitting}"
        )
    if context > 1 and engine not in CONTEXT_ENGINES:
        raise UsageError(
            f"no decode context parallelism of {engine} is known", f"leave out -dcp, or choose one of {', '.join(CONTEXT_ENGINES)}"
        )
    warnings: Warnings = ()
    within = scale_up_limit(device)
    if tensor > within:
        warnings = (("beyond_domain", f"tensor parallel size {tensor} exceeds the scale-up domain of {device.id} ({within})"),)
    if tensor > 1 and layers:
        text = f"{engine} deals out whole layers unless it is started with --split-mode row: times are those of rows"
        warnings += (("layer_split", f"{text}; for its default say --gpus or -pp {tensor} in place of -tp"),)
    experts = [part.num_experts for kind in model.layer_kinds.values() for part in kind.feed_forwards if isinstance(part, Experts)]
    if options.enable_expert_parallel and not experts:
        warnings += (("no_experts", f"{model.id} has no experts: --enable-expert-parallel changes nothing"),)
    found = Sharding(tensor, pipeline, data, options.enable_expert_parallel and bool(experts), context)
    decode_context.check(model, found)
    for count in sorted(set(experts)) if found.expert_parallel else ():
        deal_out(count, found.expert_ranks)
    if found.is_wide and engine not in WIDE_ENGINES:
        raise UsageError(
            f"{engine} has no data-parallel attention that shares experts",
            f"leave out --enable-expert-parallel for {data} replicas of their own, or choose one of {', '.join(WIDE_ENGINES)}",
        )
    return found, warnings


def _sizes(device: HardwareProfile, options: DeploymentOptions, *, layers: bool) -> tuple[int, int, int]:
    """Tensor, pipeline and data parallel sizes; --gpus alone is the engine's own split within the scale-up domain: of tensors, or of
    ``layers``."""
    within = scale_up_limit(device)
    tensor, pipeline, data = options.tensor_parallel_size, options.pipeline_parallel_size, options.data_parallel_size
    gpus = options.gpus
    if gpus is not None and tensor is None and pipeline is None and data is None:
        if gpus > within:
            raise UsageError(
                f"{gpus} x {device.id} exceed its scale-up domain of {within}",
                f"say how to split, for example {f'-pp {gpus}' if layers else f'-tp {within} -pp {-(-gpus // within)}'}",
            )
        tensor, pipeline = (1, gpus) if layers else (gpus, 1)
    tensor, pipeline = tensor or 1, pipeline or 1
    if data is None:
        data = gpus // (tensor * pipeline) if gpus is not None and gpus % (tensor * pipeline) == 0 else 1
    if gpus is not None and tensor * pipeline * data != gpus:
        raise UsageError(
            f"{gpus} GPUs do not match tensor {tensor} x pipeline {pipeline} x data {data} = {tensor * pipeline * data}",
            f"use --gpus {tensor * pipeline * data}, or sizes whose product is {gpus}",
        )
    return tensor, pipeline, data
