"""The inverse of capacity: what would make a number of requests of a length fit, each remedy alone and the rest left as it is.

Every answer is a search over the forward law: the smallest utilisation and the fewest GPUs by monotone search, formats in the order of
what they give up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from calc.errors import UsageError
from calc.memory.capacity import Capacity, group_concurrency
from calc.memory.kv_cache import MAX_CONTEXT, largest_context
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.serving.engine_choice import CACHE_FORMATS
from calc.serving.estimate import enough_sequences, too_large
from calc.serving.parallel import LAYER_SPLIT_ENGINES, scale_up_limit

#: Utilisation is searched in thousandths, up to all of memory.
_STEPS = 1000
#: Most nodes of a scale-up domain that pipeline stages are put on.
_MOST_STAGES = 16
_WEIGHT_FORMATS = {
    "llama.cpp": ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k"),
    "": ("fp8", "awq", "nvfp4"),
}


@dataclass(frozen=True)
class Split:
    """Devices by tensor, pipeline and data parallel size."""

    tensor: int
    pipeline: int
    data: int

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True)
class Remedies:
    """What would hold ``wanted`` requests of ``length`` tokens; None where a remedy alone cannot. ``requests`` and ``context`` are what
    memory holds as it is: requests of this length, and the longest length of so many; None: memory does not limit them.

    ``too_large`` is what keeps them from running at once, as in ``Fit``; None: they fit. ``sequence_limit`` is the most that the engine
    runs at once on all groups of ranks. Where that is too few, ``max_num_seqs`` of each group would do, which the other remedies take
    for granted; None: not needed, or not possible."""

    wanted: int
    length: int
    too_large: str | None
    requests: int | None
    context: int | None
    sequence_limit: int | None
    max_num_seqs: int | None
    gpu_memory_utilization: float | None
    gpus: Split | None
    kv_cache_dtype: str | None
    quantization: str | None

    @property
    def fits(self) -> bool:
        """Whether memory holds them and the engine runs them at once."""
        return self.too_large is None


def room(deployment: Deployment, length: int, wanted: int) -> float:
    """Requests of ``length`` tokens that find memory, the engine being set up for ``wanted`` of them: whole ones on each group of
    ranks."""
    held = _held(deployment, length)
    if held.sequence_limit is not None and held.sequence_limit < wanted:
        held = _held(deployment, length, max_num_seqs=-(-wanted // deployment.sharding.data_ranks))
    if not held.fits:
        return 0.0
    found = float(group_concurrency(held, length, deployment.memory.cached_tokens))
    return found if math.isinf(found) else float(int(found) * held.data_ranks)


def _held(deployment: Deployment, length: int, **changes: int) -> Capacity:
    return deployment.engine.capacity(deployment.question(max_model_len=length, **changes))


def _reason(deployment: Deployment, held: Capacity, wanted: int) -> str | None:
    """What keeps ``wanted`` requests from running as it is, by the rule of every estimate; None where they run."""
    length = held.max_model_len
    question = deployment.question(max_model_len=length)
    sequences = deployment.engine.sequences(question, held, length) if held.fits else 0
    return None if sequences >= wanted else too_large(held, sequences)


def find(
    model: Loaded[ModelProfile], hardware: Loaded[HardwareProfile], options: DeploymentOptions, wanted: int, length: int
) -> Remedies:
    """All remedies of a deployment."""

    def holds(changed: DeploymentOptions, tokens: int = length) -> bool:
        try:
            return room(resolve(model, hardware, changed), tokens, wanted) >= wanted
        except UsageError:  # a split or a format that is not possible here
            return False

    deployment = resolve(model, hardware, options)
    requests, stored = room(deployment, length, wanted), _weights_bytes(deployment)
    held = _held(deployment, length)

    def lighter(form: str) -> bool:
        try:
            return _weights_bytes(resolve(model, hardware, replace(options, quantization=form))) < stored
        except UsageError:  # a format that the device lacks
            return False

    return Remedies(
        wanted=wanted,
        length=length,
        too_large=_reason(deployment, held, wanted),
        requests=int(requests) if math.isfinite(requests) else None,
        context=_longest(lambda tokens: room(deployment, tokens, wanted) >= wanted),
        sequence_limit=held.sequence_limit,
        max_num_seqs=enough_sequences(deployment, held, wanted),
        gpu_memory_utilization=_utilization(lambda share: holds(_using(options, share))),
        gpus=next((split for split in _splits(deployment) if holds(_on(options, split))), None),
        kv_cache_dtype=_first(
            CACHE_FORMATS.get(deployment.engine.NAME, ()),
            lambda form: holds(replace(options, kv_cache_dtype=form, cache_type_k=None, cache_type_v=None)),
        ),
        quantization=_first(
            _WEIGHT_FORMATS.get(deployment.engine.NAME, _WEIGHT_FORMATS[""]),
            lambda form: lighter(form) and holds(replace(options, quantization=form)),
        ),
    )


def _longest(fits: Callable[[int], bool]) -> int | None:
    found = largest_context(fits)
    return found if found < MAX_CONTEXT else None


def _utilization(holds: Callable[[float], bool]) -> float | None:
    """The smallest share, in thousandths, that holds; more memory never holds less."""
    if not holds(1.0):
        return None
    low, high = 1, _STEPS
    while low < high:
        middle = (low + high) // 2
        if holds(middle / _STEPS):
            high = middle
        else:
            low = middle + 1
    return low / _STEPS


def _splits(deployment: Deployment) -> Iterator[Split]:
    """Splits in order of GPUs, with as many data-parallel ranks as there are: powers of two within the scale-up domain, then whole
    domains as stages; of an engine that deals out layers, stages throughout."""
    limit, data = scale_up_limit(deployment.hardware.profile), deployment.sharding.data
    sizes = [1 << i for i in range(limit.bit_length()) if 1 << i <= limit]
    by_layer = deployment.engine.NAME in LAYER_SPLIT_ENGINES
    for tensor, stages in [(size, 1) for size in sizes] + [(sizes[-1], n) for n in range(2, _MOST_STAGES + 1)]:
        yield Split(1, tensor * stages, data) if by_layer else Split(tensor, stages, data)


def _using(options: DeploymentOptions, share: float) -> DeploymentOptions:
    return replace(options, memory=replace(options.memory, gpu_memory_utilization=share))


def _on(options: DeploymentOptions, split: Split) -> DeploymentOptions:
    return replace(
        options,
        gpus=None,
        tensor_parallel_size=split.tensor,
        pipeline_parallel_size=split.pipeline,
        data_parallel_size=split.data,
        memory=replace(options.memory, pipeline_layers=None),
    )


def _weights_bytes(deployment: Deployment) -> int:
    """Weights per GPU as the engine's law counts them: those of the file where it was read, not the nominal bits of its format."""
    return deployment.engine.capacity(deployment.question()).weights_bytes_per_gpu


def _first(forms: tuple[str, ...], holds: Callable[[str], bool]) -> str | None:
    return next((form for form in forms if holds(form)), None)
