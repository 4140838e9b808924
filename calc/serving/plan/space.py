"""The deployments that a plan looks at: every split of a replica that divides the model and that the device's links allow, in every
asked format, engine and limit. Replicas come later, from the load."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from calc.errors import UsageError
from calc.operators.step import step_operators
from calc.operators.work import prefill
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import Experts, ModelProfile
from calc.serving.deployment import Deployment, DeploymentOptions, resolve, scale_up_limit
from calc.serving.parallel import WIDE_ENGINES
from calc.serving.speculation import Draft, Drafting

#: Pipeline stages that are tried unless some are asked for: deeper pipes are not run in practice.
PIPELINE_SIZES = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Space:
    """What may vary. ``base`` holds where a list leaves something open; lists name the values that are tried. None of ``tensor`` and
    ``pipeline``: all that fit."""

    base: DeploymentOptions = field(default_factory=DeploymentOptions)
    quantizations: tuple[str | None, ...] = (None,)
    kv_cache_dtypes: tuple[str, ...] = ("auto",)
    engines: tuple[str | None, ...] = (None,)
    max_num_seqs: tuple[int | None, ...] = (None,)
    max_num_batched_tokens: tuple[int | None, ...] = (None,)
    tensor: tuple[int, ...] | None = None
    pipeline: tuple[int, ...] | None = None
    max_gpus: int = 64
    drafting: Drafting | None = None
    speculative_tokens: tuple[int, ...] = (0,)


def splits(space: Space, model: ModelProfile, hardware: HardwareProfile) -> Iterator[tuple[int, int, bool]]:
    """(tensor, pipeline, expert parallel) of a replica. Tensor parallelism stays within the fabric; stages may leave it where a network
    between nodes is known."""
    within = scale_up_limit(hardware)
    beyond = hardware.interconnect.scale_out_gb_per_s_per_direction_per_device is not None
    has_experts = any(isinstance(p, Experts) for kind in model.layer_kinds.values() for p in kind.feed_forwards)
    for tensor in space.tensor or range(1, min(within, space.max_gpus) + 1):
        for pipeline in space.pipeline or PIPELINE_SIZES:
            ranks = tensor * pipeline
            if ranks > space.max_gpus or pipeline > model.num_hidden_layers or (ranks > within and not beyond):
                continue
            if space.base.enable_expert_parallel or not has_experts or tensor == 1:
                yield tensor, pipeline, space.base.enable_expert_parallel
            else:
                yield from ((tensor, pipeline, False), (tensor, pipeline, True))


def deployments(
    space: Space, model: Loaded[ModelProfile], hardware: Loaded[HardwareProfile], refused: dict[str, int]
) -> Iterator[tuple[Deployment, Draft | None]]:
    """Settled deployments of one replica on one kind of device, each with its draft. Splits that do not divide the model (or the draft)
    are passed over silently; other refusals (a type that the device lacks) are counted in ``refused`` by their message."""
    base = space.base
    formats = list(
        itertools.product(
            space.engines,
            space.quantizations,
            space.kv_cache_dtypes,
            space.max_num_seqs,
            space.max_num_batched_tokens,
            space.speculative_tokens,
        )
    )
    divides: dict[tuple[int, bool], bool] = {}
    for tensor, pipeline, expert_parallel in splits(space, model.profile, hardware.profile):
        for engine, quantization, kv_cache_dtype, seqs, tokens, drafts in formats:
            if divides.get((tensor, expert_parallel)) is False:
                continue
            options = replace(
                base,
                tensor_parallel_size=tensor,
                pipeline_parallel_size=pipeline,
                data_parallel_size=1,
                enable_expert_parallel=expert_parallel,
                engine=engine or base.engine,
                quantization=base.quantization if quantization is None else quantization,
                kv_cache_dtype=base.kv_cache_dtype if kv_cache_dtype == "auto" else kv_cache_dtype,
                memory=replace(
                    base.memory,
                    max_num_seqs=seqs or base.memory.max_num_seqs,
                    max_num_batched_tokens=tokens or base.memory.max_num_batched_tokens,
                    speculative_tokens=drafts,
                ),
            )
            try:
                found = resolve(model, hardware, options)
                draft = space.drafting.draft(found) if space.drafting else None
            except UsageError as error:
                refused[error.message] = refused.get(error.message, 0) + 1
                continue
            if expert_parallel and not space.base.enable_expert_parallel and found.engine.NAME not in WIDE_ENGINES:
                continue
            if tensor > 1 and found.engine.NAME == "llama.cpp" and space.tensor is None:  # it deals out layers
                continue
            if (tensor, expert_parallel) not in divides:
                divides[tensor, expert_parallel] = _divides(found)
            if divides[tensor, expert_parallel] and (draft is None or draft.deployment is None or _divides(draft.deployment)):
                yield found, draft


def _divides(deployment: Deployment) -> bool:
    try:
        step_operators(deployment.model.profile, deployment.sharding, deployment.numbers, prefill(1, 2), deployment.fusion)
    except UsageError:
        return False
    return True
