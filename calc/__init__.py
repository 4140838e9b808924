"""roofcast: roofline, KV cache and capacity of LLM inference, predicted from profiles and checked on your own device.

The public Python API. Importing it loads neither numpy, torch nor rich; each function imports what it needs.

    import calc
    result = calc.estimate("llama-3.1-8b", "h100-sxm5-80gb", input_len=2048, output_len=256, batch_size=16)
    print(result.decode.time_s.expected, result.fit.fits)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    from calc.serving.load.objectives import Demand
    from calc.serving.plan.search import GoalName, Plan
    from calc.serving.request import Workload
    from calc.serving.speculation import Draft, Drafting

__all__ = [
    "__version__",
    "capacity",
    "count_parameters",
    "deploy",
    "estimate",
    "load_hardware",
    "load_model",
    "plan",
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
        from calc.measure.device.detect import detect_local

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
            "`roofcast hardware detect --measure -o my-device.yaml` measures one; name that file in place of `local`",
        ) from error


def deploy(model: str, hardware: str, options: DeploymentOptions | None = None, profiles_dir: str | None = None) -> Deployment:
    """Settle a deployment: sharding, formats, engine, efficiency. Raises UsageError for what cannot be."""
    from calc.serving.deployment import DeploymentOptions, resolve

    return resolve(load_model(model, profiles_dir), load_hardware(hardware, profiles_dir), options or DeploymentOptions())


def estimate(model: str, hardware: str, **options: Any) -> Estimate:
    """Prefill, decode, request latency, memory and capacity. Options are those of DeploymentOptions, MemoryOptions and Workload.

    ``acceptance`` (a rate, or one by position) with ``speculative_tokens`` adds speculative decoding, ``draft_model`` names its draft.
    ``request_rate`` (per second) or ``concurrency`` (users at once) adds the steady state of continuous batching as ``load``.
    """
    drafting = _drafting(options)
    demand = _demand(options, 0.0) if options.keys() & {"request_rate", "concurrency"} else None
    deployment, workload = _settle(model, hardware, options)
    return estimate_deployment(deployment, workload, drafting.draft(deployment) if drafting else None, demand)


def roofline(model: str, hardware: str, *, phases: tuple[str, ...] = ("prefill", "decode"), **options: Any) -> Roofline:
    """The asked phases operator by operator. Options as of ``estimate``."""
    deployment, workload = _settle(model, hardware, options)
    return roofline_deployment(deployment, workload, phases)


def plan(
    model: str,
    hardware: str | Sequence[str],
    *,
    input_len: int = 1024,
    output_len: int = 256,
    cached_len: int = 0,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    e2e_s: float | None = None,
    headroom: float | None = None,
    goal: GoalName = "cost",
    conservative: bool = False,
    prices: Mapping[str, float] | None = None,
    whole_instances: bool = False,
    max_gpus: int = 64,
    top: int = 5,
    **options: Any,
) -> Plan:
    """The best deployments of a model on one or several kinds of device that carry a load within latency objectives (seconds).

        found = calc.plan("llama-3.1-8b", ["l40s", "h100-sxm5-80gb"], request_rate=2.0, tpot_s=0.03)
        print(found.answers[0].gpus, found.answers[0].usd_per_hour)

    The load is ``request_rate`` (requests/s of independent users; ``headroom`` of what is sustainable is left free, by default a fifth) or
    ``concurrency`` (users who ask again when answered; default 1, with the goal ``throughput`` as many as there is room for). ``goal``
    is cost, gpus, tpot, ttft or throughput; ``prices`` in USD per GPU and hour by profile id; ``whole_instances`` are paid for where a
    profile's price is a share of one. Further options are those of DeploymentOptions and MemoryOptions, which fix what is searched
    otherwise, and ``speculative_tokens`` (a number, or several to try) with ``acceptance`` and ``draft_model``. No answers: nothing
    meets the objectives. Raises UsageError where nothing can be answered at all.
    """
    from dataclasses import replace

    from calc.serving.load.objectives import Objectives
    from calc.serving.load.traffic import uniform
    from calc.serving.plan.search import Question
    from calc.serving.plan.search import plan as search
    from calc.serving.plan.space import Space
    from calc.units import require_number

    asked = {"ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": e2e_s, "headroom": headroom, "max_gpus": max_gpus, "top": top}
    for name, value in (*asked.items(), *((f"price of {device}", usd) for device, usd in (prices or {}).items())):
        require_number(value, name, whole=name in ("max_gpus", "top"))
    drafting, tokens = _drafting(options), options.pop("speculative_tokens", 0)
    names = options.keys() & {"request_rate", "concurrency"} or goal == "throughput"
    demand = _demand(options if names else {"concurrency": 1}, headroom)
    profiles_dir = options.get("profiles_dir")
    base, lengths = _parse(options | {"input_len": input_len, "output_len": output_len, "cached_len": cached_len})
    tensor, stages = base.tensor_parallel_size, base.pipeline_parallel_size
    space = Space(
        replace(base, gpus=None),
        tensor=(tensor,) if tensor else None,
        pipeline=(stages,) if stages else None,
        max_gpus=max_gpus,
        drafting=drafting,
        speculative_tokens=_numbers(tokens, "speculative_tokens", whole=True),
    )
    return search(
        Question(
            model=load_model(model, profiles_dir),
            hardware=tuple(load_hardware(h, profiles_dir) for h in ([hardware] if isinstance(hardware, str) else hardware)),
            traffic=uniform(lengths.input_len, lengths.output_len, lengths.cached_len),
            objectives=Objectives(ttft_s, tpot_s, e2e_s),
            demand=demand,
            goal=goal,
            conservative=conservative,
            prices=dict(prices or {}),
            whole_instances=whole_instances,
            space=space,
            top=top,
        )
    )


def capacity(model: str, hardware: str, **options: Any) -> Capacity:
    """What the deployment holds by its engine's own memory law. Options as of ``estimate``, workload apart."""
    deployment, _ = _settle(model, hardware, options)
    return capacity_deployment(deployment)


def count_parameters(model: str, profiles_dir: str | None = None) -> Parameters:
    """Parameters of a model by part, and active ones."""
    from calc.operators.parameters import count_parameters as count

    return count(load_model(model, profiles_dir).profile)


def estimate_deployment(
    deployment: Deployment, workload: Workload, draft: Draft | None = None, demand: Demand | None = None
) -> Estimate:
    """``estimate`` of a settled deployment."""
    from calc.serving import estimate as serving

    return serving.estimate(deployment, workload, draft, demand)


def roofline_deployment(deployment: Deployment, workload: Workload, phases: tuple[str, ...]) -> Roofline:
    """``roofline`` of a settled deployment."""
    from calc.serving import estimate as serving

    return serving.roofline(deployment, workload, phases)


def capacity_deployment(deployment: Deployment) -> Capacity:
    """``capacity`` of a settled deployment."""
    from calc.serving import estimate as serving

    return serving.capacity(deployment)


def _settle(model: str, hardware: str, options: dict[str, Any]) -> tuple[Deployment, Workload]:
    deployment, workload = _parse(options)
    return deploy(model, hardware, deployment, options.get("profiles_dir")), workload


def _parse(options: dict[str, Any]) -> tuple[DeploymentOptions, Workload]:
    from calc.errors import UsageError, did_you_mean
    from calc.memory.budget import MemoryOptions
    from calc.serving.deployment import DeploymentOptions
    from calc.serving.request import Workload
    from calc.units import require_number

    left = {name: value for name, value in options.items() if name != "profiles_dir"}
    groups = (Workload, MemoryOptions, DeploymentOptions)
    kinds = {name: str(f.type).removesuffix(" | None") for g in groups for name, f in g.__dataclass_fields__.items()}
    for name, value in left.items():
        if kinds.get(name) in ("int", "float"):
            require_number(value, name, whole=kinds[name] == "int")
    taken: list[dict[str, Any]] = [{n: left.pop(n) for n in list(left) if n in g.__dataclass_fields__} for g in groups]
    if left:
        word = next(iter(left))
        planned = did_you_mean(word, plan.__kwdefaults__ or ())
        near = did_you_mean(word, kinds) or (planned and f"{planned} `calc.plan` takes it")
        raise UsageError(
            f"unknown option {word!r}", near or "options are the fields of Workload, MemoryOptions and DeploymentOptions"
        )
    workload, memory, deployment = taken
    deployment.setdefault("memory", MemoryOptions(**memory))
    return DeploymentOptions(**deployment), Workload(**workload)


def _numbers(given: Any, name: str, *, whole: bool) -> tuple[Any, ...]:
    """One number or several."""
    from calc.units import require_number

    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for value in found:
        require_number(value, name, whole=whole)
    return found


def _drafting(options: dict[str, Any]) -> Drafting | None:
    """Take what is said of drafts out of the options."""
    from calc.serving import speculation

    acceptance, name = options.pop("acceptance", None), options.pop("draft_model", None)
    if acceptance is None and name is None:
        return None
    rates = _numbers(() if acceptance is None else acceptance, "acceptance", whole=False)
    loaded = None if name in (None, speculation.NGRAM) else load_model(name, options.get("profiles_dir"))
    return speculation.Drafting(rates, loaded, looked_up=name == speculation.NGRAM)


def _demand(options: dict[str, Any], headroom: float | None) -> Demand:
    """Take the load out of the options."""
    from calc.serving.load.objectives import HEADROOM, Demand
    from calc.units import require_number

    share = HEADROOM if headroom is None else headroom
    require_number(options.get("request_rate"), "request_rate", whole=False)
    require_number(options.get("concurrency"), "concurrency", whole=True)
    return Demand(options.pop("request_rate", None), options.pop("concurrency", None), share)
