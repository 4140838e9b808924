"""Statistics of timings: medians with order-statistic intervals inside a round, a t-interval of log medians between rounds.

The spread between rounds, not inside one, is the uncertainty: samples in a row are correlated, so a textbook interval of the
samples covers far less than it claims.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (Student 1908; any statistical table).
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_Z95 = 1.960
_MAD_SCALE = 1.4826  # median absolute deviation → standard deviation of a normal distribution
OUTLIER_DEVIATIONS = 10  # hyperfine's threshold for the modified z-score
CLUSTER_GAP, CLUSTER_SHARE = 0.05, 0.20


def t95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond the table an expansion right to 0.1 %."""
    if degrees < 1:
        raise ValueError("an interval needs at least two values")
    return _T95[degrees - 1] if degrees <= len(_T95) else _Z95 + 2.5 / degrees


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile of sorted values by linear interpolation."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """Median of values in any order."""
    return quantile(sorted(values), 0.5)


def median_interval(ordered: Sequence[float]) -> tuple[float, float] | None:
    """Distribution-free 95 % interval of the median from order statistics; None below 6 values, where none exists."""
    n = len(ordered)
    if n < 6:
        return None
    half = _Z95 * math.sqrt(n) / 2
    low, high = math.floor(n / 2 - half), math.ceil(n / 2 + 1 + half)
    return ordered[max(low, 1) - 1], ordered[min(high, n) - 1]


def log_interval(values: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Geometric mean of positive values and the t-interval of their logarithms, exponentiated (asymmetric, as it should be).

    The interval is None below 3 values.
    """
    logs = [math.log(v) for v in values]
    n = len(logs)
    mean = math.fsum(logs) / n
    centre = math.exp(mean)
    if n < 3:
        return centre, None
    variance = math.fsum((x - mean) ** 2 for x in logs) / (n - 1)
    half = t95(n - 1) * math.sqrt(variance / n)
    return centre, (min(centre, math.exp(mean - half)), max(centre, math.exp(mean + half)))


def outliers(values: Sequence[float]) -> int:
    """How many values lie more than 10 scaled median absolute deviations from the median. They are counted, never removed."""
    middle = median(values)
    scale = _MAD_SCALE * median([abs(v - middle) for v in values])
    return sum(abs(v - middle) > OUTLIER_DEVIATIONS * scale for v in values) if scale > 0 else 0


def two_clusters(values: Sequence[float]) -> tuple[float, float] | None:
    """Medians of two groups when the largest gap between sorted values exceeds 5 % with at least 20 % of them on each side."""
    ordered = sorted(values)
    n = len(ordered)
    if n < 10:
        return None
    margin = math.ceil(CLUSTER_SHARE * n)
    cuts = range(margin, n - margin + 1)
    cut = max(cuts, key=lambda i: ordered[i] / ordered[i - 1], default=0)
    if not cut or ordered[cut] / ordered[cut - 1] <= 1 + CLUSTER_GAP:
        return None
    return quantile(ordered[:cut], 0.5), quantile(ordered[cut:], 0.5)


@dataclass
class Running:
    """Samples as they come, kept sorted beside their order of arrival, so that the stop rule is cheap to ask after each batch."""

    arrived: list[float] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)

    def add(self, samples: Sequence[float]) -> None:
        """Take in a batch and note the noise estimate after it."""
        for value in samples:
            self.arrived.append(value)
            insort(self.ordered, value)
        width = self.relative_half_width
        if width is not None:
            self.noise.append(width)

    @property
    def relative_half_width(self) -> float | None:
        """Half of the median's interval over the median; None while there is no interval."""
        interval = median_interval(self.ordered)
        return None if interval is None else (interval[1] - interval[0]) / 2 / quantile(self.ordered, 0.5)

    def noise_is_flat(self, window: int, spread: float) -> bool:
        """Whether more samples no longer help: the last ``window`` noise estimates lie within ``spread`` of their mean (nvbench)."""
        if len(self.noise) < window:
            return False
        last = self.noise[-window:]
        return max(last) - min(last) <= spread * math.fsum(last) / window
