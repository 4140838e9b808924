"""Memory questions in a line: a model and a device by name or as profiles, everything else as keywords."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import calc
from calc.memory.budget import Capacity, MemoryOptions
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from tests.support.profiles import loaded

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_MEMORY = {f.name for f in fields(MemoryOptions)}


def deploy(model: str | ModelProfile, hardware: str | HardwareProfile, engine: str = "vllm", **options: Any) -> Deployment:
    """A deployment; options of memory and of the deployment stand side by side, ``tp`` and ``pp`` are short for their sizes."""
    for short, name in (("tp", "tensor_parallel_size"), ("pp", "pipeline_parallel_size"), ("dp", "data_parallel_size")):
        if short in options:
            options[name] = options.pop(short)
    memory = MemoryOptions(**{k: v for k, v in options.items() if k in _MEMORY})
    rest = {k: v for k, v in options.items() if k not in _MEMORY}
    return resolve(
        calc.load_model(model) if isinstance(model, str) else loaded(model),
        calc.load_hardware(hardware) if isinstance(hardware, str) else loaded(hardware),
        DeploymentOptions(engine=engine, memory=memory, **rest),
    )


def held(model: str | ModelProfile, hardware: str | HardwareProfile, engine: str = "vllm", **options: Any) -> Capacity:
    """What a deployment holds by the engine's law."""
    deployment = deploy(model, hardware, engine, **options)
    return deployment.engine.capacity(deployment.question())


def term(capacity: Capacity, name: str) -> Any:
    """The only term of a name."""
    (only,) = [t for t in capacity.terms if t.name == name]
    return only


def printed(capacity: Capacity, name: str) -> float:
    """The only printed figure of a name."""
    (only,) = [f.value for f in capacity.printed if f.name == name]
    return only
