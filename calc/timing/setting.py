"""What a step runs on, in the words by which fitted effects are keyed: engine, device class, number format, kernels, model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from calc.numerics import NumberFormat
from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.timing import network, paths, pipeline
from calc.units import TERA

#: Tokens of one pass of a long prompt where nothing else is said. Engines that cut a step into passes of their own (llama.cpp's
#: n_ubatch); for all others a usual max_num_batched_tokens.
MICRO_BATCH = {"llama.cpp": 512}
OTHER_MICRO_BATCH = 8192
#: Attention kernels by engine: ``paged`` reads a block table (vLLM, SGLang, TensorRT-LLM), ``flash`` a plain cache; ``unfused`` writes
#: the scores to memory (llama.cpp before flash attention became its default).
_PAGED = ("vllm", "sglang", "tensorrt-llm", "nim", "deepseek")
#: Backend of llama.cpp that is native to a vendor; any other (Vulkan) counts as an engine of its own.
_NATIVE = {"NVIDIA": "cuda", "AMD": "rocm", "Apple": "metal", "Intel": "sycl"}
#: Watts per dense 16-bit TFLOP/s that are usual in a class: cards below it lower their clocks under matrix loads. Smaller types do so many
#: times the operations with as much power.
_USUAL_WATTS = {"nvidia-gddr": 1.5, "nvidia-hbm": 0.8}
_OPERATIONS = {"fp8": 2, "int8": 2, "fp4": 4}
_ACCELERATORS_WITHOUT_MATRIX_UNITS = ("Pascal", "Maxwell", "Kepler")


def memory_kind(hardware: HardwareProfile) -> str:
    """HBM, GDDR, LPDDR or DDR."""
    name = (hardware.memory_type or "").upper()
    return next((kind for kind in ("HBM", "GDDR", "LPDDR", "DDR") if name.startswith(kind)), "other")


def device_class(hardware: HardwareProfile) -> str:
    """Compute family and memory kind: parts whose kernels behave alike, whatever segment they are sold to."""
    architecture, kind = hardware.architecture or "", memory_kind(hardware)
    if hardware.device_class == "cpu":
        return "cpu"
    if hardware.vendor == "NVIDIA":
        return "nvidia-pascal" if architecture in _ACCELERATORS_WITHOUT_MATRIX_UNITS else f"nvidia-{kind.lower()}"
    if hardware.vendor == "AMD":
        return "amd-cdna" if architecture.startswith("CDNA") else "amd-rdna"
    if hardware.vendor == "Intel" and architecture.startswith("Xe"):
        return "intel-xe"
    return hardware.vendor.lower()


def format_family(number_format: NumberFormat) -> str:
    """Formats whose kernels unpack weights alike."""
    name = number_format.name
    if name in ("bf16", "fp16", "fp32"):
        return "16-bit"
    if name.startswith("fp8") or name == "mxfp8":
        return "fp8"
    if name in ("nvfp4", "fp4-block"):
        return "fp4"
    if name.startswith(("gptq", "awq", "w4a16", "nf4", "q4f16")):
        return "w4a16"
    if name.startswith("w8a16"):
        return "w8a16"
    for family in ("mlx", "exl2", "iq"):
        if name.startswith(family):
            return family
    return "k-quant" if "_k" in name else name


@dataclass(frozen=True)
class Setting:
    """Everything that effects key on. ``engine`` names the backend too where it is not the vendor's own; ``micro_batch`` is the
    number of tokens of one pass of a prompt; ``multiplied_in`` the type of the linear layers' products; ``layer_split`` the devices
    that hold layers in turn, one working at a time; ``stages`` those of engines whose stages work on several batches at once;
    ``expert_ranks`` the ranks that whole experts are dealt out to."""

    engine: str
    version: str
    hardware: HardwareProfile
    model_id: str
    hidden_size: int
    layers: int
    has_experts: bool
    weight_format: str
    path: str
    multiplied_in: str
    attention: str
    micro_batch: int
    unpacks_in_memory: bool
    tensor: int
    layer_split: int
    link: str = ""
    expert_ranks: int = 1
    stages: float = 1

    @property
    def family(self) -> str:
        """The engine without its backend."""
        return self.engine.split(" ")[0]

    @cached_property
    def keys(self) -> dict[str, str]:
        """Level → key of the group that this setting belongs to; levels that do not apply are absent."""
        hardware, engine = self.hardware, self.engine
        kind = device_class(hardware)
        experts = "experts" if self.has_experts else "dense"
        found = {
            "class": kind,
            "architecture": f"{hardware.vendor} {hardware.architecture} {memory_kind(hardware)}",
            "device": hardware.id,
            "engine": engine,
            "engine class": f"{engine} | {kind}",
            "format": self.weight_format,
            "format class": f"{self.weight_format} | {kind}",
            "quantised": "16-bit" if self.weight_format == "16-bit" else "quantised",
            "path": self.path,
            "path class": f"{self.path} | {kind}",
            "experts": experts,
            "experts class": f"{experts} | {kind}",
            "attention": self.attention,
            "attention class": f"{self.attention} | {kind}",
            "model": self.model_id,
        }
        if self.link:
            found["link"] = self.link
        if self.version:
            found["version"] = f"{engine} {self.version}"
        if self.tensor > 1 or self.layer_split > 1:
            found["split"] = f"{'tensor' if self.tensor > 1 else 'layer'} | {self.weight_format}"
        return found

    @cached_property
    def slopes(self) -> dict[str, float]:
        """Covariates of slope effects: logarithms of ratios to a usual value."""
        found = {"hidden size": math.log(self.hidden_size / 4096)}
        usual, watts = _USUAL_WATTS.get(device_class(self.hardware)), self.hardware.tdp_w
        peak = self.hardware.peak_flops_per_s(self.multiplied_in)
        if usual and watts and peak:
            sixteen_bit = peak / TERA / _OPERATIONS.get(self.multiplied_in, 1)
            found["watts per TFLOP"] = math.log(watts / sixteen_bit / usual)
        return found


def setting(
    engine: str,
    hardware: HardwareProfile,
    model: ModelProfile,
    numbers: NumberPlan,
    sharding: Sharding,
    *,
    version: str = "",
    backend: str | None = None,
    attention: str | None = None,
    unpacks_in_memory: bool = False,
    micro_batch: int | None = None,
    layer_split: int = 1,
) -> Setting:
    """The setting of a deployment. ``backend`` None is the vendor's own."""
    role = "experts" if model.has_experts else "feed_forward"
    main = numbers.weight(role)
    expert_ranks = sharding.expert_ranks if model.has_experts else 1
    wires = network.link(hardware, max(sharding.tensor, expert_ranks))
    native = backend is None or backend == _NATIVE.get(hardware.vendor)
    path = _path(engine, hardware, numbers, role, unpacks_in_memory=unpacks_in_memory)
    return Setting(
        engine=engine if native else f"{engine} {backend}",
        version=version,
        hardware=hardware,
        model_id=model.id,
        hidden_size=model.hidden_size,
        layers=model.num_hidden_layers,
        has_experts=model.has_experts,
        weight_format=format_family(main),
        path=path,
        multiplied_in=_multiplied_in(path, engine, hardware, numbers),
        attention=attention or ("paged" if engine in _PAGED else "flash"),
        micro_batch=micro_batch or MICRO_BATCH.get(engine, OTHER_MICRO_BATCH),
        unpacks_in_memory=unpacks_in_memory,
        tensor=sharding.tensor,
        layer_split=layer_split,
        link=wires.label if wires else "",
        expert_ranks=expert_ranks,
        stages=1 if layer_split > 1 else pipeline.even_stages(model.num_hidden_layers, sharding.pipeline),
    )


def _path(engine: str, hardware: HardwareProfile, numbers: NumberPlan, role: str, *, unpacks_in_memory: bool) -> str:
    """How the linear layers multiply: in 16 bit, in a low-precision type, or with quantised weights unpacked on the way."""
    if format_family(numbers.weight(role)) == "16-bit":
        return "16-bit"
    if unpacks_in_memory:
        return "unpacked in memory"
    multiplied = numbers.compute_for(role)
    if multiplied in numbers.low_precision:
        return multiplied
    served = paths.engine_paths(engine, hardware).get("quantised")
    return "int8 tiles" if served == "int8" else "unpacked in the kernel"


def _multiplied_in(path: str, engine: str, hardware: HardwareProfile, numbers: NumberPlan) -> str:
    """The type whose peak bounds the products of a path."""
    if path == "int8 tiles":
        return "int8"
    return path if path in numbers.low_precision else paths.engine_paths(engine, hardware).get("16bit", numbers.compute)
