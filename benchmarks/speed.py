"""Scores the speed model against published measurements.

    python -m benchmarks.speed [--records FILE] [--cross-validate cell|device|model|engine] [--write-docs]

Predicts every record from its configuration alone and prints JSON; ``overall`` by kind. Without ``--cross-validate`` the shipped
efficiencies predict, which saw the shipped records; with it, each group is predicted by a fit that did not see it. ``--write-docs``
writes docs/accuracy-speed.md from all four.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed_model import docs, first_token
from benchmarks.speed_model.cases import build
from benchmarks.speed_model.cross_validation import SCHEMES, Prediction, Scheme, cross_validate, predict
from benchmarks.speed_model.regression import Design, fit
from benchmarks.speed_model.score import board
from benchmarks.speed_model.spellings import SPEEDS, records
from calc.profiles.efficiency import EffectFile
from calc.timing.efficiency import effect_files

_ROUNDS, _POLISH = 12, 8


def scoreboard(path: Path = SPEEDS, scheme: Scheme | None = None) -> dict[str, Any]:
    """The scoreboard of a file of records."""
    cases, skipped = build(records(path))
    files = effect_files()
    usable = [case for case in cases if not case.is_suspect]
    suspects = [case.id for case in cases if case.is_suspect]
    if scheme is None:
        predictions = [predict(case, files) for case in usable]
    else:
        usable = [case for case in usable if case.is_scored]
        predictions = _without_its_group(usable, scheme, files)
    return board(predictions, skipped, suspects)


def _without_its_group(cases: list[Any], scheme: Scheme, files: dict[str, EffectFile]) -> list[Prediction]:
    design = Design(cases)
    whole = fit(design, start=fit(design, rounds=_ROUNDS), steps=_POLISH)
    return cross_validate(cases, design, whole, scheme, files["shared"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scoreboard, or write the page. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=SPEEDS)
    parser.add_argument("--cross-validate", choices=SCHEMES)
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args(arguments)
    if options.write_docs:
        boards: dict[str, Any] = {s: scoreboard(options.records, s) for s in SCHEMES}
        docs.PAGE.write_text(docs.page(boards, first_token.section(records(options.records))), encoding="utf-8")
        print(docs.PAGE)
        return 0
    print(json.dumps(scoreboard(options.records, options.cross_validate), indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
