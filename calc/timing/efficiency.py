"""From datasheet ceilings to what kernels reach, with the evidence for the spread.

Three sources in this order: a user's own efficiency file (factors by operator class), the effects fitted on published speeds, and the
documented default factors where those files are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from calc.profiles import catalog, reader
from calc.profiles.efficiency import EffectFile, EfficiencyProfile, Factor, faults
from calc.timing.calibrated import ENGINE_UNSEEN, Calibrated, Effects
from calc.timing.setting import Setting, device_class


@dataclass(frozen=True)
class Efficiency:
    """Factors in use and the words that describe their evidence."""

    profile: EfficiencyProfile
    sha256: str = ""
    kind = "efficiency"

    @property
    def name(self) -> str:
        """The id that the file states."""
        return self.profile.id

    @property
    def evidence(self) -> str:
        """``default``, ``fitted n=…`` or ``measured here``."""
        if self.profile.evidence == "default":
            return "default"
        n = sum(f.cases for f in self.profile.factors) or sum(f.bandwidth.n for f in self.profile.factors)
        return f"{self.profile.evidence} n={n}"

    def factor(self, op_class: str, weight_format: str, compute_dtype: str = "", kernel: str = "") -> Factor:
        """The factor of an operator: the first that names its kernel (see ``calc.timing.sizes``), else its class (and format and type),
        else the one that serves all others."""
        others: Factor | None = None
        of_class: Factor | None = None
        for factor in self.profile.factors:
            if factor.formats and weight_format not in factor.formats:
                continue
            if factor.compute_dtypes and compute_dtype not in factor.compute_dtypes:
                continue
            if op_class in factor.operator_classes:
                if kernel in factor.operations:
                    return factor
                if not factor.operations:
                    of_class = of_class or factor
            elif not factor.operator_classes:
                others = factor
        return of_class or others or self.profile.factors[-1]


def load_efficiency(path: str | None = None) -> Efficiency:
    """The efficiency file at ``path``, or the documented default. Raises ProfileError with every fault."""
    where = Path(path) if path else catalog.bundled_folder("hardware") / "efficiency" / "default.yaml"
    content = reader.read_bytes(where)
    profile = reader.convert(reader.parse_yaml(content, str(where)), EfficiencyProfile, faults)
    return Efficiency(profile, reader.sha256(content))


def effects_folder() -> Path:
    """Where the fitted effects are kept: JSON, which loads in a tenth of the time that YAML takes."""
    return catalog.bundled_folder("hardware") / "efficiency"


@lru_cache(maxsize=32)
def _effect_file(path: Path) -> EffectFile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=EffectFile)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _file_name(engine: str) -> str:
    return engine.replace(".", "-").replace("/", "-") + ".json"


def effects(engine: str) -> Effects | None:
    """The effects that an engine's steps draw on; None where the shared file is missing or damaged."""
    folder = effects_folder()
    shared = _effect_file(folder / "shared.json")
    return Effects(shared, _effect_file(folder / _file_name(engine))) if shared else None


def effect_files() -> dict[str, EffectFile]:
    """All fitted effects by id."""
    found = (_effect_file(path) for path in sorted(effects_folder().glob("*.json")))
    return {f.id: f for f in found if f is not None}


def for_setting(path: str | None, setting: Setting) -> Efficiency | Calibrated:
    """What times are computed with: the file that the user names, else the user's own for this device, else the fitted effects, else
    the documented default."""
    chosen = _file(path, setting)
    if chosen is not None:
        return load_efficiency(chosen)
    fitted = effects(setting.family)
    return Calibrated(fitted, setting) if fitted else load_efficiency()


def _file(path: str | None, setting: Setting) -> str | None:
    own = catalog.user_folder() / "efficiency" / f"{setting.hardware.id}.yaml"
    return str(own) if path is None and own.is_file() else path


def told(path: str | None, setting: Setting, efficiency: Efficiency | Calibrated) -> str:
    """What ``for_setting`` chose, and where it stands."""
    if isinstance(efficiency, Calibrated):
        return f"effects fitted to published speeds of {setting.family}, shipped"
    profile = efficiency.profile
    return f"efficiency {profile.id} ({profile.evidence}) from {_file(path, setting) or 'the bundled default'}"


def evidence_warnings(efficiency: Efficiency | Calibrated, hardware_id: str | None = None) -> tuple[tuple[str, str], ...]:
    """What to tell of times that rest on other engines alone, or on a fit of another device or of some classes only."""
    if isinstance(efficiency, Efficiency):
        return _fit_warnings(efficiency.profile, hardware_id)
    if efficiency.level("decode") != ENGINE_UNSEEN:
        return ()
    where = efficiency.setting
    what = f"no published speed of {where.engine} on {device_class(where.hardware)} devices is known"
    return (("engine_unseen", f"{what}: expected times are those of other engines, the ranges are wide"),)


def _fit_warnings(profile: EfficiencyProfile, hardware_id: str | None) -> tuple[tuple[str, str], ...]:
    if profile.fit is None:
        return ()
    found: list[tuple[str, str]] = []
    if profile.hardware is not None and hardware_id is not None and profile.hardware != hardware_id:
        found.append(("efficiency_of_another_device", f"{profile.id} was fitted on {profile.hardware}, not on {hardware_id}"))
    if profile.fit.against == "measured ceilings":
        device = profile.fit.environment.get("device") or profile.fit.environment.get("device_name") or "the machine of its runs"
        said = (
            f"{profile.id} holds shares of the ceilings measured on {device}, not of a datasheet: it says nothing of another device; "
            "fit with --hardware PROFILE"
        )
        found.append(("efficiency_of_measured_ceilings", said))
    return tuple(found)
