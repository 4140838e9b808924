"""How long the arithmetic takes: one estimate, and a grid of decode steps in one evaluation; and the reading of configs and profiles.

    python -m benchmarks.evaluation [--check]

The grid is 1,000 batch sizes x 1,000 contexts of a 70B model on eight devices, through the same function that answers one step. It runs
in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from calc.units import MIB

MODEL, LARGE_MODEL, DEVICE = "llama-3.1-8b", "llama-3.1-70b", "h100-sxm5-80gb"
ESTIMATE_BAR_S = 2e-3
GRID_BAR_S = 2.0
GRID_BAR_BYTES = 1.5e9
IMPORT_BAR_S, CHECK_BAR_S = 5e-3, 10e-3  # a config.json, a profile
SIDE = 1000


def one_estimate(rounds: int = 5, repeats: int = 60) -> tuple[float, float]:
    """Seconds of an estimate with everything loaded, and of settling the deployment before it: medians of the quietest round."""
    import calc
    from calc.serving.deployment import DeploymentOptions, resolve
    from calc.serving.request import Workload

    model, hardware = calc.load_model(MODEL), calc.load_hardware(DEVICE)
    workload = Workload(batch_size=16, input_len=2048, output_len=256)
    deployment = resolve(model, hardware, DeploymentOptions())
    medians = []
    for _ in range(rounds):
        estimates, settled = [], []
        for _ in range(repeats):
            start = time.perf_counter()
            calc.estimate_deployment(deployment, workload)
            middle = time.perf_counter()
            resolve(model, hardware, DeploymentOptions())
            estimates.append(middle - start)
            settled.append(time.perf_counter() - middle)
        medians.append((statistics.median(estimates), statistics.median(settled)))
    return min(medians)


def grid() -> tuple[float, int, dict[str, Any]]:
    """Seconds and points of the grid, and its corners: the first evaluation of the process, import of numpy apart."""
    import numpy as np

    import calc
    from calc.operators import work
    from calc.serving.deployment import DeploymentOptions
    from calc.serving.phase import evaluate

    deployment = calc.deploy(LARGE_MODEL, DEVICE, DeploymentOptions(tensor_parallel_size=8))
    batch = np.arange(1, SIDE + 1)[:, None]
    context = np.linspace(128, 131072, SIDE).astype(np.int64)[None, :]
    start = time.perf_counter()
    phase = evaluate(deployment, work.decode(batch, context))
    expected = phase.time_s.expected
    rates = phase.tokens_per_s.expected
    seconds = time.perf_counter() - start
    assert isinstance(expected, np.ndarray)
    assert isinstance(rates, np.ndarray)
    assert expected.shape == (SIDE, SIDE)
    # The corners are held against the same step evaluated with plain numbers.
    for i, j in ((0, 0), (0, SIDE - 1), (SIDE - 1, 0), (SIDE - 1, SIDE - 1)):
        plain = evaluate(deployment, work.decode(int(batch[i, 0]), int(context[0, j]))).time_s.expected
        assert plain is not None
        assert abs(expected[i, j] / plain - 1) < 1e-9
    return seconds, expected.size, {"slowest_s": float(expected.max()), "highest_tokens_per_s": float(rates.max())}


def reading(every: int = 5, repeats: int = 5) -> tuple[float, float]:
    """Seconds of the slowest import of the recorded configs (each at its fastest), and of the check of a shipped profile on average."""
    from benchmarks.models import CONFIGS
    from calc.checks.runner import run_checks
    from calc.profiles.importers.hf_config import import_folder_or_file

    slowest = 0.0
    for path in sorted(CONFIGS.glob("*.json"))[::every]:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            import_folder_or_file(path)
            times.append(time.perf_counter() - start)
        slowest = max(slowest, min(times))
    run_checks([])  # imports and tables are not what is timed
    start = time.perf_counter()
    files = run_checks().files
    return slowest, (time.perf_counter() - start) / files


def _grid_process() -> int:
    seconds, points, _ = grid()
    print(seconds, points, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return 0


def main() -> int:
    """Print the figures; with ``--check`` exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Times of the arithmetic.")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--grid-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.grid_only:
        return _grid_process()
    estimate_s, settle_s = one_estimate()
    command = [sys.executable, "-m", "benchmarks.evaluation", "--grid-only"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    grid_s, points, peak = float(text[0]), int(text[1]), float(text[2])
    import_s, check_s = reading()
    rows = (
        ("one import", f"{import_s * 1e3:.2f} ms", f"{IMPORT_BAR_S * 1e3:g} ms", import_s <= IMPORT_BAR_S),
        ("one check", f"{check_s * 1e3:.2f} ms", f"{CHECK_BAR_S * 1e3:g} ms", check_s <= CHECK_BAR_S),
        ("one estimate", f"{estimate_s * 1e3:.2f} ms", f"{ESTIMATE_BAR_S * 1e3:g} ms", estimate_s <= ESTIMATE_BAR_S),
        ("decode grid", f"{grid_s:.2f} s", f"{GRID_BAR_S:g} s", grid_s <= GRID_BAR_S),
        ("  peak memory", f"{peak / MIB:.0f} MiB", f"{GRID_BAR_BYTES / MIB:.0f} MiB", peak <= GRID_BAR_BYTES),
    )
    for name, value, bar, held in rows:
        print(f"{name:14} {value:>10} (at most {bar}) {'held' if held else 'missed'}")
    print(f"before the estimate, settling the deployment: {settle_s * 1e3:.2f} ms; the grid: {points / grid_s:,.0f} points/s")
    return 0 if all(row[3] for row in rows) or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
