"""The ``compressed-tensors`` method: groups of targets, each with the type, bits and scales of its weights."""

from __future__ import annotations

from collections.abc import Callable

from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.module_patterns import ROLES, Patterns
from calc.profiles.importers.number_formats import Scheme, float_scheme, integer_scheme

Schemes = dict[str, Scheme]


def compressed_tensors(q: Config, draft: Draft, covered: Callable[[Config, Draft, Scheme], Schemes]) -> tuple[Schemes, str | None]:
    """(format of each quantised role, format of the KV cache)."""
    groups = q.section("config_groups")
    if groups is None:
        raise q.fault("config_groups", "is missing")
    q.ignore("format", "quantization_status", "sparsity_config", "global_compression_ratio")
    found: Schemes = {}
    for name in groups.data:
        group = groups.section(name)
        weights = group.section("weights") if group else None
        if group is None or weights is None:
            continue
        scheme = _scheme(group, weights)
        targets = group.items("targets") or ["Linear"]
        reached = covered(q, draft, scheme)
        if "Linear" not in targets:
            patterns = Patterns(targets)
            reached = {role: scheme for role in ROLES if role in reached and patterns.share(role, draft) >= 0.5}
        found |= reached
        if "Linear" in targets and not Patterns(q.items("ignore") or []).names("lm_head"):
            found["lm_head"] = scheme
    return found, cache_of(q)


def _scheme(group: Config, weights: Config) -> Scheme:
    bits, kind = weights.integer("num_bits"), weights.word("type", default="int")
    size = weights.optional("group_size", minimum=-1)
    strategy = weights.word("strategy") or ("group" if size and size > 0 else "channel")
    if kind == "float":
        return float_scheme(weights, bits, strategy, size)
    if kind != "int":
        raise weights.unknown("type", kind, ["int", "float"], "type of weights")
    quantised_input = group.section("input_activations") is not None
    if bits == 8 and (quantised_input or strategy != "group"):
        return Scheme("int8" if quantised_input else "w8a16")
    whole = size if size and size > 0 else 1 << 24
    return integer_scheme(weights, bits, whole, offset_bits=0 if weights.flag("symmetric", default=True) or bits != 4 else 4)


def cache_of(q: Config) -> str | None:
    """The format of the KV cache that the checkpoint asks for."""
    named = q.get("kv_cache_scheme")
    if isinstance(named, str) and named.lower() in ("fp8", "int8", "nvfp4"):
        return named.lower()
    scheme = q.section("kv_cache_scheme")
    if scheme is None:
        return None
    bits, kind = scheme.integer("num_bits"), scheme.word("type", default="float")
    if bits == 8:
        return "fp8" if kind == "float" else "int8"
    if bits == 4 and kind == "float":
        return "nvfp4"
    raise scheme.unknown("num_bits", bits, [4, 8], "number of bits of a KV cache")
