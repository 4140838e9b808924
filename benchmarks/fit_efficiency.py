"""Fits the calibrated efficiencies from published speeds and writes them as data.

    python -m benchmarks.fit_efficiency [--records FILE] [--check] [-o FOLDER]

Every run gives the same figures to five significant digits. ``--check`` compares them with the files that ship and exits 1 when they
differ. The form of the model is in ``benchmarks/speed_model/structure.py``, its terms in ``calc/timing/terms.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.speed_model.calibration import further_noise, lifted, ranges, widened
from benchmarks.speed_model.case import Case, Skipped
from benchmarks.speed_model.cases import build
from benchmarks.speed_model.cross_validation import SCHEMES, Prediction, Scheme, cross_validate
from benchmarks.speed_model.export import export
from benchmarks.speed_model.regression import Design, Fit, fit
from benchmarks.speed_model.spellings import SPEEDS, records
from calc.profiles import catalog
from calc.profiles.efficiency import EffectFile

_ROUNDS, _POLISH = 12, 8
MAX_BYTES = 100_000


@dataclass(frozen=True)
class Fitted:
    """A fit of all scored records, and what it would have said without each group."""

    cases: list[Case]
    skipped: list[Skipped]
    design: Design
    fit: Fit
    predictions: dict[Scheme, list[Prediction]]
    files: dict[str, EffectFile]


def fit_records(path: Path = SPEEDS) -> Fitted:
    """Fit, cross-validate, calibrate. About half a minute."""
    cases, skipped = build(records(path))
    scored = [case for case in cases if case.is_scored]
    design = Design(scored)
    whole = fit(design, rounds=_ROUNDS)
    whole = fit(design, start=whole, steps=_POLISH)
    raw: dict[Scheme, list[Prediction]] = {s: cross_validate(scored, design, whole, s) for s in SCHEMES}
    further = lifted(raw, further_noise(raw), design.kinds)
    predictions = {s: [widened(p, further) for p in rows] for s, rows in raw.items()}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    files = export(design, scored, whole, ranges=ranges(predictions, design.kinds), further=further, sha256=digest)
    return Fitted(cases, skipped, design, whole, predictions, files)


def file_name(identifier: str) -> str:
    """``llama.cpp`` → ``llama-cpp.json``."""
    return identifier.replace(".", "-").replace("/", "-") + ".json"


def text(effects: EffectFile) -> str:
    """An effect file, one effect a line."""
    return _lines(msgspec.to_builtins(effects), 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = ",\n".join(f"{' ' * (depth + 1)}{json.dumps(k, ensure_ascii=False)}: {_lines(v, depth + 1)}" for k, v in value.items())
    return "{\n" + inner + "\n" + " " * depth + "}"


def _differs(one: Any, two: Any) -> bool:
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() != two.keys() or any(_differs(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) != len(two) or any(_differs(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, float) and isinstance(two, float):
        return abs(one - two) > 1.5e-5 * max(abs(one), abs(two), 1e-2)
    return bool(one != two)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=SPEEDS)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=catalog.bundled_folder("hardware") / "efficiency")
    options = parser.parse_args(arguments)
    fitted = fit_records(options.records)
    wrong = []
    for identifier, effects in sorted(fitted.files.items()):
        path, content = options.output / file_name(identifier), text(effects)
        if len(content.encode()) > MAX_BYTES:
            wrong.append(f"{path.name}: {len(content.encode()):,} bytes, at most {MAX_BYTES:,}")
        if options.check:
            shipped = json.loads(path.read_bytes()) if path.is_file() else None
            if _differs(shipped, json.loads(content)):
                wrong.append(f"{path.name}: differs from the fit")
        else:
            path.write_text(content, encoding="utf-8")
            print(f"{path} {len(content.encode()):,} bytes")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
