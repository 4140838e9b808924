"""A deployment: model, device, how it is cut, which engine, which formats. Everything the user left open is settled here, once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from calc.errors import UsageError, require
from calc.memory import host
from calc.memory.budget import MemoryOptions, MemoryQuestion
from calc.memory.engines import EngineLaw
from calc.numerics import canonical_dtype
from calc.operators.fusion import SEPARATE, FusionPolicy
from calc.operators.numbers import NumberPlan, plan
from calc.operators.sharding import Sharding
from calc.operators.stored import counted_bytes
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.serving.engine_choice import chosen
from calc.serving.parallel import LAYER_SPLIT_ENGINES, parallel
from calc.timing import paths
from calc.timing.calibrated import Calibrated
from calc.timing.efficiency import Efficiency, evidence_warnings, for_setting
from calc.timing.overlap import Overlap, possible
from calc.timing.roofline import Ceilings, datasheet
from calc.timing.setting import MICRO_BATCH, Setting, setting

Warnings = tuple[tuple[str, str], ...]
#: Types that weights and activations are multiplied in where both are quantised.
_QUANTISED_PRODUCTS = ("fp8", "int8", "fp4")


@dataclass(frozen=True)
class DeploymentOptions:
    """What the user may say about a deployment; None leaves it to the defaults, which are echoed."""

    gpus: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    enable_expert_parallel: bool = False
    decode_context_parallel_size: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    engine: str | None = None
    fusion: FusionPolicy = SEPARATE
    efficiency: str | None = None
    overlap: float = 0.0
    memory: MemoryOptions = field(default_factory=MemoryOptions)

    def __post_init__(self) -> None:
        for name in (
            "gpus", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
        ):  # fmt: skip
            require(getattr(self, name), name, 1, 1 << 16)
        require(self.overlap, "overlap", 0.0, 1.0)


@dataclass(frozen=True)
class Deployment:
    """A deployment with nothing left open."""

    model: Loaded[ModelProfile]
    hardware: Loaded[HardwareProfile]
    sharding: Sharding
    numbers: NumberPlan
    engine: EngineLaw
    fusion: FusionPolicy
    efficiency: Efficiency | Calibrated
    ceilings: Ceilings
    memory: MemoryOptions
    has_rates: bool
    kv_cache_dtype: str
    warnings: Warnings
    inputs: dict[str, Any]
    setting: Setting
    overlap: Overlap

    def __repr__(self) -> str:
        return f"<{self.model.name} on {self.sharding.gpus} x {self.hardware.name} with {self.engine.NAME}>"

    def question(self, **changes: Any) -> MemoryQuestion:
        """The memory question of this deployment, with some options changed."""
        options = replace(self.memory, **changes) if changes else self.memory
        return MemoryQuestion(self.model.profile, self.hardware.profile, self.sharding, self.numbers, options)

    def beyond_model(self, tokens: int) -> Warnings:
        """What to tell of a sequence of so many tokens: a model may have been made for fewer, and engines refuse more by default."""
        longest = self.model.profile.max_position_embeddings
        if not longest or tokens <= longest:
            return ()
        return (("context_beyond_model", f"{tokens:,} tokens exceed the model's maximum of {longest:,}"),)

    def with_setting(self, setting: Setting, **changes: Any) -> Deployment:
        """The deployment in another setting, by which fitted effects are looked up, and with what else changes."""
        model = self.efficiency
        if isinstance(model, Calibrated):
            model = Calibrated(model.effects, setting, model.scale)
        return replace(self, setting=setting, efficiency=model, **changes)


def resolve(model: Loaded[ModelProfile], hardware: Loaded[HardwareProfile], options: DeploymentOptions) -> Deployment:
    """Settle what is open. Raises UsageError for impossible splits, unknown names and types that the device lacks."""
    device = hardware.profile
    law = chosen(options.engine, device)
    host.check(law.NAME, options.memory)
    sharding, shard_warnings = parallel(model.profile, device, law.NAME, options)
    _check_devices(options.memory, sharding.ranks if law.NAME in LAYER_SPLIT_ENGINES else sharding.pipeline)
    compute, dtype_warnings = compute_dtype(options.dtype, model.profile, device)
    has_rates = compute is not None and device.memory_bandwidth_gb_per_s is not None
    if compute is not None and not has_rates:
        dtype_warnings += (("no_rate", f"no memory bandwidth is known for {device.id}: times are not answered"),)
    kv_dtype = _kv_cache_dtype(options, model.profile, compute or "bf16")
    numbers = plan(
        model.profile.storage.dtype,
        model.profile.storage.roles,
        compute=compute or "bf16",
        quantization=options.quantization,
        group_size=model.profile.storage.group_size if options.quantization is None else None,
        kv_cache=options.cache_type_k or kv_dtype,
        kv_cache_values=options.cache_type_v,
        low_precision=frozenset(t for t in ("fp8", "int8", "fp4") if device.peak_flops_per_s(t)),
        state_dtype=model.profile.state_dtype,
        counted_bytes=counted_bytes(model.profile),
        kernels=paths.four_bit_kernels(law.NAME, device),
    )
    ceilings = datasheet(device, sharding.tensor, paths.engine_paths(law.NAME, device), sharding.reach)
    where = setting(
        law.NAME,
        device,
        model.profile,
        numbers,
        sharding,
        version=options.memory.engine_version or law.NEWEST_VERSION,
        micro_batch=_micro_batch(law.NAME, options.memory),
        layer_split=sharding.pipeline if law.NAME in LAYER_SPLIT_ENGINES else 1,
    )
    efficiency = for_setting(options.efficiency, where)
    if has_rates and ((sharding.tensor > 1 and ceilings.link is None) or None in ceilings.links.values()):
        has_rates = False
        dtype_warnings += (("no_link", f"no link between devices is known for {device.id}: times are not answered"),)
    return Deployment(
        model,
        hardware,
        sharding,
        numbers,
        law,
        options.fusion,
        efficiency,
        ceilings,
        options.memory,
        has_rates,
        kv_dtype,
        shard_warnings + dtype_warnings + _format_warnings(numbers, options, ceilings) + evidence_warnings(efficiency, device.id),
        _inputs(model, hardware, sharding, numbers, law, options),
        where,
        possible(sharding, law.NAME, options.overlap),
    )


def compute_dtype(asked: str, model: ModelProfile, device: HardwareProfile) -> tuple[str | None, Warnings]:
    """The type matrices are multiplied in: the checkpoint's 16-bit type where the device has a rate for it, else the other 16-bit
    type, else fp32 with a warning; None for a device without any rate. A type asked for that the device lacks is refused."""
    available = [d for d in ("bf16", "fp16", "fp32") if device.peak_flops_per_s(d)]
    if asked.lower() != "auto":
        wanted = canonical_dtype(asked)
        if wanted not in available:
            has = ", ".join(available) or "no known rate at all"
            raise UsageError(f"{device.id} has no {wanted} rate", f"it has: {has}")
        return wanted, ()
    stored = model.storage.dtype
    first = stored if stored in paths.SIXTEEN_BIT else "bf16"
    order = [first, *(d for d in paths.SIXTEEN_BIT if d != first), "fp32"]
    chosen = next((d for d in order if d in available), None)
    if chosen is None:
        return None, (("no_rate", f"no compute rate is known for {device.id}: times are not answered"),)
    if chosen != first:
        return chosen, (("dtype_substituted", f"{device.id} has no {first} rate: the model runs in {chosen}"),)
    return chosen, ()


def _check_devices(memory: MemoryOptions, wanted: int) -> None:
    """Refuse unequal devices that are not one for each part of the layers."""
    named = len(memory.devices)
    if named and named != wanted:
        what = "1 device does" if named == 1 else f"{named} devices do"
        raise UsageError(f"{what} not match the {wanted} that layers are dealt out to", "name one device for each pipeline stage")


def _micro_batch(engine: str, memory: MemoryOptions) -> int | None:
    """Tokens of one pass of a prompt, where any are stated: a step's, or less where the engine cuts its steps into passes
    (llama.cpp ``--ubatch-size``)."""
    step, usual = memory.max_num_batched_tokens, MICRO_BATCH.get(engine)
    if usual is None:
        return step
    each = memory.ubatch_size or usual
    return min(each, step) if step else each


def _kv_cache_dtype(options: DeploymentOptions, model: ModelProfile, compute: str) -> str:
    if options.kv_cache_dtype.lower() != "auto":
        return options.kv_cache_dtype
    return model.storage.kv_cache or compute


def _format_warnings(numbers: NumberPlan, options: DeploymentOptions, ceilings: Ceilings) -> Warnings:
    found: Warnings = ()
    if any(f.approximate for f in numbers.roles.values()):
        message = f"{options.quantization} is a mix of types by tensor: its average bits are used, the file decides"
        found += (("approximate_format", message),)
    return found + _unpacked(numbers, ceilings)


def _unpacked(numbers: NumberPlan, ceilings: Ceilings) -> Warnings:
    """Formats whose weights and activations could be multiplied as they are, but here are not: the device or the engine's kernels lack
    the type, so weights are unpacked."""
    found: dict[str, tuple[str, str]] = {}
    for role in numbers.roles or ("feed_forward",):
        form = numbers.weight(role)
        runs = paths.dtype(numbers.compute_for(role), form.name, ceilings.paths)
        if form.compute in _QUANTISED_PRODUCTS and runs in (*paths.SIXTEEN_BIT, "fp32"):
            found[form.name] = form.compute, runs
    said = []
    for name, (wanted, runs) in found.items():
        why = f"the engine multiplies {name} in {runs}" if ceilings.peak(wanted) else f"{ceilings.name} has no {wanted} units"
        message = f"{why}, so {name} weights are unpacked to {runs}: memory and decode gain, prefill gets no faster"
        said.append(("weight_only", message))
    return tuple(said)


def _inputs(
    model: Loaded[ModelProfile],
    hardware: Loaded[HardwareProfile],
    sharding: Sharding,
    numbers: NumberPlan,
    law: EngineLaw,
    options: DeploymentOptions,
) -> dict[str, Any]:
    return {
        "model": model.name,
        "hardware": hardware.name,
        "gpus": sharding.gpus,
        "tensor_parallel_size": sharding.tensor,
        "pipeline_parallel_size": sharding.pipeline,
        "data_parallel_size": sharding.data,
        "enable_expert_parallel": sharding.expert_parallel,
        "decode_context_parallel_size": sharding.decode_context,
        **({"overlap": options.overlap} if options.overlap else {}),
        "dtype": numbers.compute,
        "quantization": options.quantization or "as stored",
        "stored_format": model.profile.storage.format_name,
        "kv_cache_dtype": numbers.keys.name if numbers.keys == numbers.values else f"{numbers.keys.name}/{numbers.values.name}",
        "engine": law.NAME,
        "engine_version": options.memory.engine_version or law.NEWEST_VERSION,
        "fusion_policy": options.fusion.name,
        **({"efficiency": options.efficiency} if options.efficiency else {}),
    }
