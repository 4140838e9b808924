"""From datasheet ceilings to what kernels reach: low, expected and high time of an operator, with the evidence for the spread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calc.profiles import catalog, reader
from calc.profiles.efficiency import EfficiencyProfile, Factor, faults


@dataclass(frozen=True)
class Efficiency:
    """Factors in use and the words that describe their evidence."""

    profile: EfficiencyProfile
    sha256: str = ""

    @property
    def evidence(self) -> str:
        """``default``, ``fitted n=…`` or ``measured here``."""
        if self.profile.evidence == "default":
            return "default"
        n = sum(f.bandwidth.n for f in self.profile.factors)
        return f"{self.profile.evidence} n={n}"

    def factor(self, op_class: str, weight_format: str) -> Factor:
        """The factor of an operator: the first that names its class (and format), else the one that serves all others."""
        others: Factor | None = None
        for factor in self.profile.factors:
            if factor.formats and weight_format not in factor.formats:
                continue
            if op_class in factor.operator_classes:
                return factor
            if not factor.operator_classes:
                others = factor
        return others or self.profile.factors[-1]


def load_efficiency(path: str | None = None) -> Efficiency:
    """The efficiency file at ``path``, or the documented default. Raises ProfileError with every fault."""
    where = Path(path) if path else catalog.bundled_folder("hardware") / "efficiency" / "default.yaml"
    content = reader.read_bytes(where)
    profile = reader.convert(reader.parse_yaml(content, str(where)), EfficiencyProfile, faults)
    return Efficiency(profile, reader.sha256(content))
