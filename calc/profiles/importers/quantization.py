"""``quantization_config`` (or hf_quant_config.json) → which roles are stored in which number format; what stays in 16 bit.

A method that is not known is refused: guessing its bits would be wrong by a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from calc.errors import UnknownNameError
from calc.numerics import canonical_dtype
from calc.profiles.importers.compressed_tensors import cache_of, compressed_tensors
from calc.profiles.importers.config import MISSING, Config
from calc.profiles.importers.draft import Draft
from calc.profiles.importers.json_file import JsonDocument
from calc.profiles.importers.module_patterns import ROLES, Patterns, has_role
from calc.profiles.importers.number_formats import Scheme, integer_scheme
from calc.profiles.model import Storage

_SECTIONS = ("quantization_config", "compression_config", "hf_quant_config", "quantization")
_IGNORE = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules", "exclude")


def storage_of(root: Config, text: Config, draft: Draft, beside: JsonDocument | None) -> Storage:
    """How the checkpoint stores its weights."""
    dtype = _dtype(root, text)
    section = _section(root, text, beside)
    schemes, kv_cache = _schemes(section, draft) if section else ({}, None)
    roles: dict[Any, str] = dict(draft.storage_roles)
    if section is None:
        return Storage(dtype=dtype, roles=roles)
    sixteen = dtype if dtype in ("bf16", "fp16") else "bf16"
    group_size = None
    for role in ROLES:
        scheme = schemes.get(role)
        if scheme and role not in roles and any(has_role(kind, role) for kind in draft.layers):
            roles[role] = scheme.format
            group_size = scheme.group_size or group_size
    if "lm_head" in schemes and draft.has_lm_head and not draft.tie_word_embeddings:
        roles["lm_head"] = schemes["lm_head"].format
    return Storage(dtype=sixteen, roles=roles, group_size=group_size, kv_cache=kv_cache)


def _dtype(root: Config, text: Config) -> str:
    named = text.get("torch_dtype", "dtype")
    if named in (MISSING, None):
        named = root.get("torch_dtype", "dtype")
    if named in (MISSING, None):
        text.warn("no torch_dtype in the config: bf16 is assumed")
        return "bf16"
    try:
        return canonical_dtype(str(named).removeprefix("torch."))
    except UnknownNameError as error:
        raise text.fault("torch_dtype", f"{named!r:.60} is an unknown dtype", error.hint) from error


def _section(root: Config, text: Config, beside: JsonDocument | None) -> Config | None:
    for holder in dict.fromkeys((text, root)):
        for name in _SECTIONS:
            if isinstance(holder.data.get(name), dict):
                return holder.section(name)
    return Config(beside, beside.data) if beside else None


Schemes = dict[str, Scheme]


def _schemes(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    """(format of each quantised role, format of the KV cache)."""
    inner = q.section("quantization") or q
    method = q.word("quant_method", default=None)
    if method is None:
        if inner.has("quant_algo"):
            method = "modelopt"
        elif inner.has("bits", "group_size"):
            method = "mlx"
        else:
            raise q.fault("quant_method", "is missing")
    reader = _METHODS.get(method.lower())
    if reader is None:
        raise q.unknown("quant_method", method, _METHODS, "quantisation method")
    return reader(inner, draft)


def covered(q: Config, draft: Draft, scheme: Scheme, ignore: Iterable[object] = ()) -> Schemes:
    """All linear roles in one format, without what the ignore list names."""
    listed = [name for key in _IGNORE for name in q.items(key) or []]
    cut = q.count("exclude_modules_total") > len(listed)
    patterns = Patterns([*listed, *ignore], whole_stack=cut)
    if patterns.unread:
        q.warn(f"pattern {patterns.unread[0]!r:.80} is not understood: what it names is counted as quantised")
    found: Schemes = {}
    for role in ROLES:
        left_out = patterns.share(role, draft)
        if left_out < 0.5:
            found[role] = scheme
        if 0 < left_out < 1:
            stored = "quantised" if left_out < 0.5 else "left in 16 bit"
            q.warn(
                f"{left_out:.0%} of the {role.replace('_', ' ')} modules are left in 16 bit: all of them are counted as {stored}"
            )
    if cut:
        q.warn("the list of modules left in 16 bit is cut off: what it names in one layer is taken to hold for all")
    return found


def _fp8(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    block = q.integers("weight_block_size", minimum=1)
    if block is not None and block != [128, 128]:
        q.warn(f"scales per block of {block} are counted as per block of [128, 128]")
    q.ignore("fmt", "activation_scheme", "scale_fmt")
    scheme = Scheme("fp8-block" if block else "fp8")
    if not q.has("quantized_layers"):
        return covered(q, draft, scheme), None
    # A second pass quantised some modules further; its ignore list says nothing about the first.
    found = dict.fromkeys(ROLES, scheme) | _mixed(q, draft)
    draft.storage_roles.clear()
    return found, None


def _fp8_channel(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    return covered(q, draft, Scheme("fp8-channel")), None


def _awq(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    bits, group = q.integer("bits", "w_bit", default=4), q.optional("group_size", "q_group_size", minimum=-1) or 128
    if bits != 4:
        raise q.unknown("bits", bits, [4], "number of bits for awq")
    return covered(q, draft, Scheme("awq" if q.flag("zero_point", default=True) else "w4a16", _whole_row(group))), None


def _gptq(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    bits, group = q.integer("bits", default=4), q.integer("group_size", default=128, minimum=-1)
    names = {2: "gptq-2bit", 3: "gptq-3bit", 4: "gptq", 8: "gptq-8bit"}
    if bits not in names:
        raise q.unknown("bits", bits, names, "number of bits for gptq")
    scheme = Scheme(names[bits], _whole_row(group))
    rules = q.section("dynamic")
    left_out = [f"re:{name[2:]}" for name in rules.data if name.startswith("-:")] if rules else []
    if rules and len(left_out) < len(rules.data):
        q.warn("rules that give modules other bits (dynamic) are not read: all are counted at the main setting")
    found = covered(q, draft, scheme, left_out)
    if q.flag("lm_head"):
        found["lm_head"] = scheme
    return found, None


def _whole_row(group: int) -> int | None:
    """Group size -1 means one scale per output channel: a group longer than any row."""
    return group if group > 0 else 1 << 24


def _bitsandbytes(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    if q.flag("load_in_8bit", "_load_in_8bit"):
        return covered(q, draft, Scheme("int8")), None
    if not q.flag("load_in_4bit", "_load_in_4bit"):
        raise q.fault("load_in_4bit", "and load_in_8bit are both off")
    return covered(q, draft, Scheme("nf4-double" if q.flag("bnb_4bit_use_double_quant") else "nf4")), None


def _mxfp4(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    """gpt-oss: only the expert matrices, whatever the list of modules left out says."""
    found = covered(q, draft, Scheme("mxfp4"))
    return {"experts": found["experts"]} if "experts" in found else {}, None


_MODELOPT = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel", "FP8_PB_WO": "fp8-block", "FP8_BLOCK": "fp8-block", "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP8": "mxfp8", "MXFP4": "mxfp4", "W4A16_AWQ": "w4a16", "W4A8_AWQ": "w4a16",
    "INT4_AWQ": "w4a16", "W8A16": "w8a16", "INT8_SQ": "int8", "W8A8_SQ_PER_CHANNEL": "int8",
}  # fmt: skip


def _modelopt(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    kv = (q.word("kv_cache_quant_algo") or "").upper()
    stated = cache_of(q)
    cache = {"": stated, "NONE": None, "FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}
    if kv not in cache:
        raise q.unknown("kv_cache_quant_algo", kv, cache, "format of the KV cache")
    algorithm = (q.word("quant_algo") or "").upper()
    if algorithm in ("", "NONE"):
        return {}, cache[kv]
    if algorithm == "MIXED_PRECISION":
        return _mixed(q, draft), cache[kv]
    if algorithm not in _MODELOPT:
        raise q.unknown("quant_algo", algorithm, [*_MODELOPT, "MIXED_PRECISION"], "quantisation algorithm")
    group = q.optional("group_size")
    return covered(q, draft, Scheme(_MODELOPT[algorithm], group if algorithm.startswith(("W4A", "INT4")) else None)), cache[kv]


def _mixed(q: Config, draft: Draft) -> Schemes:
    """Mixed precision lists every module with its algorithm: the one that covers most of a role counts for the role."""
    layers = q.section("quantized_layers")
    if layers is None:
        raise q.fault("quantized_layers", "is missing although quant_algo is MIXED_PRECISION")
    by_algorithm: dict[str, list[str]] = {}
    for module in layers.data:
        entry = layers.data[module]
        algorithm = str(entry.get("quant_algo")).upper() if isinstance(entry, dict) else "none"
        if algorithm not in _MODELOPT:
            raise layers.unknown(module, algorithm, _MODELOPT, "quantisation algorithm")
        by_algorithm.setdefault(algorithm, []).append(module)
    found: Schemes = {}
    shares: dict[str, float] = {}
    for algorithm, modules in by_algorithm.items():
        patterns = Patterns(modules)
        for role in ROLES:
            share = patterns.share(role, draft)
            if share > max(shares.get(role, 0.0), 0.5):
                shares[role], found[role] = share, Scheme(_MODELOPT[algorithm])
    q.warn("mixed precision: each role is counted in the format of most of its modules")
    return found


def _quark(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    general = q.section("global_quant_config")
    weight = general.section("weight") if general else None
    if weight is None:
        raise q.fault("global_quant_config", "says nothing about weights")
    dtype, how = weight.word("dtype") or "", weight.word("qscheme") or ""
    names = {
        "fp8_e4m3": "fp8-channel" if how == "per_channel" else "fp8",
        "fp4": "mxfp4",
        "int8": "int8",
        "int4": "w4a16",
        "uint4": "awq",
    }
    if dtype not in names:
        raise weight.unknown("dtype", dtype, names, "number format")
    return covered(q, draft, Scheme(names[dtype], weight.optional("group_size", minimum=-1))), None


def _mlx(q: Config, draft: Draft) -> tuple[Schemes, str | None]:
    """MLX quantises every matrix, the embedding included; a scale and an offset of 16 bit per group."""
    scheme = integer_scheme(q, q.integer("bits"), q.integer("group_size", default=64), offset_bits=16)
    found = covered(q, draft, scheme)
    draft.storage_roles.setdefault("embedding", scheme.format)
    return found | {"lm_head": scheme}, None


_METHODS: dict[str, Callable[[Config, Draft], tuple[Schemes, str | None]]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8_channel,
    "awq": _awq,
    "awq_marlin": _awq,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "auto-round": _gptq,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "compressed-tensors": lambda q, draft: compressed_tensors(q, draft, covered),
    "quark": _quark,
    "mlx": _mlx,
}
