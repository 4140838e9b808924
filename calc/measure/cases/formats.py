"""Number formats of a measurement: the plain type of activations and cache, and the stored weight formats that torch multiplies in."""

from __future__ import annotations

from collections.abc import Mapping

from calc.errors import UnknownNameError, UsageError
from calc.numerics import cache_format, canonical_dtype, weight_format
from calc.operators.numbers import QUANTISED_ROLES, NumberPlan
from calc.profiles.model import ModelProfile

DTYPES = ("bf16", "fp16", "fp32")
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}
#: Weight formats whose products torch has a function for. Weight-only formats (AWQ, GGUF, mxfp4, ...) are kernels of the engines.
QUANTISED = ("fp8", "fp8-channel", "fp8-block", "int8")


def parse_dtype(name: str) -> str:
    """A dtype that can be measured. Raises UsageError with what there is."""
    try:
        found = canonical_dtype(name)
    except UnknownNameError:
        found = ""
    if found not in DTYPES:
        hint = "there are: auto, " + ", ".join(DTYPES)
        known = name.lower() in ELEMENT_BYTES
        raise UsageError(f"dtype {name!r} cannot be measured", hint + (f"; weights in it: -q {name.lower()}" if known else ""))
    return found


def model_dtype(model: ModelProfile) -> str:
    """The 16-bit type of the checkpoint (bf16 where it is stored in something else)."""
    try:
        found = canonical_dtype(model.storage.dtype)
    except UnknownNameError:
        return "bf16"
    return found if found in ("fp16", "bf16") else "bf16"


def stored_formats(model: ModelProfile) -> dict[str, str]:
    """Formats by tensor role of the checkpoint's matrices that can be multiplied as they are stored."""
    whole = dict.fromkeys(QUANTISED_ROLES, weight_format_name(model.storage.dtype))
    roles = whole | {role: weight_format_name(name) for role, name in model.storage.roles.items()}
    return {role: name for role, name in roles.items() if name in QUANTISED and role in QUANTISED_ROLES}


def asked_formats(quantization: str) -> dict[str, str]:
    """Formats by tensor role under ``--quantization``. Raises UsageError for a format that torch has no product for."""
    name = weight_format_name(quantization)
    if name in DTYPES:
        return {}
    if name not in QUANTISED:
        raise UsageError(
            f"quantization {quantization!r} cannot be measured: torch has no product for it",
            "there are: none, " + ", ".join(QUANTISED),
        )
    return dict.fromkeys(QUANTISED_ROLES, name)


def formats_for(model: ModelProfile, quantization: str | None, kind: str) -> dict[str, str]:
    """What is asked for; else what is stored on an accelerator, and nothing on a CPU, which widens every weight at every call."""
    if quantization is not None:
        return asked_formats(quantization)
    return {} if kind == "cpu" else stored_formats(model)


def weight_format_name(name: str) -> str:
    """The one name of a format that has several; the name as it is where it is unknown."""
    try:
        return weight_format(name).name
    except UnknownNameError:
        return name


def number_plan(dtype: str, formats: Mapping[str, str] | None = None) -> NumberPlan:
    """Activations and cache in one plain type; weights too, but for the roles that ``formats`` names."""
    roles = {role: weight_format(name) for role, name in (formats or {}).items()}
    return NumberPlan(
        compute=dtype,
        default=weight_format(dtype),
        roles=roles,
        keys=cache_format(dtype),
        values=cache_format(dtype),
        low_precision=frozenset(f.compute for f in roles.values()),
    )
