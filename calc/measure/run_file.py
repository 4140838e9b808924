"""The run file, ``roofcast.run/1``: everything measured, raw samples included, as JSON. Written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calc import files
from calc.errors import ProfileError
from calc.measure.records import CaseResult, Ceiling, Notice, PhaseSummary, Round, Row
from calc.profiles import reader

SCHEMA = "roofcast.run/1"
#: A full suite with all samples is some ten megabytes.
MAX_RUN_BYTES = 256 << 20
_NOT_A_NUMBER, _TOO_LONG = re.compile(r"(?<=[\[,:])\s*(?:NaN|-?Infinity)\b"), re.compile(r"\d{4000}")
#: Half of a pair of escapes: no text, which nothing could write again.
_HALF_A_SIGN = re.compile(r"(?<!\\)(?:\\\\)*(\\ud[89ab]\w\w(?!\\ud[c-f])|(?<!\\ud[89ab]\w\w)\\ud[c-f]\w\w)", re.IGNORECASE)


def document(
    *,
    model: dict[str, Any],
    environment: dict[str, Any],
    settings: dict[str, Any],
    monitor: dict[str, Any],
    ceilings: Iterable[Ceiling],
    ceiling_cases: Iterable[CaseResult],
    cases: Iterable[CaseResult],
    not_measured: Iterable[str],
    warnings: Iterable[Notice],
    complete: bool,
    hardware: dict[str, Any] | None = None,
    rows: Iterable[Row] = (),
    phases: Iterable[PhaseSummary] = (),
    noisy: Iterable[str] = (),
) -> dict[str, Any]:
    """The run as plain data: SI base units, unrounded, null for unknown. ``complete`` False: the run ended early or goes on.
    ``noisy`` says why the run as a whole is. ``hardware`` holds the datasheet's rates; ``rows`` are the operators with their
    predictions, so that fit and report need no more than the file.

    ``ceilings`` hold one product per type (``matmul``, ``matmul_fp8``, ``matmul_int8``), the two thermal states of the plain one
    (``kind.thermal``), and what could not be tried, failed with its reason. ``parameters.tried`` of the best product lists all shapes
    that were tried as [m, n, k, FLOP/s]. ``settings.weight_formats`` are the quantised formats by tensor role. A case id ends in
    ``/zipf<exponent>`` where experts are drawn with a skew."""
    by_id = {c.case_id: c for c in ceilings}
    return {
        "schema": SCHEMA,
        "complete": complete,
        "model": model,
        "environment": environment,
        "settings": settings,
        "monitor": monitor,
        "ceilings": [_ceiling(r, by_id.get(r.case.id)) for r in ceiling_cases],
        "cases": [_case(r) for r in cases],
        "hardware": hardware,
        "operators": [asdict(r) for r in rows],
        "phases": [asdict(p) for p in phases],
        "not_measured": list(not_measured),
        "noisy": list(noisy),
        "warnings": [asdict(w) for w in warnings],
    }


def digest(run: dict[str, Any]) -> str:
    """A hash of everything but itself: a file that was edited by hand no longer matches."""
    text = json.dumps({k: v for k, v in run.items() if k != "digest"}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write(run: dict[str, Any], path: Path) -> None:
    """Replace the file in one step: a full disk or an interrupt leaves the last good one. Raises UsageError."""
    files.write(path, (json.dumps(run | {"digest": digest(run)}, allow_nan=False, indent=1) + "\n").encode())


def content(path: Path) -> bytes:
    """The bytes of a run file. Raises ProfileError for what is no regular file of at most ``MAX_RUN_BYTES``."""
    return reader.read_bytes(path, MAX_RUN_BYTES, "`roofcast measure` writes run files with -o")


def parsed(raw: bytes, path: Path) -> dict[str, Any]:
    """A run file as data. Raises ProfileError, with file:line:column, for what is no JSON or no run file of a known schema."""
    run = _parsed(raw, path)
    if not isinstance(run, dict) or run.get("schema") != SCHEMA:
        found = run.get("schema") if isinstance(run, dict) else None
        if isinstance(found, str) and found.startswith(SCHEMA.rpartition("/")[0] + "/"):
            raise ProfileError(f"{path}: schema: {found!r} is of another version", f"this one reads {SCHEMA}; update roofcast")
        shown = "" if found is None else f": schema {str(found)[:60]!r}"
        raise ProfileError(f"{path} is no run file{shown}", f"`roofcast measure` writes them with -o; this version reads {SCHEMA}")
    return run


class _NotANumber(ValueError):
    """Python's parser would take NaN and Infinity for numbers."""


def _refuse(word: str) -> None:
    raise _NotANumber(f"{word} is no number")


def _parsed(raw: bytes, path: Path) -> Any:
    try:
        text = raw.decode("utf-8")
        run = json.loads(text, parse_constant=_refuse)
        half = _HALF_A_SIGN.search(text) if "\\ud" in text or "\\uD" in text else None
        if half is None:
            return run
        place, why = text[: half.start(1)], f"{half[1]} is half a sign"
    except UnicodeDecodeError as fault:
        place, why = raw[: fault.start].decode(), "not UTF-8"
    except json.JSONDecodeError as fault:
        place, why = text[: fault.pos], fault.msg
    except RecursionError:
        place, why = "", "nested too deeply"
    except ValueError as fault:  # NaN and its like, or an integer of thousands of digits: neither comes with a place
        found = (_NOT_A_NUMBER if isinstance(fault, _NotANumber) else _TOO_LONG).search(text)
        place = text[: found.start() if found else 0]
        why = str(fault) if isinstance(fault, _NotANumber) else "a number with too many digits"
    line, column = place.count("\n") + 1, len(place) - place.rfind("\n")
    raise ProfileError(
        f"{path}:{line}:{column}: no run file: {why}", "a truncated or edited run file cannot be used; measure again"
    )


def _ceiling(result: CaseResult, best: Ceiling | None) -> dict[str, Any]:
    """A ceiling with the kernel that gave it; ``chosen`` marks the best of its kind."""
    return {
        "name": result.case.operation,
        "dtype": result.case.dtype,
        "chosen": best is not None,
        "value": best.value if best else None,
        "best": best.best if best else None,
        "unit": best.unit if best else None,
        "value_interval": list(best.interval) if best and best.interval else None,
        **{k: v for k, v in _case(result).items() if k not in ("phase", "operation", "class", "calls_per_step")},
    }


def _case(result: CaseResult) -> dict[str, Any]:
    case = result.case
    return {
        "id": case.id,
        "operation": case.operation,
        "class": case.op_class,
        "phase": case.phase,
        "shape": case.shape,
        "parameters": case.parameters,
        "parts": [[part.id, calls] for part, calls in case.parts],
        "dtype": case.dtype,
        "tensor_parallel_size": case.tensor_parallel_size,
        "calls_per_step": case.calls,
        "kind": {"cache": result.cache, "launch": result.launch, "thermal": case.parameters.get("thermal", "sustained")},
        "kernel": result.kernel,
        "launches": result.launches,
        "timer": result.timer,
        "repeats_per_sample": result.repeats_per_sample,
        "operand_copies": result.operand_copies,
        "flops": case.flops,
        "bytes": case.bytes,
        "rounds": [_round(r) for r in result.rounds],
        "time_s": result.time_s,
        "interval_s": _list(result.interval_s),
        "interval_method": "t-log-rounds" if result.interval_s else None,
        "sample_interval_s": _list(result.sample_interval_s),
        "minimum_s": result.minimum_s,
        "quartiles_s": _list(result.quartiles_s),
        "p95_s": result.p95_s,
        "flops_per_s": result.rate_flops_per_s,
        "bytes_per_s": result.rate_bytes_per_s,
        "cycles": result.cycles,
        "energy_per_call_j": result.energy_per_call_j,
        "labels": list(result.labels),
        "status": result.status,
        "failure": result.failure,
        "warnings": [asdict(w) for w in result.warnings],
    }


def _round(taken: Round) -> dict[str, Any]:
    lists = {"samples_s": list(taken.samples_s), "preempted_s": list(taken.preempted_s)}
    return asdict(taken) | lists | {"median_s": taken.median_s, "quiet": taken.quiet}


def _list(pair: tuple[float, float] | None) -> list[float] | None:
    return None if pair is None else list(pair)
