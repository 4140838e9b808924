"""Where a figure stands: the line of a profile, or the law of an engine with its sources."""

from __future__ import annotations

import inspect
import re
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from calc.memory.budget import Capacity
from calc.profiles import catalog, reader
from calc.profiles.catalog import Loaded
from calc.serving.deployment import Deployment


@lru_cache(maxsize=64)
def _document(path: Path) -> reader.Document:
    return reader.parse_yaml(reader.read_bytes(path), _short(path))


def _short(path: Path) -> str:
    """Bundled profiles by their folder, others as they were named."""
    kinds: tuple[catalog.Kind, ...] = ("hardware", "model")
    for kind in kinds:
        folder = catalog.bundled_folder(kind)
        try:
            return str(Path(folder.name) / path.resolve().relative_to(folder.resolve()))
        except ValueError:
            continue
    return str(path)


def place(loaded: Loaded[Any], *path: str) -> str:
    """``file:line`` of a key of a profile; the file alone where it is no profile of ours, the name where there is no file."""
    if loaded.path is None:
        return loaded.name
    if loaded.path.suffix not in (".yaml", ".yml"):
        return str(loaded.path)
    return _document(loaded.path).at(path).rsplit(":", 1)[0]


def hardware(deployment: Deployment, *path: str) -> str:
    """A line of the device's profile."""
    return place(deployment.hardware, *path)


def layer(deployment: Deployment, kind: str) -> str:
    """The line of a layer kind in the model's profile."""
    return place(deployment.model, "layer_kinds", kind)


def law(held: Capacity) -> str:
    """The engine's law and its version."""
    return f"law of {held.engine} {held.engine_version}"


def sources(deployment: Deployment) -> tuple[str, ...]:
    """The documents that the modules of the engine's law name, each once."""
    module = deployment.engine
    if not isinstance(module, ModuleType):
        return ()
    parts = [m for name, m in sorted(sys.modules.items()) if name.startswith(module.__name__) and isinstance(m, ModuleType)]
    found = [re.search(r"Sources?: (.*?)(?:\n\n|\Z)", inspect.getdoc(m) or "", re.DOTALL) for m in parts]
    return tuple(dict.fromkeys(" ".join(f[1].split()).rstrip(".") for f in found if f))


def name(function: Any) -> str:
    """The dotted name of the function that computes."""
    return f"{function.__module__}.{function.__qualname__}"
