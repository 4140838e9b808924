"""What a run leaves behind: its file, kept up to date while the run goes on, and the record of what watched it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calc.errors import UsageError
from calc.measure import run_file
from calc.measure.device.monitor import Monitor, Reading
from calc.measure.progress import Progress, ProgressEvent
from calc.measure.records import MeasureResult, Notice
from calc.profiles.hardware import HardwareProfile
from calc.timing import roofline


def monitor_record(monitor: Monitor, first: Reading) -> dict[str, Any]:
    """The source of readings, seconds between looks (None: around each case, or with each sample), what it tells, and what held the
    clock before the run."""
    return {
        "source": monitor.source,
        "interval_s": getattr(monitor, "interval_s", None),
        "watched": first.known,
        "clocks_set": first.clocks_set,
        "power_limit_w": first.power_limit_w,
    }


def save(
    result: MeasureResult,
    path: Path,
    model: dict[str, Any],
    datasheet: dict[str, Any] | None,
    progress: Progress,
    *,
    complete: bool,
) -> Notice | None:
    """Write the run file. A failure leaves the last good one and is a warning, since the measurement itself is good."""
    run = run_file.document(
        model=model,
        environment=result.environment | {"duration_s": result.duration_s},
        settings=result.settings,
        monitor=result.monitor,
        ceilings=result.ceilings,
        ceiling_cases=result.ceiling_cases,
        cases=result.cases,
        hardware=datasheet,
        rows=result.rows,
        phases=result.phases,
        not_measured=result.not_measured,
        noisy=result.noisy,
        warnings=result.warnings,
        complete=complete,
    )
    try:
        run_file.write(run, path)
    except (UsageError, BrokenPipeError) as fault:
        return Notice("W_NOT_SAVED", f"the run file is not saved: {fault}; the last good one is kept")
    progress(ProgressEvent("saved", f"saved {path}"))
    return None


def datasheet_record(hardware: HardwareProfile) -> dict[str, Any]:
    """The rates that predictions of this device start from."""
    rates = roofline.datasheet(hardware)
    return {
        "id": hardware.id,
        "name": hardware.name,
        "peak_flops_per_s": dict(rates.peaks),
        "bandwidth_bytes_per_s": rates.bandwidth,
    }
