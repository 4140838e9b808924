"""MODEL arguments that are not profiles: which importer reads what."""

from __future__ import annotations

from pathlib import Path

from calc.errors import ProfileError
from calc.profiles.model import ModelProfile


def import_source(source: str) -> tuple[ModelProfile, tuple[str, ...]]:
    """(profile, warnings) from a config.json or the folder that holds one. Raises ProfileError."""
    from calc.profiles.importers.hf_config import import_folder_or_file

    path = Path(source).expanduser()
    if not path.exists():
        raise ProfileError(f"{source}: no such file or folder", "name a config.json or the folder that holds it")
    return import_folder_or_file(path)


def is_source(text: str) -> bool:
    """Whether a MODEL argument is read by an importer rather than as a profile."""
    path = Path(text).expanduser()
    return path.suffix == ".json" or (path.is_dir() and (path / "config.json").is_file())
