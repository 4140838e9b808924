"""What this installation sees: versions, device, folders."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from calc.profiles import catalog
from calc.report.table import Column, Page, Table
from calc.units import format_bytes
from calc.version import LIBRARY_DATE, VERSION

_LIBRARIES = ("typer", "rich", "pyyaml", "msgspec", "numpy", "torch", "nvidia-ml-py")


def facts(profiles_dir: str | None, device: dict[str, Any]) -> dict[str, Any]:
    """Versions of libraries (null where absent), the local ``device`` as it was found, profile folders with their counts."""
    versions: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    folders: list[dict[str, Any]] = []
    for kind in ("model", "hardware"):
        folders += [
            {"kind": kind, "folder": str(folder), "profiles": catalog.count(folder, kind)}
            for folder in catalog.folders(kind, profiles_dir)
        ]
    return {
        "roofcast": VERSION,
        "library_date": LIBRARY_DATE,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "libraries": versions,
        "device": device,
        "profile_folders": folders,
    }


def page(found: dict[str, Any]) -> Page:
    """The same as a page."""
    rows = [["python", found["python"]], ["system", found["system"]]]
    device = found["device"]
    rows += [
        ["device", " ".join(filter(None, (f"{device['count']} x" if device["count"] > 1 else "", device["name"])))],
        ["memory", format_bytes(device["memory_bytes"])],
        ["driver", device["driver"] or f"none: the {device['told_by']} names the device"],
        ["profile", device["profile"] or "none carries this name: `roofcast hardware detect`"],
    ]
    rows += [[name, version or "not installed"] for name, version in found["libraries"].items()]
    folders = Table(
        (Column("profiles"), Column("kind"), Column("folder")),
        [[str(f["profiles"]), f["kind"], f["folder"]] for f in found["profile_folders"]],
    )
    notes = [] if found["libraries"]["torch"] else ["`roofcast measure` needs torch: pip install 'roofcast[measure]'"]
    return Page(
        [f"roofcast {found['roofcast']}, library of {found['library_date']}"],
        [Table((Column(""), Column("")), rows), folders],
        notes,
    )
