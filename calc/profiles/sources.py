"""MODEL arguments that are not profiles: which importer reads what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calc.errors import ProfileError
from calc.profiles import reader
from calc.profiles.model import ModelProfile

HUB_PREFIX = "hf:"


@dataclass(frozen=True)
class Imported:
    """A profile made of files that others published; ``path`` and ``sha256`` are those of the file that describes the model."""

    profile: ModelProfile
    warnings: tuple[str, ...]
    path: Path
    sha256: str


def read_source(source: str) -> Imported:
    """A model from a config.json or its folder, a .gguf file, or ``hf:org/name[@revision]``. Raises ProfileError or UsageError."""
    if source.startswith(HUB_PREFIX):
        from calc.profiles.importers.hub import import_hub

        path, (profile, warnings) = import_hub(source.removeprefix(HUB_PREFIX))
        return _with_digest(profile, warnings, path)
    path = Path(source).expanduser()
    if not path.exists():
        raise ProfileError(f"{source}: no such file or folder", "name a config.json, the folder that holds it, or a .gguf file")
    if path.suffix == ".gguf":
        from calc.profiles.importers.gguf_file import import_gguf

        profile, warnings, digest = import_gguf(path)
        return Imported(profile, warnings, path, digest)
    from calc.profiles.importers.hf_config import import_folder_or_file

    profile, warnings = import_folder_or_file(path)
    return _with_digest(profile, warnings, path / "config.json" if path.is_dir() else path)


def _with_digest(profile: ModelProfile, warnings: tuple[str, ...], path: Path) -> Imported:
    return Imported(profile, warnings, path, reader.sha256(reader.read_bytes(path, limit=reader.MAX_IMPORT_BYTES)))


def import_source(source: str) -> tuple[ModelProfile, tuple[str, ...]]:
    """(profile, warnings) of a source. Raises ProfileError or UsageError."""
    found = read_source(source)
    return found.profile, found.warnings


def is_source(text: str) -> bool:
    """Whether a MODEL argument is read by an importer rather than as a profile."""
    if text.startswith(HUB_PREFIX):
        return True
    path = Path(text).expanduser()
    return path.suffix in (".json", ".gguf") or (path.is_dir() and (path / "config.json").is_file())
