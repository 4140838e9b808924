"""Storage."""

from __future__ import annotations

from typing import Any

from calc.profiles.importers.config import Config
from calc.profiles.model import Storage


def storage_of(root: Config, text: Config, draft: Any, quantization: Any) -> Storage:
    return Storage(dtype="bf16")
