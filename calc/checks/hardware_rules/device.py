"""A hardware profile with what the tables say about its architecture, and the clocks that its peaks imply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from calc.checks.architectures import Chip, Family, MemoryType, chip_of, family_of, memory_type_of
from calc.checks.subject import Subject
from calc.profiles.hardware import HardwareProfile

MATRIX_TYPES = ("tf32", "fp16", "fp16_acc16", "bf16", "fp8", "fp8_acc16", "fp6", "fp4", "int8", "int4")
CLOCK_TOLERANCE = 0.02  # published peaks are rounded to three or four digits
LOWEST_SHARE_OF_BOOST = 0.8  # rating clocks of matrix peaks lie at 0.85 to 1.0 of the advertised boost


@dataclass(frozen=True)
class Row:
    """One matrix rate with the clock that it implies; in a relative family the clock has no unit."""

    dtype: str
    tflops: float
    rate: float
    clock: float

    @property
    def field(self) -> str:
        """Its name in the profile."""
        return f"peak_dense_tflops.{self.dtype}"

    def at(self, clock: float) -> float:
        """The row that a clock would give, in TFLOPS."""
        return self.tflops * clock / self.clock


@dataclass
class Device:
    """What hardware rules look at."""

    subject: Subject

    @property
    def profile(self) -> HardwareProfile:
        """The profile."""
        profile: HardwareProfile = self.subject.profile
        return profile

    @cached_property
    def family(self) -> Family | None:
        """The architecture's rates."""
        return family_of(self.profile)

    @cached_property
    def chip(self) -> Chip | None:
        """The die."""
        return chip_of(self.profile)

    @cached_property
    def memory_type(self) -> MemoryType | None:
        """The memory technology."""
        return memory_type_of(self.profile)

    @cached_property
    def units(self) -> int | None:
        """Units that the rates are counted by."""
        return (self.family.matrix_units if self.family else None) or self.profile.compute_unit_count

    def peak(self, dtype: str) -> float | None:
        """A row of ``peak_dense_tflops``."""
        value: float | None = getattr(self.profile.peak_dense_tflops, dtype)
        return value

    @property
    def peak_16bit(self) -> tuple[str, float] | None:
        """Field and value of the 16-bit peak: bf16, else fp16."""
        for dtype in ("bf16", "fp16"):
            value = self.peak(dtype)
            if value is not None:
                return f"peak_dense_tflops.{dtype}", value
        return None

    @cached_property
    def boost_range_mhz(self) -> tuple[float, float] | None:
        """Lowest and highest clock that the part may be advertised with: its own boost, else what its chip's parts carry."""
        own = self.profile.boost_clock_mhz or (self.family.matrix_clock_mhz if self.family else None)
        if own:
            return own, own
        if self.chip and self.chip.boost_mhz:
            return self.chip.boost_mhz[0], self.chip.boost_mhz[1]
        return None

    @cached_property
    def reference_mhz(self) -> float | None:
        """The clock that the rows should imply: the rating clock, else the boost."""
        highest = self.boost_range_mhz[1] if self.boost_range_mhz else None
        return self.profile.tensor_peak_clock_mhz or highest

    @cached_property
    def rows(self) -> list[Row]:
        """Matrix rows with a tabulated rate; empty where units or rates are unknown."""
        family, units = self.family, self.units
        if family is None or (units is None and not family.relative):
            return []
        scale = 1.0 if family.relative else 1e6 / (units or 1)
        exact: list[Row] = []
        ranges: list[tuple[str, float, list[float]]] = []
        for dtype in MATRIX_TYPES:
            value, rate = self.peak(dtype), family.rates.get(dtype)
            if value is None or rate is None or isinstance(rate, str):
                continue
            if isinstance(rate, list):
                ranges.append((dtype, value, rate))
            else:
                exact.append(Row(dtype, value, rate, value * scale / rate))
        best = self._best(exact)
        for dtype, value, (low, high) in ranges:
            # Of a range of rates, the one that brings the row nearest to the others.
            rate = min(max(value * scale / best.clock, low), high) if best else high
            exact.append(Row(dtype, value, rate, value * scale / rate))
        return exact

    def is_plausible(self, clock: float) -> bool:
        """Whether the part may run its matrix units at this clock. Always, where no clock is known."""
        if self.boost_range_mhz is None or (self.family and self.family.relative):
            return True
        low, high = self.boost_range_mhz
        return LOWEST_SHARE_OF_BOOST * low * (1 - CLOCK_TOLERANCE) <= clock <= high * (1 + CLOCK_TOLERANCE)

    @cached_property
    def anchor(self) -> Row | None:
        """The row that the others are compared with: of the largest group that agrees on a plausible clock, its 16-bit one."""
        return self._best(self.rows)

    def _best(self, rows: list[Row]) -> Row | None:
        def standing(row: Row) -> tuple[bool, int, bool]:
            agreeing = sum(abs(other.clock / row.clock - 1) <= CLOCK_TOLERANCE for other in rows)
            return self.is_plausible(row.clock), agreeing, row.dtype in ("bf16", "fp16")

        return max(rows, key=standing, default=None)
