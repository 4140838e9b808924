"""The deployments that a plan looks at: every split of a replica that divides the model and that the device's links allow, in every
asked format, engine and limit. Replicas come later, from the load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from calc.errors import UsageError
from calc.operators.step import step_operators
from calc.operators.work import prefill
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import Experts, ModelProfile
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.serving.parallel import LAYER_SPLIT_ENGINES, WIDE_ENGINES, scale_up_limit
from calc.serving.speculation import Draft, Drafting

#: Pipeline stages that are tried unless some are asked for: deeper pipes are not run in practice.
PIPELINE_SIZES = (1, 2, 3, 4, 6, 8)
#: Engines whose data-parallel attention is all of a replica's ranks, with no tensor parallel groups beside (TensorRT-LLM mapping.py:
#: ``dp_size`` is ``tp_size``).
_UNGROUPED = ("tensorrt-llm",)


@dataclass(frozen=True)
class Space:
    """What may vary. ``base`` holds where a list leaves something open; lists name the values that are tried. None of ``tensor``,
    ``pipeline`` and ``data`` (ranks of data-parallel attention; 1: none): all that fit."""

    base: DeploymentOptions = field(default_factory=DeploymentOptions)
    quantizations: tuple[str | None, ...] = (None,)
    kv_cache_dtypes: tuple[str, ...] = ("auto",)
    engines: tuple[str | None, ...] = (None,)
    max_num_seqs: tuple[int | None, ...] = (None,)
    max_num_batched_tokens: tuple[int | None, ...] = (None,)
    tensor: tuple[int, ...] | None = None
    pipeline: tuple[int, ...] | None = None
    data: tuple[int, ...] | None = None
    max_gpus: int = 64
    drafting: Drafting | None = None
    speculative_tokens: tuple[int, ...] = (0,)

    @property
    def asked_data(self) -> tuple[int, ...] | None:
        """Sizes of data-parallel attention that are asked for; None: all that fit."""
        one = self.base.data_parallel_size
        return self.data or ((one,) if one else None)


@dataclass(frozen=True)
class Split:
    """How a replica is cut. ``data`` above 1: attention is data-parallel, whole experts lie on all ranks of a stage."""

    tensor: int
    pipeline: int
    data: int
    expert_parallel: bool


def splits(space: Space, model: ModelProfile, hardware: HardwareProfile) -> Iterator[Split]:
    """The splits of a replica: tensor parallelism within the fabric; stages and experts may leave it where a network between nodes is
    known. Raises UsageError where data-parallel attention alone is asked for and the model has no experts to share."""
    asked, experts = space.asked_data, _experts(model)
    if asked and 1 not in asked and not experts:
        raise UsageError(
            f"{model.id} has no experts that data-parallel ranks could share",
            "leave --data-parallel-size out: replicas follow from the load",
        )
    if asked is None or 1 in asked:
        yield from _grouped(space, model, hardware, has_experts=bool(experts))
    if experts:
        yield from _wide(space, model, hardware, experts)


def _experts(model: ModelProfile) -> int:
    """Numbers that divide this deal out the experts of every layer evenly; 0: there are none."""
    counts = (p.num_experts for kind in model.layer_kinds.values() for p in kind.feed_forwards if isinstance(p, Experts))
    return math.gcd(*counts)


def _grouped(space: Space, model: ModelProfile, hardware: HardwareProfile, *, has_experts: bool) -> Iterator[Split]:
    """Tensor parallel stages; of a mixture with slices of all experts on each rank, and with whole ones."""
    within, beyond = scale_up_limit(hardware), _has_network(hardware)
    for tensor in space.tensor or range(1, min(within, space.max_gpus) + 1):
        for pipeline in space.pipeline or PIPELINE_SIZES:
            ranks = tensor * pipeline
            if ranks > space.max_gpus or pipeline > model.num_hidden_layers or (ranks > within and not beyond):
                continue
            if not (space.tensor and space.pipeline) and not _on_even_hosts(tensor, ranks, within):
                continue
            if space.base.enable_expert_parallel or not has_experts or tensor == 1:
                yield Split(tensor, pipeline, 1, space.base.enable_expert_parallel)
            else:
                yield from (Split(tensor, pipeline, 1, False), Split(tensor, pipeline, 1, True))


def _wide(space: Space, model: ModelProfile, hardware: HardwareProfile, experts: int) -> Iterator[Split]:
    """Data-parallel attention with the experts dealt out evenly to all ranks of a stage: those of a fabric or of whole ones. Sizes that are
    asked for are tried as they are, pipeline stages beside it only where they are asked for."""
    within, beyond, asked = scale_up_limit(hardware), _has_network(hardware), space.asked_data
    for tensor in space.tensor or range(1, min(within, space.max_gpus) + 1):
        for data in asked or range(2, space.max_gpus // tensor + 1):
            stage = tensor * data
            if data == 1 or (asked is None and (experts % stage or (stage > within and (stage % within or within % tensor)))):
                continue
            for pipeline in space.pipeline or (1,):
                ranks = stage * pipeline
                if ranks <= space.max_gpus and pipeline <= model.num_hidden_layers and (ranks <= within or beyond):
                    yield Split(tensor, pipeline, data, True)


def _on_even_hosts(tensor: int, ranks: int, within: int) -> bool:
    """Whether the ranks fall on hosts evenly, as engines start them, with no tensor-parallel group on two of them."""
    hosts = -(-ranks // within)
    return ranks % hosts == 0 and (hosts == 1 or ranks // hosts % tensor == 0)


def _has_network(hardware: HardwareProfile) -> bool:
    return hardware.interconnect.scale_out_gb_per_s_per_direction_per_device is not None


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
    divides: dict[tuple[int, int, bool], bool] = {}
    for split in splits(space, model.profile, hardware.profile):
        key = split.tensor, split.data, split.expert_parallel
        for engine, quantization, kv_cache_dtype, seqs, tokens, drafts in formats:
            if divides.get(key) is False:
                continue
            options = replace(
                base,
                tensor_parallel_size=split.tensor,
                pipeline_parallel_size=split.pipeline,
                data_parallel_size=split.data,
                enable_expert_parallel=split.expert_parallel,
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
                if split.data == 1 or space.asked_data:  # else the engine does not do it, or refuses the plain splits as well
                    refused[error.message] = refused.get(error.message, 0) + 1
                continue
            if split.expert_parallel and not space.base.enable_expert_parallel and found.engine.NAME not in WIDE_ENGINES:
                continue
            if split.tensor > 1 and found.engine.NAME in LAYER_SPLIT_ENGINES and space.tensor is None:
                continue
            if split.tensor > 1 and split.data > 1 and found.engine.NAME in _UNGROUPED:
                continue
            if key not in divides:
                divides[key] = _divides(found)
            if divides[key] and (draft is None or draft.deployment is None or _divides(draft.deployment)):
                yield found, draft


def _divides(deployment: Deployment) -> bool:
    try:
        step_operators(deployment.model.profile, deployment.sharding, deployment.numbers, prefill(1, 2), deployment.fusion)
    except UsageError:
        return False
    return True
