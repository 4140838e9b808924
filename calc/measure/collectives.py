"""Collectives between local devices, one process each:

    torchrun --standalone --nproc-per-node N -m calc.measure.collectives [-o FILE] [--merge RUN]

nccl on GPUs, gloo on CPUs. With --merge the messages of that run's model are measured too. A rank's value is the median of its samples,
the case's the largest over ranks. Rates as nccl-tests defines them (doc/PERFORMANCE.md): algbw = bytes / time, busbw = algbw x the
share of the bytes that cross a link. Only rank 0 writes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from calc import files
from calc.errors import RoofcastError
from calc.measure import run_file, run_reader
from calc.measure.fitting import link_law
from calc.measure.kernels.torch_module import require_torch
from calc.measure.statistics import log_interval, median
from calc.operators.operator import sent_share

SCHEMA = "roofcast.collectives/1"
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send")
#: What "bytes" is: the tensor that each rank holds, or the one that all of them make together.
BYTES_ARE = {
    "all-reduce": "per rank",
    "all-gather": "total",
    "reduce-scatter": "total",
    "all-to-all": "per rank",
    "send": "per rank",
}
#: Products whose partial sums the ranks add up (calc.operators names them so).
ROW_PARALLEL = ("o_proj", "out_proj", "output", "down_proj")
_ROUNDS, _SAMPLES = 5, 7
_BLOCK_S = 1e-3
_ELEMENT_BYTES = 2


def sizes(largest: int, messages: Iterable[int] = ()) -> list[int]:
    """1 KiB to ``largest`` bytes in factors of 4, and the model's own messages."""
    found, size = [], 1 << 10
    while size <= largest:
        found.append(size)
        size *= 4
    return sorted({*found, *messages})


def messages_of(run: dict[str, Any]) -> list[int]:
    """Bytes that tensor parallelism reduces after attention and after the feed-forward part, in both phases of a run: the results of
    the products that it splits by rows, in 16 bit."""
    shapes = [o["shape"] for o in run["operators"] if o["operation"] in ROW_PARALLEL]
    return sorted({_ELEMENT_BYTES * round(s["m"] * s["n"]) for s in shapes if {"m", "n"} <= s.keys()})


def main(arguments: list[str] | None = None) -> int:
    """Entry point of every rank."""
    parser = argparse.ArgumentParser(prog="calc.measure.collectives", description="Time collectives between local devices.")
    parser.add_argument("-o", "--output", type=Path, help="write the results (JSON) here")
    parser.add_argument("--merge", type=Path, metavar="RUN", help="put the results into this run file")
    parser.add_argument("--largest", type=int, default=1 << 26, help="largest message in bytes")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    asked = parser.parse_args(arguments)
    if "RANK" not in os.environ:
        print("error: start it with torchrun --standalone --nproc-per-node N -m calc.measure.collectives", file=sys.stderr)
        return 2
    if os.environ.get("WORLD_SIZE") == "1":  # a message to nobody would wait for ever
        print("error: one process has nobody to send to: give torchrun --nproc-per-node 2 or more", file=sys.stderr)
        return 2
    first = int(os.environ["RANK"]) == 0
    try:
        # Before minutes are spent: an edited run must not be signed anew, and both files must be writable.
        run = run_reader.load(asked.merge)[0] if asked.merge else None
        for path in (asked.merge, asked.output) if first else ():
            if path:
                files.check_writable(path)
        found = _measure(require_torch(), messages_of(run) if run else [], asked.largest, asked.rounds)
        if first and run:
            run_file.write(run | {"collectives": found}, asked.merge)
        if first and asked.output:
            run_file.write(found, asked.output)
    except RoofcastError as fault:
        if first:  # the others say the same
            print(f"error: {fault.message}", *([f"hint: {fault.hint}"] if fault.hint else []), sep="\n", file=sys.stderr)
        return fault.exit_code
    if first and not (asked.output or asked.merge):
        print(json.dumps(found, indent=1))
    return 0


def _measure(torch: Any, messages: list[int], largest: int, rounds: int) -> dict[str, Any]:
    distributed = torch.distributed
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "nccl" if cuda else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(seconds=120))
    try:
        ranks = distributed.get_world_size()
        cases = [_case(torch, kind, size, device, rounds) for size in sizes(largest, messages) for kind in KINDS]
        return {
            "schema": SCHEMA,
            "backend": backend,
            "ranks": ranks,
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "torch": str(torch.__version__),
            "model_message_bytes": messages,
            "cases": cases,
            "laws": laws(cases),
        }
    finally:
        distributed.destroy_process_group()


def laws(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Latency and bandwidth (bytes as the kind counts them, over time) of each kind, piece by piece."""
    return [
        {"kind": kind, **asdict(piece)}
        for kind in KINDS
        for piece in link_law.pieces([(c["bytes"], c["time_s"]) for c in cases if c["kind"] == kind and c["time_s"]])
    ]


def _case(torch: Any, kind: str, size: int, device: str, rounds: int) -> dict[str, Any]:
    """One collective at one size, rounded down to whole 16-bit elements of each rank; the same number of calls on every rank."""
    distributed, ranks = torch.distributed, torch.distributed.get_world_size()
    elements = max(1, size // _ELEMENT_BYTES // ranks) * ranks
    size = elements * _ELEMENT_BYTES
    record: dict[str, Any] = {
        "id": f"collective:{kind}/b{size}/r{ranks}",
        "kind": kind,
        "bytes": size,
        "bytes_are": BYTES_ARE[kind],
    }
    try:
        call = _call(torch, kind, elements, device)
        call()
    except (RuntimeError, NotImplementedError, AttributeError) as fault:  # gloo lacks some kinds
        return record | {"status": "failed", "time_s": None, "failure": (str(fault).splitlines() or ["not available"])[0][:200]}
    timer = _event_sample if device.startswith("cuda") else _wall_sample
    once = torch.tensor([timer(torch, call, 1)], dtype=torch.float64, device=device)
    distributed.all_reduce(once, distributed.ReduceOp.MAX)
    repeats = max(1, min(200, int(_BLOCK_S / max(float(once[0]), 1e-7))))
    values = []
    for _ in range(rounds):
        taken = []
        for _ in range(_SAMPLES):
            distributed.barrier()
            taken.append(timer(torch, call, repeats))
        slowest = torch.tensor([median(taken)], dtype=torch.float64, device=device)
        distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
        values.append(float(slowest[0]))
    time_s, interval = log_interval(values)
    rate = size / time_s
    return record | {
        "status": "ok",
        "time_s": time_s,
        "interval_s": list(interval) if interval else None,
        "interval_method": "t-log-rounds, largest over ranks",
        "round_values_s": values,
        "repeats_per_sample": repeats,
        "algbw_bytes_per_s": rate,
        "busbw_bytes_per_s": rate * sent_share(kind, ranks),
        "failure": None,
    }


def _call(torch: Any, kind: str, elements: int, device: str) -> Callable[[], Any]:
    """A call on random 16-bit numbers."""
    distributed, ranks, rank = torch.distributed, torch.distributed.get_world_size(), torch.distributed.get_rank()
    whole = torch.randn(elements, device=device).to(torch.bfloat16)
    part = torch.randn(elements // ranks, device=device).to(torch.bfloat16)
    out = torch.empty_like(whole)
    if kind == "all-reduce":
        return lambda: distributed.all_reduce(whole)
    if kind == "all-gather":
        return lambda: distributed.all_gather_into_tensor(out, part)
    if kind == "reduce-scatter":
        return lambda: distributed.reduce_scatter_tensor(part, whole)
    if kind == "all-to-all":
        return lambda: distributed.all_to_all_single(out, whole)

    def send() -> None:
        """From rank 0 to rank 1; further ranks wait for the next barrier."""
        if rank == 0:
            distributed.send(whole, 1)
        elif rank == 1:
            distributed.recv(out, 0)

    return send


def _wall_sample(_torch: Any, call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(repeats):
        call()
    return (time.perf_counter_ns() - start) / 1e9 / repeats


def _event_sample(torch: Any, call: Callable[[], Any], repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats


if __name__ == "__main__":
    sys.exit(main())
