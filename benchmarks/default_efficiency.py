"""Where the default efficiency factors come from: recomputes them from published single-device measurements.

    python -m benchmarks.default_efficiency [--check]

A record states its floor time over its measured time (``roofline.achieved_fraction``). Rows that are suspect or ran on several devices
are left out. Prefill rows whose floor is compute-bound give ``compute``, decode rows whose floor is memory-bound give ``bandwidth``; the
10th, 50th and 90th percentile are the low, expected and high factor. ``--check`` compares them with the file that ships.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from calc.profiles.efficiency import Spread
from calc.timing.efficiency import load_efficiency

RECORDS = Path(__file__).resolve().parent / "records" / "measured_speed.yaml"
PERCENTILES = (10, 50, 90)
#: factor → (kind of record, bound of its floor)
SELECTION = {"compute": ("prefill", "compute"), "bandwidth": ("decode", "memory")}
#: The file keeps three decimals.
TOLERANCE = 0.0011


def records(path: Path = RECORDS) -> list[dict[str, Any]]:
    """All records of the file."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loaded: list[dict[str, Any]] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return loaded


def fractions(rows: list[dict[str, Any]], kind: str, bound: str) -> list[float]:
    """Floor over measured time of the rows that count."""
    found = []
    for row in rows:
        roofline = row.get("roofline") or {}
        share = roofline.get("achieved_fraction")
        if (
            row["kind"] == kind
            and row.get("gpu_count") == 1
            and not row.get("suspect")
            and roofline.get("bound") == bound
            and share
        ):
            found.append(float(share))
    return found


def factors(rows: list[dict[str, Any]]) -> dict[str, Spread]:
    """The factors that the records give."""
    import numpy as np

    result = {}
    for name, (kind, bound) in SELECTION.items():
        values = fractions(rows, kind, bound)
        low, expected, high = (float(v) for v in np.percentile(values, PERCENTILES))
        result[name] = Spread(low=low, expected=expected, high=high, n=len(values))
    return result


def differences(found: dict[str, Spread]) -> list[str]:
    """Where the file that ships says something else."""
    shipped = load_efficiency().profile.factors[0]
    said = []
    for name, spread in found.items():
        kept: Spread = getattr(shipped, name)
        if spread.n != kept.n:
            said.append(f"{name}: {spread.n} records, the file says {kept.n}")
        for part in ("low", "expected", "high"):
            new, old = getattr(spread, part), getattr(kept, part)
            if abs(new - old) > TOLERANCE:
                said.append(f"{name}.{part}: {new:.4f}, the file says {old:g}")
    return said


def main() -> int:
    """Print the factors; with ``--check`` exit 1 where the file differs."""
    parser = argparse.ArgumentParser(description="Default efficiency factors from published records.")
    parser.add_argument("--check", action="store_true", help="exit 1 when the shipped file differs")
    arguments = parser.parse_args()
    found = factors(records())
    for name, spread in found.items():
        print(f"{name:10} low {spread.low:.3f}  expected {spread.expected:.3f}  high {spread.high:.3f}  n {spread.n}")
    said = differences(found)
    for line in said:
        print(line)
    if not said:
        print("the shipped file agrees")
    return 1 if said and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
