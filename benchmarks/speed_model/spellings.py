"""What speed records call models, devices, engines and formats, as the library knows them: exact spellings from a table.

A device or model that the library lacks falls back to what the record says: peak, bandwidth and link of the device, parameters of the
model. It is never replaced by a similar one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from calc.errors import RoofcastError
from calc.profiles import catalog
from calc.profiles.catalog import Kind, fold
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile

RECORDS = Path(__file__).parents[1] / "records"
SPEEDS = RECORDS / "measured_speed.yaml"
_GEFORCE = re.compile(r"\b(rtx [2345]0\d0|gtx 16)", re.IGNORECASE)
_BILLION = 1e9
_USUAL_LINK = 31.5  # GB/s in one direction of PCIe 4 x16, for a device of which no link is stated
_LEAST_HBM = 1200.0  # GB/s above which memory is stacked, for a device of which not even the family is known (GDDR6X: 1,008)


@cache
def table() -> Mapping[str, Any]:
    """The table of spellings."""
    loaded = load_yaml(RECORDS / "spellings.yaml")
    assert isinstance(loaded, dict)
    return loaded


def load_yaml(path: Path) -> Any:
    """A YAML file of ours (the C parser where there is one: half a megabyte of records)."""
    import yaml

    return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def records(path: Path = SPEEDS) -> list[dict[str, Any]]:
    """The records of a file."""
    loaded = load_yaml(path)
    assert isinstance(loaded, list)
    return loaded


@cache
def _profile(name: str, kind: Kind) -> Any:
    try:
        return catalog.load(name, kind).profile
    except RoofcastError:
        return None


# --- models --------------------------------------------------------------------------------------------------------------------


def model(record: Mapping[str, Any]) -> ModelProfile | None:
    """The profile of a record's model, a geometry from the table, or a dense decoder of the stated size; None where nothing is
    known."""
    name = str(record.get("model") or "")
    known = table()["speed_models"].get(fold(name), name)
    if isinstance(known, dict):
        return _decoder(_slug(name), **known)
    found: ModelProfile | None = _profile(known, "model") if known else None
    if found is None and record.get("params_b"):
        return _of_size(_slug(name), float(record["params_b"]), record.get("active_params_b"))
    return found


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "unlisted"


def _decoder(
    identifier: str,
    *,
    layers: int,
    hidden_size: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab_size: int | None,
    gated: bool = True,
    parallel: bool = False,
    tied: bool = False,
    experts: tuple[int, int] | None = None,
) -> ModelProfile:
    feed_forward: dict[str, Any] = {"kind": "dense", "intermediate_size": intermediate_size, "gated": gated}
    if experts:
        routed = {"num_experts": experts[0], "num_experts_per_token": experts[1], "intermediate_size": intermediate_size}
        feed_forward = {"kind": "experts", **routed}
    mixer = {"kind": "full", "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}
    kind = {"mixers": [mixer], "feed_forwards": [feed_forward], "parallel": parallel}
    data = {
        "id": identifier,
        "name": identifier,
        "family": "unlisted",
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
        "has_lm_head": vocab_size is not None,
        "tie_word_embeddings": tied,
        "layer_kinds": {"decoder": kind},
        "stack": [{"repeat": layers, "layers": ["decoder"]}],
        "storage": {"dtype": "bf16"},
    }
    return msgspec.convert(data, ModelProfile)


def _of_size(identifier: str, billions: float, active: float | None) -> ModelProfile:
    """A decoder of so many parameters in the proportions of Llama: depth grows as the cube root of the size, 8 key-value heads of
    128. A mixture has the width and depth of what a token uses (Qwen3-30B-A3B, DeepSeek-V3) and spreads the rest over 128 experts
    of which a token takes 8."""
    total = billions * _BILLION
    used = min(active or billions, billions)
    layers = max(4, round(19 * used ** (1 / 3)))
    hidden = max(256, 1024 * round((used * _BILLION / (12 * layers)) ** 0.5 / 1024))  # a number of heads that eight ranks divide
    vocabulary = 128256 if billions > 1 else 32000
    heads = hidden // 128
    kv_heads = next(k for k in (8, 4, 2, 1) if heads % k == 0)
    attention = 2 * hidden * hidden + 2 * hidden * kv_heads * 128
    per_layer = (total - 2 * vocabulary * hidden) / layers - attention
    shape = {"layers": layers, "hidden_size": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": 128}
    if active and active < 0.8 * billions:
        width = (billions - active) * _BILLION / (1 - 8 / 128) / layers / 128 / (3 * hidden)
        return _decoder(identifier, **shape, intermediate_size=max(64, round(width)), vocab_size=vocabulary, experts=(128, 8))
    return _decoder(identifier, **shape, intermediate_size=max(128, round(per_layer / (3 * hidden))), vocab_size=vocabulary)


# --- devices -------------------------------------------------------------------------------------------------------------------


def device(record: Mapping[str, Any]) -> HardwareProfile | None:
    """The profile of a record's device, or a stand-in with the rates that the record's roofline states; None without them."""
    name = str(record["gpu"])
    known = table()["speed_hardware"].get(fold(name), name)
    found: HardwareProfile | None = _profile(known, "hardware")
    return found or _stand_in(name, record.get("roofline") or {})


def _stand_in(name: str, rates: Mapping[str, Any]) -> HardwareProfile | None:
    family = next((row[1:] for row in table()["speed_families"] if re.search(row[0], name, re.IGNORECASE)), None)
    bandwidth, link = rates.get("mem_gb_per_s_per_gpu"), rates.get("link_gb_per_s_one_way")
    if not bandwidth and not link:
        return None
    vendor, architecture, memory = family or ("unlisted", "unlisted", "HBM" if float(bandwidth or 0) >= _LEAST_HBM else "GDDR")
    data = {
        "id": _slug(name),
        "name": name,
        "vendor": vendor,
        "architecture": architecture,
        "memory_type": memory,
        "class": "datacenter_gpu" if memory.startswith("HBM") else "consumer_gpu",
        "unit_of_account": "unlisted: rates from the record",
        "memory_capacity_gb": 16.0,
        "memory_bandwidth_gb_per_s": bandwidth,
        "peak_dense_tflops": _peaks(name, vendor, rates),
        "interconnect": {"pcie_gb_per_s_per_direction": float(link or _USUAL_LINK)},
    }
    return msgspec.convert(data, HardwareProfile, strict=False)


def _peaks(name: str, vendor: str, rates: Mapping[str, Any]) -> dict[str, float]:
    """Peaks by type from the one that the record states. GeForce sheets quote fp16 with fp16 accumulation, twice the other rate."""
    stated, kind = rates.get("peak_tflops_per_gpu"), str(rates.get("peak_kind") or "")
    if not stated:
        return {}
    peak = float(stated)
    if "int8" in kind:
        return {"int8": peak, "fp16": peak / 4, "bf16": peak / 4}
    if "fp8" in kind:
        return {"fp8": peak, "fp16": peak / 2, "bf16": peak / 2}
    if "fp4" in kind:
        return {"fp4": peak, "fp8": peak / 2, "fp16": peak / 4, "bf16": peak / 4}
    if vendor == "Apple":
        return {"fp16": peak, "fp32": peak}
    if vendor == "NVIDIA" and _GEFORCE.search(name):
        return {"fp16": peak / 2, "bf16": peak / 2, "fp16_acc16": peak, "int8": 2 * peak}
    return {"fp16": peak, "bf16": peak} | ({"int8": peak} if vendor == "AMD" else {})


# --- engines -------------------------------------------------------------------------------------------------------------------


def engine(record: Mapping[str, Any]) -> tuple[str, str | None]:
    """Engine and backend; an unknown engine keeps its own name."""
    known = table()["speed_engines"].get(fold(str(record["engine"])))
    if known is None:
        return _slug(str(record["engine"])), None
    return str(known[0]), str(known[1]) if len(known) > 1 else None


def kernel_generation(name: str, backend: str | None, record: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Attention kernels (None: the engine's own) and whether weights are unpacked in memory, by the version of the engine."""
    rules = table()["speed_versions"].get(name, {})
    version, identifier = str(record.get("engine_version") or ""), str(record["id"])
    unfused = _begins(version, rules.get("unfused", ()))
    if "-fa0" in identifier or "-fa1" in identifier:
        unfused = "-fa0" in identifier
    unpacks = backend == "cuda" and _begins(version, rules.get("unpacks_in_memory", ()))
    return ("unfused" if unfused else None), unpacks


def _begins(version: str, beginnings: Any) -> bool:
    return any(version.startswith(b) for b in beginnings)
