"""How fast a sweep is evaluated, output apart: capacity and both phases of every point.

    python -m benchmarks.sweep [--check] [--quick]

Each case runs in a process of its own. ``points/s`` is what the wall clock says; ``per core`` is points over processor seconds, which a
busy machine does not change. The bars are for two cores: a case holds if either reaches it (per core times two).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

from calc.units import MIB

CORES = 2
MEMORY_BAR_BYTES = 1.5e9


@dataclass(frozen=True)
class Case:
    """A model on eight devices; ranges of batch size, prompt and output; points per second that are asked of two cores."""

    name: str
    model: str
    device: str
    batch: range
    prompt: range
    output: range
    bar: float

    @property
    def points(self) -> int:
        """Size of the cross product."""
        return len(self.batch) * len(self.prompt) * len(self.output)


_THREE = (range(1, 257), range(128, 2176, 32), range(16, 1040, 16))
_TWO = (range(1, 513), range(1, 4097, 4), range(256, 257))
CASES = (
    Case("dense, 3 axes", "llama-3.1-70b", "h100-sxm5-80gb", *_THREE, 1e6),
    Case("dense, 2 axes", "llama-3.1-70b", "h100-sxm5-80gb", *_TWO, 1e6),
    Case("latent, 3 axes", "deepseek-v3", "h200-sxm-141gb", *_THREE, 3e5),
    Case("latent, 2 axes", "deepseek-v3", "h200-sxm-141gb", *_TWO, 3e5),
    Case("dense, 10^7", "llama-3.1-70b", "h100-sxm5-80gb", range(1, 513), range(128, 5128, 8), range(64, 2112, 64), 1e6),
)


def evaluate(case: Case) -> dict[str, float]:
    """Wall and processor seconds of a case, and the peak memory of the process."""
    import calc
    from calc.serving.deployment import DeploymentOptions
    from calc.serving.sweep.grid import Sweep, WorkAxes

    deployment = calc.deploy(case.model, case.device, DeploymentOptions(tensor_parallel_size=8))
    sweep = Sweep(deployment)
    sweep.columns(WorkAxes(range(1, 3)))  # imports and caches
    wall, busy = time.perf_counter(), time.process_time()
    points = sum(len(part["fits"]) for part in sweep.parts(WorkAxes(case.batch, case.prompt, case.output)))
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    assert points == case.points
    return {"wall_s": wall, "busy_s": busy, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0}


def main() -> int:
    """Print the figures; with ``--check`` exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Points per second of sweeps.")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--quick", action="store_true", help="leave out the sweep of 10^7 points")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        print(json.dumps(evaluate(CASES[arguments.case])))
        return 0
    missed = False
    for number, case in enumerate(CASES[: 4 if arguments.quick else None]):
        command = [sys.executable, "-m", "benchmarks.sweep", "--case", str(number)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rate, per_core = case.points / found["wall_s"], case.points / found["busy_s"]
        held = max(rate, CORES * per_core) >= case.bar and found["peak_bytes"] <= MEMORY_BAR_BYTES
        missed |= not held
        print(
            f"{case.name:15} {case.points:>11,} points  {rate:>12,.0f} points/s  {per_core:>12,.0f} per core  "
            f"{found['peak_bytes'] / MIB:>6,.0f} MiB  (at least {case.bar:,.0f} on {CORES} cores) {'held' if held else 'missed'}",
            flush=True,
        )
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
