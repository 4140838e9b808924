"""All records of a file as cases, and those that are not predicted with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.speed_model.case import Case, SkipError, Skipped
from benchmarks.speed_model.kernels import kernel_case
from benchmarks.speed_model.serving import serving_case
from benchmarks.speed_model.steps import step_case

_BUILDERS = {
    "decode": step_case,
    "prefill": step_case,
    "serving": serving_case,
    "gemm": kernel_case,
    "attention": kernel_case,
    "bandwidth": kernel_case,
    "allreduce": kernel_case,
}
KINDS = tuple(_BUILDERS)


def build(records: Iterable[dict[str, Any]]) -> tuple[list[Case], list[Skipped]]:
    """(cases, skipped)."""
    cases: list[Case] = []
    skipped: list[Skipped] = []
    for record in records:
        builder = _BUILDERS.get(str(record.get("kind")))
        try:
            if builder is None:
                raise SkipError(f"unknown kind {record.get('kind')}")
            cases.append(builder(record))
        except SkipError as error:
            skipped.append(Skipped(record, str(error)))
    return cases, skipped
