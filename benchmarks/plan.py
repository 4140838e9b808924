"""How long a plan takes: eight kinds of device, up to 64 GPUs, as a function call and as a whole process.

    python -m benchmarks.plan [--check]

Seconds are wall time; processor seconds, which a busy machine does not change, stand beside them. A case holds if either is within its
bar.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

HARDWARE = (
    "h100-sxm5-80gb", "h200-sxm-141gb", "mi300x", "a100-sxm4-80gb", "b200-sxm", "l40s", "gh200-96gb", "rtx-pro-6000-blackwell-server",
)  # fmt: skip
ASK = (
    "--input-len", "2048", "--output-len", "256", "--request-rate", "10", "--ttft-slo", "2s", "--tpot-slo", "50ms", "--json",
)  # fmt: skip
CASES = (("llama-3.1-70b", 3.0), ("deepseek-v3", 6.0))


def search(model: str) -> tuple[float, float, int]:
    """Wall and processor seconds of the search itself, profiles loaded, and the deployments looked at."""
    import calc
    from calc.serving.load.objectives import Demand, Objectives
    from calc.serving.load.traffic import uniform
    from calc.serving.plan.search import Question, plan

    hardware = tuple(calc.load_hardware(name) for name in HARDWARE)
    question = Question(calc.load_model(model), hardware, uniform(2048, 256), Objectives(2.0, 0.05), Demand(10.0))
    wall, busy = time.perf_counter(), time.process_time()
    found = plan(question)
    return time.perf_counter() - wall, time.process_time() - busy, found.counts.examined


def process(model: str) -> float:
    """Wall seconds of the command."""
    command = [
        sys.executable,
        "-c",
        "from calc.commands import main; main()",
        "plan",
        model,
        "--hardware",
        ",".join(HARDWARE),
        *ASK,
    ]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Print the figures; with ``--check`` exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Seconds of a plan.")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    arguments = parser.parse_args()
    missed = False
    for model, bar in CASES:
        wall, busy, examined = search(model)
        whole = process(model)
        held = min(whole, busy) <= bar
        missed |= not held
        print(
            f"{model:15} {examined:>5} deployments  search {wall:5.2f} s ({busy:5.2f} s of processor)  command {whole:5.2f} s  "
            f"(at most {bar:g} s) {'held' if held else 'missed'}",
            flush=True,
        )
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
