"""Edits of YAML text that keep comments and lines: a mutation changes one figure as a person would."""

from __future__ import annotations

import re
from pathlib import Path

from calc.checks.finding import Finding
from calc.checks.runner import run_checks
from calc.profiles.catalog import bundled_folder

Value = float | int | str | None


def source(identifier: str) -> str:
    """Text of a bundled hardware profile."""
    return next(bundled_folder("hardware").rglob(f"{identifier}.yaml")).read_text("utf-8")


def edited(text: str, changes: dict[str, Value]) -> str:
    """``text`` with values replaced; keys are dotted (``peak_dense_tflops.bf16``), a missing key is added to its block."""
    for key, value in changes.items():
        written = "null" if value is None else str(value)
        block, _, name = key.rpartition(".")
        if block:
            found = re.search(rf"^{block}:\n(?:(?:[ #].*)?\n)+", text, re.MULTILINE)
            if found:
                body = found[0]
                row = re.compile(rf"^  {name}: .*$", re.MULTILINE)
                new = (
                    row.sub(f"  {name}: {written}", body)
                    if row.search(body)
                    else f"{block}:\n  {name}: {written}\n" + body[len(block) + 2 :]
                )
                text = text.replace(body, new)
            else:
                text += f"{block}:\n  {name}: {written}\n"
        elif re.search(rf"^{name}: .*$", text, re.MULTILINE):
            text = re.sub(rf"^{name}: .*$", f"{name}: {written}", text, flags=re.MULTILINE)
        else:
            text += f"{name}: {written}\n"
    return text


def scaled(text: str, factor: float, *keys: str) -> str:
    """``text`` with figures multiplied."""
    changes: dict[str, Value] = {}
    for key in keys:
        block, _, name = key.rpartition(".")
        body = re.search(rf"^{block}:\n(?:(?:[ #].*)?\n)+", text, re.MULTILINE)[0] if block else text  # type: ignore[index]
        found = re.search(rf"^{'  ' if block else ''}{name}: ([0-9.]+)$", body, re.MULTILINE)
        if found:
            value = float(found[1]) * factor
            changes[key] = round(value) if found[1].isdigit() and value == round(value) else round(value, 4)
    return edited(text, changes)


MATRIX = tuple(
    f"peak_dense_tflops.{d}" for d in ("tf32", "fp16", "fp16_acc16", "bf16", "fp8", "fp8_acc16", "fp6", "fp4", "int8", "int4")
)


def check_text(folder: Path, files: dict[str, str], **options: list[str]) -> list[Finding]:
    """Findings of profiles given as id → text."""
    for identifier, text in files.items():
        (folder / f"{identifier}.yaml").write_text(text, "utf-8")
    return list(run_checks([folder], **options).findings)


def fired(found: list[Finding]) -> set[str]:
    """Ids of the rules that found something."""
    return {f.rule for f in found}
