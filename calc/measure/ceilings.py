"""What the device reaches at best: matrix products and memory traffic of one dtype, copies, and the cost of a launch.

Ceilings are searched on a coarse grid of shapes other than the model's; the best of each kind then run in the rounds beside the cases,
so that drift hits prediction and measurement alike and the winner's luck of the search does not enter its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from calc.measure.cases import ELEMENT_BYTES, Case
from calc.measure.records import CaseResult, Ceiling, Interval
from calc.measure.rounds import Bench, State
from calc.measure.sampling import StopRule
from calc.timing.roofline import Ceilings

#: Classes that mostly read weights or KV; the rest reads and writes like a copy.
_READING = ("gemm", "attention")
_UNITS = {"matmul": "flop/s", "read": "byte/s", "read_sum": "byte/s", "copy": "byte/s", "launch": "s", "launch_eager": "s"}
_FINALISTS = 2
WORKING_SET = "set_"
_SEARCH_RULE = StopRule(min_samples=5, min_time_s=0.05, precision=0.02, max_time_s=0.2)


@dataclass(frozen=True, slots=True)
class CeilingPlan:
    """Shapes to try: square matrix products by size, matrix-vector products by (n, k), bytes of one copied or summed operand."""

    matmul_sizes: tuple[int, ...]
    read_shapes: tuple[tuple[int, int], ...]
    copy_bytes: int
    eager_launch: bool = False


CPU_PLAN = CeilingPlan((1024, 1536, 2048, 3072, 4096), ((6144, 5120), (2560, 10240), (10240, 2560)), 64 << 20)
GPU_PLAN = CeilingPlan(
    (2048, 3072, 4096, 6144, 8192, 12288), ((24576, 10240), (10240, 24576), (16384, 15360)), 256 << 20, eager_launch=True
)


def plan_for(kind: str) -> CeilingPlan:
    """The shapes that suit a kind of device."""
    return CPU_PLAN if kind == "cpu" else GPU_PLAN


def candidates(plan: CeilingPlan, dtype: str, taken: Iterable[Case]) -> dict[str, list[Case]]:
    """Cases to try for each ceiling; matrices of a shape that the model itself has are left out."""
    used = {(c.shape["n"], c.shape["k"]) for c in taken if c.op_class == "gemm"}
    element = ELEMENT_BYTES[dtype]
    sizes = [s for s in plan.matmul_sizes if (s, s) not in used] or [plan.matmul_sizes[0] + 128]
    shapes = [s for s in plan.read_shapes if s not in used] or [(plan.read_shapes[0][0] + 128, plan.read_shapes[0][1])]
    elements = plan.copy_bytes // element
    found = {
        "matmul": [_gemm("matmul", dtype, s, s, s) for s in sizes],
        "read": [_gemm("read", dtype, 1, n, k) for n, k in shapes],
        "read_sum": [_case("read_sum", "sum", dtype, {"elements": elements}, 0, elements * element)],
        "copy": [_case("copy", "copy", dtype, {"elements": elements}, 0, 2 * elements * element)],
        "launch": [_case("launch", "empty", dtype, {"elements": 1}, 0, 2 * element)],
    }
    if plan.eager_launch:
        found["launch_eager"] = [_case("launch_eager", "empty", dtype, {"elements": 1}, 0, 2 * element, eager=True)]
    return found


def working_sets(sizes: Iterable[int], dtype: str) -> dict[str, list[Case]]:
    """Reads of one buffer by its bytes, from inside the caches to memory."""
    return {
        f"{WORKING_SET}{size}": [
            _case(f"{WORKING_SET}{size}", "working_set", dtype, {"elements": size // ELEMENT_BYTES[dtype]}, 0, size)
        ]
        for size in sizes
    }


def largest_operand_bytes(cases: Iterable[Case]) -> int:
    """Bytes of the largest matrix or cache that any case rotates over."""
    return max((_operand_bytes(c) for c in cases), default=1 << 20)


def _operand_bytes(case: Case) -> int:
    shape, element = case.shape, ELEMENT_BYTES[case.dtype]
    if "k" in shape:
        return int(shape["n"] * shape["k"] * shape.get("copies", shape.get("active", 1)) * element)
    if case.kernel == "attention":
        return int(shape["b"] * shape["kv"] * shape["hkv"] * (shape["d"] + shape["dv"]) * element)
    if case.op_class == "recurrent":
        sizes = [
            shape.get(k, 1)
            for k in ("sequences", "heads", "head_dim", "state", "key_head_dim", "value_head_dim", "channels", "kernel")
        ]
        return int(math.prod(sizes) * element)
    if "elements" in shape:
        return int(2 * shape["elements"] * element)
    return int(shape.get("m", 1) * shape.get("n", 1) * element)


def search(bench: Bench, groups: dict[str, list[Case]], limit_s: float) -> list[State]:
    """Try every candidate for a moment within ``limit_s`` seconds and keep the best two of each kind for the rounds. A kind's first
    candidate is tried whatever the limit; larger ones are left out once the time is spent."""
    kept: list[State] = []
    deadline = bench.clock.now() + limit_s
    quick = Bench(bench.runner, bench.clock, bench.monitor, bench.random, _SEARCH_RULE, bench.progress)
    for name, cases in groups.items():
        tried: list[State] = []
        for case in cases:
            if tried and bench.clock.now() + 4 * tried[-1].call_s > deadline:
                break
            state = State(case)
            quick.first_timing(state)
            if state.failure is None and len(cases) > 1:
                quick.visit(state, -1, min(0.3, max(0.0, deadline - bench.clock.now())))
            tried.append(state)
        living = [s for s in tried if s.failure is None]
        living.sort(key=lambda s: _rate(s.case, name, s.call_s), reverse=True)
        for state in living[_FINALISTS:]:
            if state.timed is not None:
                state.timed.close()
        kept += living[:_FINALISTS] or tried[:1]
    for state in kept:
        state.rounds.clear()  # the search chose by luck, too: values come from the rounds alone
    return kept


def collect(results: Iterable[CaseResult]) -> tuple[Ceiling, ...]:
    """The best of each kind by its median over the rounds."""
    best: dict[str, Ceiling] = {}
    for result in results:
        if result.time_s is None or result.minimum_s is None:
            continue
        name = result.case.operation
        if name not in _UNITS:
            continue
        times = (result.time_s, result.minimum_s, *(result.interval_s or ()))
        values = [t if _UNITS[name] == "s" else _rate(result.case, name, t) for t in times]
        interval: Interval | None = (min(values[2:]), max(values[2:])) if values[2:] else None
        found = Ceiling(name, result.case.dtype, _UNITS[name], values[0], values[1], interval, result.case.id, result.status)
        if name not in best or (found.value > best[name].value and found.unit != "s"):
            best[name] = found
    return tuple(best[name] for name in _UNITS if name in best)


def as_roofline(ceilings: Iterable[Ceiling], op_class: str, launches: int = 1, *, pick: str = "value") -> Ceilings | None:
    """Ceilings for the prediction of one operator class: the matrix-vector rate for what reads weights or KV, the copy rate for the
    rest, and the cost of ``launches`` launches. ``pick`` is value, low or high (ends of the interval). None while one is unknown."""
    by_name = {c.name: c for c in ceilings}
    matmul, read, copy = (by_name.get(n) for n in ("matmul", "read", "copy"))
    traffic = read if op_class in _READING else copy or read
    if matmul is None or traffic is None:
        return None
    launch = by_name.get("launch")
    return Ceilings(
        name="measured here",
        peaks={matmul.dtype: _picked(matmul, pick)},
        bandwidth=_picked(traffic, pick),
        launch_s=launches * launch.value if launch else 0.0,
    )


def as_floor(ceilings: Iterable[Ceiling]) -> Ceilings | None:
    """The fastest samples of any kernel: what nothing on this device should beat."""
    found = list(ceilings)
    peaks = {c.dtype: c.best for c in found if c.name == "matmul"}
    rates = [c.best for c in found if c.unit == "byte/s"]
    return Ceilings("measured here, best", peaks, max(rates)) if peaks and rates else None


def _picked(ceiling: Ceiling, pick: str) -> float:
    if pick == "value" or ceiling.interval is None:
        return ceiling.value
    return ceiling.interval[0] if pick == "low" else ceiling.interval[1]


def _rate(case: Case, name: str, time_s: float) -> float:
    return (case.flops if name == "matmul" else case.bytes) / max(time_s, 1e-12)


def _gemm(name: str, dtype: str, m: int, n: int, k: int) -> Case:
    traffic = (m * k + n * k + m * n) * ELEMENT_BYTES[dtype]
    return _case(name, "gemm", dtype, {"m": m, "n": n, "k": k}, 2 * m * n * k, traffic)


def _case(name: str, kernel: str, dtype: str, shape: dict[str, int], flops: int, traffic: int, **parameters: bool) -> Case:
    sizes = "/".join(f"{key}{value}" for key, value in shape.items())
    return Case(f"ceiling:{name}/{sizes}/{dtype}", name, "ceiling", "ceiling", kernel, shape, dtype, flops, traffic, 1, parameters)
