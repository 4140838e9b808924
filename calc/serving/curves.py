"""Curves for pictures: how many requests fit at each length, for each cache format that an engine offers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from calc.errors import RoofcastError
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.serving.engine_choice import CACHE_FORMATS

_SHORTEST, _LONGEST = 256, 1 << 22


@dataclass(frozen=True)
class Curve:
    """Requests that fit at once at each length, in one cache format."""

    kv_cache_dtype: str
    lengths: list[int]
    concurrency: list[float]


def concurrency_curves(deployment: Deployment, options: DeploymentOptions) -> Iterator[Curve]:
    """The deployment's own format first, then what its engine offers; formats that do not apply are left out."""
    most = deployment.model.profile.max_position_embeddings or _LONGEST
    longest = max(_SHORTEST, min(_LONGEST, most, deployment.memory.max_model_len or most))
    lengths = [_SHORTEST]
    while lengths[-1] * 2 < longest:
        lengths.append(lengths[-1] * 2)
    lengths.append(longest)
    own = deployment.inputs["kv_cache_dtype"]
    for name in dict.fromkeys((own, *CACHE_FORMATS.get(deployment.engine.NAME, ()))):
        try:
            changed = (
                deployment
                if name == own
                else resolve(
                    deployment.model,
                    deployment.hardware,
                    replace(options, kv_cache_dtype=name, cache_type_k=None, cache_type_v=None),
                )
            )
            yield Curve(name, lengths, [_room(changed, n) for n in lengths])
        except RoofcastError:  # a layout that the model or the kernels do not have
            continue


def _room(deployment: Deployment, length: int) -> float:
    held = deployment.engine.capacity(deployment.question(max_model_len=length))
    return held.max_concurrency if held.fits else 0.0
