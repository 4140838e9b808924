"""What this installation sees: versions, device, folders."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from calc.profiles import catalog
from calc.report.table import Column, Page, Table
from calc.version import LIBRARY_DATE, VERSION

_LIBRARIES = ("typer", "rich", "pyyaml", "msgspec", "numpy", "torch", "nvidia-ml-py")


def facts(profiles_dir: str | None) -> dict[str, Any]:
    """Versions of libraries (null where absent), processor, profile folders with their counts. Nothing heavy is imported."""
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
        "profile_folders": folders,
    }


def page(found: dict[str, Any]) -> Page:
    """The same as a page."""
    rows = [["python", found["python"]], ["system", found["system"]]]
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
