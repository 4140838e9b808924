"""A result as plain data for ``--json``: everything but the raw samples, which stand in the run file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from calc.measure.cases import Workload
from calc.measure.records import MeasureResult


def results(result: MeasureResult) -> dict[str, Any]:
    """SI base units in key names, unrounded, null for unknown. ``error`` = predicted / measured - 1."""
    return {
        "device": result.environment.get("device"),
        "dtype": result.settings.get("dtype"),
        "settings": result.settings,
        "monitor": result.monitor,
        "ceilings": {c.name: _listed(asdict(c)) for c in result.ceilings},
        "phases": {p.phase: _listed(asdict(p)) for p in result.phases},
        "operators": [_listed(asdict(r)) for r in result.rows],
        "cases": [
            {
                "id": c.case.id,
                "phase": c.case.phase,
                "status": c.status,
                "time_s": c.time_s,
                "interval_s": list(c.interval_s) if c.interval_s else None,
                "flops": c.case.flops,
                "bytes": c.case.bytes,
                "cache": c.cache,
                "timer": c.timer,
                "kernel": c.kernel,
                "rounds": len(c.rounds),
                "failure": c.failure,
                "warnings": [asdict(w) for w in c.warnings],
            }
            for c in result.cases
        ],
        "not_measured": list(result.not_measured),
        "interrupted": result.interrupted,
        "run_file": result.output,
        "duration_s": result.duration_s,
    }


def listing(work: Workload) -> dict[str, Any]:
    """What ``--list`` shows, as plain data."""
    return {"dtype": work.dtype, "cases": [_listed(asdict(c)) for c in work.cases], "not_measured": list(work.not_measured)}


def _listed(record: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, so that a JSON round trip changes nothing."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in record.items()}
