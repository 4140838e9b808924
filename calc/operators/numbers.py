"""Which number format each operand has, and which type each operator is computed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from calc.numerics import CacheFormat, NumberFormat, cache_format, weight_format

#: Roles that a quantisation of the linear layers covers; everything else stays in 16 bit (analytic_kv_memory 5.1 of the sources).
QUANTISED_ROLES = ("attention", "linear_attention", "feed_forward", "experts", "shared_experts")
WHOLE_MODEL_ROLES = (*QUANTISED_ROLES, "embedding", "lm_head")


@dataclass(frozen=True)
class NumberPlan:
    """Formats by tensor role, the cache format, and the compute types that the device really has.

    ``compute`` is the 16-bit (or fp32) type of everything that no low-precision path serves; ``low_precision`` lists the quantised
    compute types with a rate on the device; ``kernels`` names the type by weight format where the engine's kernels multiply in
    another than the format's own. ``counted`` holds the formats of roles whose bytes were counted in the checkpoint's files.
    ``state_bytes`` and ``convolution_bytes`` are per element of recurrent state.
    """

    compute: str
    default: NumberFormat
    roles: dict[str, NumberFormat] = field(default_factory=dict)
    keys: CacheFormat = field(default_factory=lambda: cache_format("bf16"))
    values: CacheFormat = field(default_factory=lambda: cache_format("bf16"))
    low_precision: frozenset[str] = frozenset()
    state_bytes: int = 4
    convolution_bytes: int = 2
    counted: dict[str, NumberFormat] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)

    @property
    def activation_bytes(self) -> int:
        """Bytes per activation element."""
        return 4 if self.compute == "fp32" else 2

    def weight(self, role: str) -> NumberFormat:
        """Storage format of the matrices of a role."""
        return self.counted.get(role) or self.roles.get(role, self.default)

    def compute_for(self, role: str) -> str:
        """Type that the matrices of a role are multiplied in: a low-precision type only when weights *and* activations have it and
        the device has the units; weight-only formats keep the 16-bit peak."""
        number_format = self.weight(role)
        wanted = self.kernels.get(number_format.name, number_format.compute)
        return wanted if wanted in self.low_precision else self.compute


def plan(
    storage_dtype: str,
    storage_roles: Mapping[Any, str],
    *,
    compute: str,
    quantization: str | None = None,
    group_size: int | None = None,
    kv_cache: str = "bf16",
    kv_cache_values: str | None = None,
    low_precision: frozenset[str] = frozenset(),
    state_dtype: str | None = None,
    counted_bytes: Mapping[str, float] | None = None,
    kernels: Mapping[str, str] | None = None,
) -> NumberPlan:
    """Combine what the checkpoint stores with what the user asked for.

    ``quantization`` None keeps the stored formats, ``none`` means 16 bit throughout. ``counted_bytes`` are bytes per element by role
    (``stored.counted_bytes``); they hold for the stored formats alone.
    """
    default = weight_format(storage_dtype)
    roles = {role: weight_format(name, group_size) for role, name in storage_roles.items()}
    counted: dict[str, NumberFormat] = {}
    if quantization is None and counted_bytes:
        counted = {role: replace(roles.get(role, default), counted_bytes=each) for role, each in counted_bytes.items()}
    if quantization is not None:
        sixteen = weight_format("fp16" if storage_dtype in ("fp16", "float16") else "bf16")
        default, roles = sixteen, {}
        if quantization not in ("none", "bf16", "fp16"):
            chosen = weight_format(quantization, group_size)
            roles = dict.fromkeys(WHOLE_MODEL_ROLES if chosen.whole_model else QUANTISED_ROLES, chosen)
    return NumberPlan(
        compute=compute,
        default=default,
        roles=roles,
        keys=cache_format(kv_cache),
        values=cache_format(kv_cache_values or kv_cache),
        low_precision=low_precision,
        state_bytes=2 if state_dtype in ("bf16", "fp16", "bfloat16", "float16") else 4,
        counted=counted,
        kernels=kernels or {},
    )
