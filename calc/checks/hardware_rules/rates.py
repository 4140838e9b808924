"""Matrix rates: units x operations per clock x clock (C1, C2), the dtype mask (C3), ratios (C4), clocks (C5)."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.finding import Problem
from calc.checks.hardware_rules.device import CLOCK_TOLERANCE, MATRIX_TYPES, Device, Row
from calc.checks.registry import rule

#: Ratio to the dense fp32-accumulate rate → what was probably entered.
_FACTORS = (
    (2.0, 0.05, "a 2:4-sparse figure, or that of both dies or of the whole card"),
    (4.0, 0.05, "a sparse figure of a type half as wide"),
    (0.5, 0.05, "the fp32-accumulate rate of a GeForce sibling, or one die or GCD of two"),
)
_RESTS_ON = ("compute_unit_count", "boost_clock_mhz")


def factor_cause(device: Device, row: Row) -> str | None:
    """What a row that is off by a telling factor probably holds."""
    reference = device.reference_mhz
    fp32 = device.peak("fp32")
    if reference and device.family and not device.family.relative:
        ratio = row.clock / reference
    elif device.anchor and device.anchor is not row:
        ratio = row.clock / device.anchor.clock
    else:
        return None
    for factor, tolerance, cause in _FACTORS:
        if abs(ratio / factor - 1) <= tolerance:
            return cause
    if ratio < 0.2 and fp32 and abs(row.tflops / fp32 - 1) <= 0.05:
        return "the vector fp32 figure"
    return "the vector fp32 figure" if 0.045 <= ratio <= 0.07 else None


def outliers(device: Device) -> list[Row]:
    """Rows that imply another clock than the anchor."""
    anchor = device.anchor
    return [r for r in device.rows if anchor and abs(r.clock / anchor.clock - 1) > CLOCK_TOLERANCE]


def _accumulates_in_16bit(device: Device, row: Row) -> bool:
    """Whether a row holds the fp16-accumulate figure (left to C22)."""
    other = device.peak("fp8_acc16" if row.dtype == "fp8" else "fp16_acc16")
    has = device.family is not None and "fp16_acc16" in device.family.rates
    return has and row.dtype in ("fp16", "bf16", "fp8") and other is not None and abs(row.tflops / other - 1) <= CLOCK_TOLERANCE


@rule(
    "C1", "error", "hardware", "rates",
    sentence="Every matrix rate is units x operations per clock and unit x a clock between 0.8 and 1.0 of the boost clock.",
    arithmetic="clock = TFLOPS x 10^6 / (units x rate of the architecture); 2 % of tolerance. A rate stated in the profile "
    "(bf16_or_fp16_dense_flops_per_clock_per_unit) must be the architecture's. Ratios near 2, 0.5 and 0.06 are left "
    "to C2.",
    example="L4 with the A10's 125 TFLOPS of bf16: 125e6 / (58 x 1024) = 2105 MHz, 1.03 of its 2040 MHz boost.",
)  # fmt: skip
def clock_in_range(device: Device) -> Iterator[Problem]:
    """C1."""
    yield from _stated_rate(device)
    anchor, span = device.anchor, device.boost_range_mhz
    if not anchor or not span or not device.profile.boost_clock_mhz or device.is_plausible(anchor.clock):
        return
    if factor_cause(device, anchor):
        return
    ratio = anchor.clock / span[1]
    high = ratio > 1
    yield Problem(
        ("peak_dense_tflops", anchor.dtype),
        f"{anchor.dtype} {anchor.tflops:g} TFLOPS implies {anchor.clock:.0f} MHz, "
        f"{'above' if high else 'under 0.8 of'} the boost clock",
        expected=round(anchor.at(device.reference_mhz or span[1]), 1),
        found=anchor.tflops,
        ratio=ratio,
        cause="the figure of a sibling with " + ("more" if high else "fewer") + " units or another clock",
        remedy=f"dense TFLOPS = {device.units} units x {anchor.rate:g} x clock; take the vendor's dense row for this part",
        severity="error" if ratio > 1.05 else "warning",
        refuses=tuple(r.field for r in device.rows),
        rests_on=_RESTS_ON,
    )


def _stated_rate(device: Device) -> Iterator[Problem]:
    stated, family = device.profile.bf16_or_fp16_dense_flops_per_clock_per_unit, device.family
    if stated is None or family is None or family.relative or family.matrix_units:
        return
    known = [r for r in (family.rates.get("bf16"), family.rates.get("fp16")) if isinstance(r, (int, float))]
    if known and stated not in known:
        yield Problem(
            ("bf16_or_fp16_dense_flops_per_clock_per_unit",),
            f"{stated:g} operations per clock and unit; {family.id} runs {known[-1]:g}",
            expected=known[-1],
            found=stated,
            ratio=stated / known[-1],
            cause="the rate of another architecture, or with fp16 accumulation or sparsity",
            remedy="enter the dense rate with fp32 accumulation",
        )


@rule(
    "C2", "error", "hardware", "rates",
    sentence="No matrix rate is twice, half or a sixteenth of what the units do: those ratios are sparse, one-die and vector "
    "figures.",
    arithmetic="ratio = implied clock / rating clock. 2.0 +- 5 %: 2:4 sparsity, or both dies; 0.5 +- 5 %: one die or GCD, or the "
    "GeForce fp32-accumulate rate; about 0.06, or equal to the fp32 row: the vector rate.",
    example="H100 bf16 1978.9: 1978.9e6 / (132 x 4096) = 3660 MHz, 2.00 of 1830 MHz: the sparse column of the sheet.",
)  # fmt: skip
def telling_factor(device: Device) -> Iterator[Problem]:
    """C2."""
    anchor = device.anchor
    if not anchor:
        return
    off = outliers(device)
    suspects = [r for r in off if factor_cause(device, r)]
    if not device.is_plausible(anchor.clock) and factor_cause(device, anchor):
        suspects += [r for r in device.rows if r not in off]
    for row in suspects:
        reference = device.reference_mhz if device.family and not device.family.relative else anchor.clock
        if _accumulates_in_16bit(device, row) and row in off:
            continue
        expected = row.at(reference or anchor.clock)
        yield Problem(
            ("peak_dense_tflops", row.dtype),
            f"{row.dtype} {row.tflops:g} TFLOPS is {row.tflops / expected:.3g} x the dense rate",
            expected=round(expected, 1),
            found=row.tflops,
            ratio=row.tflops / expected,
            cause=factor_cause(device, row),
            remedy="enter the dense rate with fp32 accumulation of one unit of account",
            rests_on=_RESTS_ON,
        )


@rule(
    "C3", "error", "hardware", "identity",
    sentence="A dtype has a rate only where the architecture has a matrix path for it; unsupported is null.",
    arithmetic="The mask is the table of rates: no bf16 before sm_80, no fp8 before sm_89 and CDNA3, no fp4 before sm_100 and "
    "CDNA4, no int4 from sm_90 on, no tf32 on CDNA1, CDNA2 and CDNA4. Zero is a schema fault.",
    example="A100 with fp8 624: sm_80 has no fp8 path; the figure is int8's.",
)  # fmt: skip
def dtype_mask(device: Device) -> Iterator[Problem]:
    """C3."""
    family = device.family
    if family is None:
        return
    for dtype in MATRIX_TYPES:
        value = device.peak(dtype)
        if value is None or dtype in family.rates:
            continue
        twin = next((t for t in ("int8", "fp8", "fp16") if t != dtype and device.peak(t) == value), None)
        yield Problem(
            ("peak_dense_tflops", dtype),
            f"{family.id} has no {dtype} matrix path",
            found=value,
            cause=f"the {twin} figure" if twin else "a rule of thumb (half the bits, twice the rate) or another architecture's row",
            remedy="write null",
        )


@rule(
    "C4", "error", "hardware", "rates",
    sentence="Rates of different dtypes stand in the ratios of the architecture: each implies the same clock within 2 %.",
    arithmetic="implied clock of a row against that of the rows that agree with the 16-bit one; fp64 is at most its share of "
    "fp32.",
    example="B300 fp4 14000: 14000e6 / (148 x 49152) = 1925 MHz, but bf16 2250 implies 1856 MHz: 3.7 % off.",
)  # fmt: skip
def dtype_ratios(device: Device) -> Iterator[Problem]:
    """C4."""
    anchor, family = device.anchor, device.family
    for row in outliers(device):
        if anchor is None or family is None or factor_cause(device, row) or _accumulates_in_16bit(device, row):
            continue
        expected = row.at(anchor.clock)
        sparse = device.profile.peak_sparse_tflops or {}
        halved = any(row.dtype == name and abs(value / 2 / row.tflops - 1) <= CLOCK_TOLERANCE for name, value in sparse.items())
        halved = halved or (
            family.sparse(row.dtype) not in (1, 2) and abs(row.tflops * 2 / expected / family.sparse(row.dtype) - 1) < 0.05
        )
        cause = f"half of the sparse figure; sparsity gives only {family.sparse(row.dtype):.3g} x here" if halved else None
        yield Problem(
            ("peak_dense_tflops", row.dtype),
            f"{row.dtype} {row.tflops:g} TFLOPS does not stand in the architecture's ratio to {anchor.dtype} {anchor.tflops:g}",
            expected=round(expected, 1),
            found=row.tflops,
            ratio=row.tflops / expected,
            cause=cause or "another part's row, a rounded figure, or a rule of thumb (half the bits, twice the rate)",
            remedy=f"{row.dtype} = {anchor.dtype} x {row.rate / anchor.rate:g} on {family.id}",
            rests_on=(anchor.field,),
        )
    yield from _fp64(device)


def _fp64(device: Device) -> Iterator[Problem]:
    fp64, fp32 = device.peak("fp64"), device.peak("fp32")
    share = device.family.fp64_share_of_fp32 if device.family else None
    if fp64 and fp32 and share and fp64 > fp32 * share * 1.1:
        yield Problem(
            ("peak_dense_tflops", "fp64"),
            f"fp64 {fp64:g} TFLOPS is more than {share:.3g} of fp32 {fp32:g}",
            expected=round(fp32 * share, 3),
            found=fp64,
            ratio=fp64 / (fp32 * share),
            cause="half of fp32 assumed, which holds on GA100, GH100 and GB100 only",
            remedy="enter the vector fp64 rate of this die",
            rests_on=("peak_dense_tflops.fp32",),
        )


@rule(
    "C5", "warning", "hardware", "rates",
    sentence="The rating clock stated is the one that the peaks imply, and both lie in the boost range of the chip.",
    arithmetic="tensor_peak_clock_mhz against the implied clock, 2 %; where no boost clock is given, the implied clock lies "
    "between 0.8 of the lowest and 1.02 of the highest boost of parts on the same chip.",
    example="V100 PCIe with the SXM2 clock of 1530 MHz beside 112 TFLOPS: the peak needs 1367 MHz.",
)  # fmt: skip
def rating_clock(device: Device) -> Iterator[Problem]:
    """C5."""
    anchor, stated, family = device.anchor, device.profile.tensor_peak_clock_mhz, device.family
    if anchor is None or family is None or family.relative:
        return
    rests_on = ("compute_unit_count", anchor.field)
    if stated and device.is_plausible(anchor.clock) and abs(stated / anchor.clock - 1) > CLOCK_TOLERANCE:
        yield Problem(
            ("tensor_peak_clock_mhz",),
            f"{stated:g} MHz stated; {anchor.dtype} {anchor.tflops:g} TFLOPS needs {anchor.clock:.0f} MHz",
            expected=round(anchor.clock),
            found=stated,
            ratio=stated / anchor.clock,
            cause="a sibling's clock, or the boost clock where the peak is rated lower",
            remedy="enter the clock that reproduces the published peak",
            rests_on=rests_on,
        )
    elif not device.profile.boost_clock_mhz and device.boost_range_mhz and not device.is_plausible(anchor.clock):
        low, high = device.boost_range_mhz
        yield Problem(
            ("peak_dense_tflops", anchor.dtype),
            f"{anchor.dtype} {anchor.tflops:g} TFLOPS implies {anchor.clock:.0f} MHz; "
            f"parts on {device.profile.chip} run at {low:g} to {high:g} MHz",
            expected=round(anchor.at(high), 1),
            found=anchor.tflops,
            ratio=anchor.clock / high,
            cause="a row copied from a sibling, or a sparse figure",
            remedy="enter the boost clock and the dense row of this part",
            refuses=tuple(r.field for r in device.rows),
            rests_on=rests_on,
        )
