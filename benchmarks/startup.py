"""How long the command line takes to answer: whole processes, against a trivial one-command program on the same typer.

    python -m benchmarks.startup [--runs N] [--check]

``--help`` is held against the trivial program's own ``--help``, ``estimate --json`` against the trivial command's answer: typer needs
more time to parse a command than to print help. Runs are interleaved, so that a busy moment hits all alike; medians are compared.
Every process finds its modules compiled, as after an installation: bytecode goes to a folder of the benchmark's own, filled by a round
that is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from calc.units import format_seconds

TRIVIAL = """\
import typer

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command()
def hello(name: str = "world") -> None:
    print("hello", name)


app()
"""
ROOFCAST = "import sys; from calc.commands import main; main()"
QUESTION = ["estimate", "llama-3.1-8b", "h100-sxm5-80gb", "--json"]

#: (name, baseline, most that the ratio may be)
BARS = (("roofcast --help", "trivial --help", 1.6), ("roofcast estimate --json", "trivial command", 2.2))


def commands(trivial: Path) -> dict[str, list[str]]:
    """Every process that is timed."""
    python = sys.executable
    return {
        "bare interpreter": [python, "-c", "pass"],
        "trivial --help": [python, str(trivial), "--help"],
        "trivial command": [python, str(trivial)],
        "roofcast --help": [python, "-c", ROOFCAST, "--help"],
        "roofcast --version": [python, "-c", ROOFCAST, "--version"],
        "roofcast estimate --json": [python, "-c", ROOFCAST, *QUESTION],
    }


def measure(runs: int) -> dict[str, float]:
    """Median seconds of each process over ``runs`` interleaved rounds, after one that fills the caches."""
    with tempfile.TemporaryDirectory() as folder:
        trivial = Path(folder) / "trivial.py"
        trivial.write_text(TRIVIAL, encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"COLUMNS": "80", "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        seconds: dict[str, list[float]] = {}
        for round_number in range(runs + 1):
            for name, command in commands(trivial).items():
                start = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
                if round_number:
                    seconds.setdefault(name, []).append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> int:
    """Print the times and the ratios; with ``--check`` exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Start-up times of the command line.")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    arguments = parser.parse_args()
    medians = measure(arguments.runs)
    for name, value in medians.items():
        print(f"{name:26} {format_seconds(value):>8}")
    missed = False
    for name, baseline, bar in BARS:
        ratio = medians[name] / medians[baseline]
        missed |= ratio > bar
        print(f"{name} / {baseline}: {ratio:.2f} (at most {bar}) {'missed' if ratio > bar else 'held'}")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
