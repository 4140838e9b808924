"""Models and devices built in code, and deployments of them: what a test needs when no particular product is the point."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from calc.operators.fusion import SEPARATE, FusionPolicy
from calc.operators.numbers import NumberPlan, plan
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import Work
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.serving.deployment import Deployment, DeploymentOptions, resolve
from calc.timing.roofline import Ceilings

BF16 = plan("bf16", {}, compute="bf16")
FP16 = plan("fp16", {}, compute="fp16", kv_cache="fp16")
ONE = Sharding()
H100 = Ceilings("h100-sxm", {"bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12}, 3.35e12)


def attention(heads: int, kv_heads: int, head_dim: int, kind: str = "full", **rest: Any) -> dict[str, Any]:
    """A softmax attention mixer as a profile writes it."""
    return {"kind": kind, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, **rest}


def decoder(
    *,
    hidden: int,
    layers: int,
    mixers: list[dict[str, Any]] | dict[str, Any],
    width: int,
    vocab: int | None,
    gated: bool = True,
    pattern: list[int] | None = None,
    **rest: Any,
) -> ModelProfile:
    """A dense decoder. Several mixers make several layer kinds, laid out by ``pattern`` (indices of mixers) or in turn."""
    kinds = mixers if isinstance(mixers, list) else [mixers]
    order = pattern if pattern is not None else [i % len(kinds) for i in range(layers)]
    kind_rest = {k: rest.pop(k) for k in ("norms", "parallel") if k in rest}
    feed_forward = {"kind": "dense", "intermediate_size": width, "gated": gated, **rest.pop("feed_forward", {})}
    data = {
        "id": "built",
        "name": "Built",
        "family": "test",
        "hidden_size": hidden,
        "vocab_size": vocab,
        "has_lm_head": vocab is not None,
        "layer_kinds": {f"kind{i}": {"mixers": [m], "feed_forwards": [feed_forward], **kind_rest} for i, m in enumerate(kinds)},
        "stack": [{"layers": [f"kind{i}" for i in order]}] if len(kinds) > 1 else [{"repeat": layers, "layers": ["kind0"]}],
        "storage": {"dtype": "bf16"},
        **rest,
    }
    return msgspec.convert(data, ModelProfile)


@cache
def llama(size: str) -> ModelProfile:
    """Llama 3.1 in its three sizes, from the published shapes."""
    hidden, layers, heads, width = {"8b": (4096, 32, 32, 14336), "70b": (8192, 80, 64, 28672), "405b": (16384, 126, 128, 53248)}[
        size
    ]
    return decoder(hidden=hidden, layers=layers, mixers=attention(heads, 8, 128), width=width, vocab=128256)


def device(**rest: Any) -> HardwareProfile:
    """An accelerator with round figures: 100 TFLOP/s in 16 bit, 1 TB/s, 80 GiB, a fabric of eight at 100 GB/s per direction."""
    peaks = rest.pop("peaks", {"fp32": 10.0, "fp16": 100.0, "bf16": 100.0})
    links = rest.pop("links", {"scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 8})
    data = {
        "id": "device",
        "name": "Device",
        "vendor": "test",
        "class": "datacenter_gpu",
        "unit_of_account": "one",
        "memory_capacity_gb": 80.0,
        "memory_reported_mib": 81920.0,
        "memory_bandwidth_gb_per_s": 1000.0,
        "peak_dense_tflops": peaks,
        "interconnect": links,
        **rest,
    }
    return msgspec.convert(data, HardwareProfile)


def loaded(profile: Any) -> Loaded[Any]:
    """A profile as the catalogue hands it over."""
    kind = "model" if isinstance(profile, ModelProfile) else "hardware"
    return Loaded(profile, kind, profile.id, None, "")  # type: ignore[arg-type]


def deployment(model: ModelProfile, hardware: HardwareProfile, **options: Any) -> Deployment:
    """A settled deployment of profiles built in code."""
    return resolve(loaded(model), loaded(hardware), DeploymentOptions(**options))


def operators(
    model: ModelProfile, step: Work, sharding: Sharding = ONE, numbers: NumberPlan = BF16, policy: FusionPolicy = SEPARATE
) -> list[Operator]:
    """The operator list of one step."""
    return step_operators(model, sharding, numbers, step, policy)


def named(found: list[Operator], name: str, layers: str | None = None) -> Operator:
    """The only operator of a name (and layer kind)."""
    (only,) = [o for o in found if o.name == name and layers in (None, o.layers)]
    return only


def total(found: list[Operator], figure: str, *classes: str) -> Any:
    """A figure summed over all calls on all ranks, of the given operator classes (all if none)."""
    return sum(getattr(o, figure) * o.count * o.ranks for o in found if not classes or o.op_class in classes)
