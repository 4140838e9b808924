"""The lists of models and devices. Rows come from the library index; a profile that no index describes is described here."""

from __future__ import annotations

from typing import Any

from calc.errors import ProfileError, UsageError, did_you_mean
from calc.profiles import catalog
from calc.profiles.catalog import Entry, Kind
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.report.table import Column, Page, Table
from calc.units import format_bytes, format_count, format_number, format_parameters


def model_columns(profile: ModelProfile) -> dict[str, Any]:
    """The figures of ``models list``."""
    from calc.memory.model_facts import describe

    facts = describe(profile, None, "bf16", None)
    return {
        "organisation": (profile.hub_id or "").partition("/")[0] or None,
        "family": profile.family,
        "parameters": facts.parameters.total,
        "active_parameters": facts.parameters.active,
        "layers": profile.num_hidden_layers,
        "kinds": sorted({row.kind for row in facts.layers}),
        "max_position_embeddings": profile.max_position_embeddings,
        "dtype": profile.storage.dtype,
        "weights_bytes": facts.parameters.weights_bytes,
        "kv_bytes_per_token": facts.kv_bytes_per_token,
    }


def hardware_columns(profile: HardwareProfile) -> dict[str, Any]:
    """The figures of ``hardware list``."""
    price = profile.cloud_price_usd_per_hour
    dtype = "bf16" if profile.peak_dense_tflops.bf16 else "fp16"
    return {
        "vendor": profile.vendor,
        "class": profile.device_class,
        "memory_gb": profile.memory_capacity_gb,
        "memory_bandwidth_gb_per_s": profile.memory_bandwidth_gb_per_s,
        "dense_16bit_tflops": getattr(profile.peak_dense_tflops, dtype),
        "dense_fp8_tflops": profile.peak_dense_tflops.fp8,
        "ridge_point": profile.ridge_points().get(dtype),
        "price_usd_per_hour": price.value if price else None,
    }


def _rows(kind: Kind, profiles_dir: str | None) -> list[dict[str, Any]]:
    return [{"id": e.id, "name": _name(e), **(e.columns or _described(e, kind))} for e in catalog.entries(kind, profiles_dir)]


def _name(entry: Entry) -> str:
    return entry.names[1] if len(entry.names) > 1 else entry.id


def _described(entry: Entry, kind: Kind) -> dict[str, Any]:
    try:
        profile = catalog.load_file(entry.path, kind).profile
        return model_columns(profile) if kind == "model" else hardware_columns(profile)
    except ProfileError as error:
        return {"fault": error.message}


def model_rows(profiles_dir: str | None, family: str | None = None) -> list[dict[str, Any]]:
    """Rows of ``models list``."""
    rows = _rows("model", profiles_dir)
    if family is None:
        return rows
    known = {str(r.get("family")) for r in rows}
    if family not in known:
        raise UsageError(f"no model of family {family!r}", did_you_mean(family, known))
    return [r for r in rows if r.get("family") == family]


_SORT_KEYS = {
    "id": "id", "memory": "memory_gb", "bandwidth": "memory_bandwidth_gb_per_s", "compute": "dense_16bit_tflops", "ridge": "ridge_point",
    "price": "price_usd_per_hour",
}  # fmt: skip


def hardware_rows(
    profiles_dir: str | None, vendor: str | None = None, min_memory_gb: float | None = None, sort: str | None = None
) -> list[dict[str, Any]]:
    """Rows of ``hardware list``, filtered and sorted (largest first, except id and price)."""
    rows = _rows("hardware", profiles_dir)
    if vendor is not None:
        known = {str(r.get("vendor")) for r in rows}
        if vendor.lower() not in {k.lower() for k in known}:
            raise UsageError(f"no device of vendor {vendor!r}", did_you_mean(vendor, known) or "known: " + ", ".join(sorted(known)))
        rows = [r for r in rows if str(r.get("vendor")).lower() == vendor.lower()]
    if min_memory_gb is not None:
        rows = [r for r in rows if (r.get("memory_gb") or 0) >= min_memory_gb]
    if sort is not None:
        if sort not in _SORT_KEYS:
            raise UsageError(f"cannot sort by {sort!r}", did_you_mean(sort, _SORT_KEYS) or "known: " + ", ".join(_SORT_KEYS))
        key = _SORT_KEYS[sort]
        known_rows = [r for r in rows if r.get(key) is not None]
        rows = sorted(known_rows, key=lambda r: r[key], reverse=sort not in ("id", "price")) + [
            r for r in rows if r.get(key) is None
        ]
    return rows


def models_page(rows: list[dict[str, Any]]) -> Page:
    """``models list`` as a table."""
    columns = (
        Column("model"), Column("parameters", right=True), Column("active", right=True, priority=3),
        Column("layers", right=True, priority=2),
        Column("kinds", priority=4), Column("context", right=True, priority=1), Column("weights", right=True, priority=1),
        Column("KV B/token", right=True),
    )  # fmt: skip
    table = [
        [r["id"], r["fault"], *[""] * 6]
        if "fault" in r
        else [
            r["id"],
            format_parameters(r["parameters"]),
            format_parameters(r["active_parameters"]),
            str(r["layers"]),
            ",".join(r["kinds"]),
            format_number(r["max_position_embeddings"]),
            format_bytes(r["weights_bytes"], 3),
            _slope(r),
        ]
        for r in rows
    ]
    return Page([f"{format_count(len(rows), 'model')} (KV per token: layers without a window, 16 bit)"], [Table(columns, table)])


def _slope(row: dict[str, Any]) -> str:
    """KV bytes per token; ``window`` where a cache stops growing at the window, so that 0 stands only where there is none."""
    if row["kv_bytes_per_token"] == 0 and "sliding" in row["kinds"]:
        return "window"
    return format_number(row["kv_bytes_per_token"])


def hardware_page(rows: list[dict[str, Any]]) -> Page:
    """``hardware list`` as a table."""
    columns = (
        Column("device"), Column("vendor", priority=3), Column("GB", right=True), Column("GB/s", right=True),
        Column("16-bit TFLOPS", right=True), Column("fp8", right=True, priority=2), Column("ridge", right=True, priority=1),
        Column("USD/h", right=True, priority=2),
    )  # fmt: skip
    table = [
        [r["id"], r["fault"], *[""] * 6]
        if "fault" in r
        else [
            r["id"],
            r["vendor"],
            format_number(r["memory_gb"]),
            format_number(r["memory_bandwidth_gb_per_s"]),
            format_number(r["dense_16bit_tflops"]),
            format_number(r["dense_fp8_tflops"]),
            format_number(r["ridge_point"]),
            format_number(r["price_usd_per_hour"], 3),
        ]
        for r in rows
    ]
    return Page([f"{len(rows)} devices (dense rates; ridge in FLOP/B)"], [Table(columns, table)])
