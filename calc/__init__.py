"""roofcast: roofline, KV cache and capacity of LLM inference, predicted from profiles and checked on your own device.

The public Python API. Importing it loads neither numpy, torch nor rich; each function imports what it needs.

    import calc
    result = calc.estimate("llama-3.1-8b", "h100-sxm5-80gb", input_len=2048, output_len=256, batch_size=16)
    print(result.decode.time_s.expected, result.fit.fits)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calc.version import VERSION as __version__

if TYPE_CHECKING:
    from calc.memory.budget import Capacity
    from calc.operators.parameters import Parameters
    from calc.profiles.catalog import Loaded
    from calc.profiles.hardware import HardwareProfile
    from calc.profiles.model import ModelProfile
    from calc.serving.deployment import Deployment, DeploymentOptions
    from calc.serving.estimate import Estimate, Roofline
    from calc.serving.request import Workload
    from calc.serving.speculation import Draft

__all__ = [
    "__version__",
    "capacity",
    "count_parameters",
    "deploy",
    "estimate",
    "load_hardware",
    "load_model",
    "roofline",
]


def load_model(name: str, profiles_dir: str | None = None) -> Loaded[ModelProfile]:
    """A model profile by name, alias or path (YAML profile, ``config.json`` or its folder, ``.gguf``), or ``hf:org/name[@revision]``.

    Raises UnknownNameError (with the nearest names) or ProfileError (with every fault at its line and column).
    """
    from calc.profiles import catalog

    return catalog.load(name, "model", profiles_dir)


def load_hardware(name: str, profiles_dir: str | None = None) -> Loaded[HardwareProfile]:
    """A hardware profile by name, alias (what torch, NVML or a cloud calls it) or path; ``local`` is the device of this machine."""
    from calc.profiles import catalog

    if name == "local":
        from calc.measure.detect import detect_local

        return _local_hardware(detect_local().name, profiles_dir)
    return catalog.load(name, "hardware", profiles_dir)


def _local_hardware(name: str, profiles_dir: str | None) -> Loaded[HardwareProfile]:
    from calc.errors import UnknownNameError
    from calc.profiles import catalog

    try:
        return catalog.load(name, "hardware", profiles_dir)
    except UnknownNameError as error:
        raise UnknownNameError(
            f"no hardware profile describes this device: {name}",
            "`roofcast measure MODEL` finds what it reaches; or name a profile of your own",
        ) from error


def deploy(model: str, hardware: str, options: DeploymentOptions | None = None, profiles_dir: str | None = None) -> Deployment:
    """Settle a deployment: sharding, formats, engine, efficiency. Raises UsageError for what cannot be."""
    from calc.serving.deployment import DeploymentOptions, resolve

    return resolve(load_model(model, profiles_dir), load_hardware(hardware, profiles_dir), options or DeploymentOptions())


def estimate(model: str, hardware: str, **options: Any) -> Estimate:
    """Prefill, decode, request latency, memory and capacity. Options are those of DeploymentOptions, MemoryOptions and Workload.

    ``acceptance`` (a rate, or one by position) with ``speculative_tokens`` adds speculative decoding, ``draft_model`` names its draft.
    """
    acceptance, draft_model = options.pop("acceptance", None), options.pop("draft_model", None)
    deployment, workload = _settle(model, hardware, options)
    draft = None
    if acceptance is not None or draft_model is not None:
        rates = (acceptance,) if isinstance(acceptance, (int, float)) else tuple(acceptance or ())
        draft = draft_deployment(deployment, rates, draft_model, options.get("profiles_dir"))
    return estimate_deployment(deployment, workload, draft)


def roofline(model: str, hardware: str, *, phases: tuple[str, ...] = ("prefill", "decode"), **options: Any) -> Roofline:
    """The asked phases operator by operator. Options as of ``estimate``."""
    deployment, workload = _settle(model, hardware, options)
    return roofline_deployment(deployment, workload, phases)


def capacity(model: str, hardware: str, **options: Any) -> Capacity:
    """What the deployment holds by its engine's own memory law. Options as of ``estimate``, workload apart."""
    deployment, _ = _settle(model, hardware, options)
    return capacity_deployment(deployment)


def count_parameters(model: str, profiles_dir: str | None = None) -> Parameters:
    """Parameters of a model by part, and active ones."""
    from calc.operators.parameters import count_parameters as count

    return count(load_model(model, profiles_dir).profile)


def estimate_deployment(deployment: Deployment, workload: Workload, draft: Draft | None = None) -> Estimate:
    """``estimate`` of a settled deployment."""
    from calc.serving import estimate as serving

    return serving.estimate(deployment, workload, draft)


def draft_deployment(
    deployment: Deployment, acceptance: tuple[float, ...], draft_model: str | None = None, profiles_dir: str | None = None
) -> Draft:
    """What drafts for a settled deployment, as many tokens a round as its ``speculative_tokens``: the model's own next-token layers, a
    draft model by name (same device, ranks and engine, formats as stored), or ``ngram`` (looked up, no step)."""
    from calc.serving import speculation

    loaded = None if draft_model in (None, speculation.NGRAM) else load_model(draft_model, profiles_dir)
    return speculation.draft_for(deployment, acceptance, loaded, looked_up=draft_model == speculation.NGRAM)


def roofline_deployment(deployment: Deployment, workload: Workload, phases: tuple[str, ...]) -> Roofline:
    """``roofline`` of a settled deployment."""
    from calc.serving import estimate as serving

    return serving.roofline(deployment, workload, phases)


def capacity_deployment(deployment: Deployment) -> Capacity:
    """``capacity`` of a settled deployment."""
    from calc.serving import estimate as serving

    return serving.capacity(deployment)


def _settle(model: str, hardware: str, options: dict[str, Any]) -> tuple[Deployment, Workload]:
    from calc.errors import UsageError, did_you_mean
    from calc.memory.budget import MemoryOptions
    from calc.serving.deployment import DeploymentOptions
    from calc.serving.request import Workload

    left = dict(options)
    profiles_dir = left.pop("profiles_dir", None)
    groups = (Workload, MemoryOptions, DeploymentOptions)
    taken: list[dict[str, Any]] = [{n: left.pop(n) for n in list(left) if n in g.__dataclass_fields__} for g in groups]
    if left:
        known = [n for g in groups for n in g.__dataclass_fields__]
        word = next(iter(left))
        raise UsageError(f"unknown option {word!r}", did_you_mean(word, known))
    workload, memory, deployment = taken
    deployment.setdefault("memory", MemoryOptions(**memory))
    return deploy(model, hardware, DeploymentOptions(**deployment), profiles_dir), Workload(**workload)
