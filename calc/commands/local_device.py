"""The device of this machine and the profile that describes it: of ``hardware detect`` and ``env``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.measure.device.detect import LocalDevice
    from calc.profiles.catalog import Loaded
    from calc.profiles.hardware import HardwareProfile


@dataclass(frozen=True)
class Found:
    """``profile`` is None where no profile carries the device's name; ``hint`` then names near ones."""

    local: LocalDevice
    profile: Loaded[HardwareProfile] | None
    hint: str | None

    @property
    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.local.kind,
            "name": self.local.name,
            "count": self.local.count,
            "memory_bytes": self.local.memory_bytes,
            "told_by": self.local.source,
            "driver": self.local.driver,
            "torch": self.local.torch_version,
            "profile": self.profile.name if self.profile else None,
        }


def find(profiles_dir: str | None) -> Found:
    """Ask torch, NVML or the system, and look the name up; a near name is never taken for it."""
    import calc
    from calc.errors import UnknownNameError
    from calc.measure.device.detect import detect_local

    local = detect_local()
    try:
        return Found(local, calc.load_hardware(local.name, profiles_dir), None)
    except UnknownNameError as error:
        return Found(local, None, error.hint)
