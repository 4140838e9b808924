"""What the device reaches at best: matrix products and memory traffic of one dtype, copies, and the cost of a launch.

Ceilings are searched on a coarse grid of shapes other than the model's; the best of each kind then run in the rounds beside the cases,
so that drift hits prediction and measurement alike and the winner's luck of the search does not enter its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from calc.measure import thermal
from calc.measure.cases.formats import ELEMENT_BYTES
from calc.measure.cases.operators import Case
from calc.measure.product_shapes import BEST, Shape, neighbours
from calc.measure.records import CaseResult, Ceiling, Interval
from calc.measure.rounds import Bench, State
from calc.measure.sampling import StopRule
from calc.timing.roofline import Ceilings

#: Classes that mostly read weights or KV; the rest reads and writes like a copy.
_READING = ("gemm", "experts", "attention")
#: Products in a plain type, in the two thermal states, and in each quantised type.
_PRODUCTS = ("matmul", *thermal.NAMES, "matmul_fp8", "matmul_int8")
_TRAFFIC = ("read", "read_sum", "write", "copy", "host_to_device", "device_to_host")
_UNITS = dict.fromkeys(_PRODUCTS, "flop/s") | dict.fromkeys(_TRAFFIC, "byte/s") | {"launch": "s", "launch_eager": "s"}
#: Host traffic is no ceiling of the device's own memory.
_LINKS = ("host_to_device", "device_to_host")
_FINALISTS = 2
_REFINE_SHARE = 0.5  # of the time for the search, at the end of which other shapes are no longer tried
WORKING_SET = "set_"
_SEARCH_RULE = StopRule(min_samples=5, min_time_s=0.05, precision=0.02, max_time_s=0.2)


@dataclass(frozen=True, slots=True)
class CeilingPlan:
    """Shapes to try: square matrix products by size, matrix-vector products by (n, k), bytes of one copied or summed operand, and of
    one copied to or from the host (0: the device works in the host's memory)."""

    matmul_sizes: tuple[int, ...]
    read_shapes: tuple[tuple[int, int], ...]
    copy_bytes: int
    eager_launch: bool = False
    host_bytes: int = 0


CPU_PLAN = CeilingPlan((1024, 1536, 2048, 3072, 4096), ((6144, 5120), (2560, 10240), (10240, 2560)), 64 << 20)
GPU_PLAN = CeilingPlan(
    (2048, 3072, 4096, 6144, 8192, 12288, 16384), ((24576, 10240), (10240, 24576), (16384, 15360)), 256 << 20, True, 128 << 20
)


def plan_for(kind: str) -> CeilingPlan:
    """The shapes that suit a kind of device."""
    return CPU_PLAN if kind == "cpu" else GPU_PLAN


def candidates(plan: CeilingPlan, dtype: str, taken: Iterable[Case]) -> dict[str, list[Case]]:
    """Cases to try for each ceiling, products in every type that cases are in; matrices of a shape that the model itself has are left
    out. A case with a ``missing`` parameter cannot be tried, and says why."""
    taken = list(taken)
    used = {(c.shape["n"], c.shape["k"]) for c in taken if c.op_class == "gemm"}
    quantised = sorted({c.dtype for c in taken} & {"fp8", "int8"})
    element = ELEMENT_BYTES[dtype]
    sizes = [s for s in plan.matmul_sizes if (s, s) not in used] or [plan.matmul_sizes[0] + 128]
    shapes = [s for s in plan.read_shapes if s not in used] or [(plan.read_shapes[0][0] + 128, plan.read_shapes[0][1])]
    elements = plan.copy_bytes // element
    found = {
        "matmul": [_gemm("matmul", dtype, s, s, s) for s in sizes],
        **{f"matmul_{kind}": [_gemm(f"matmul_{kind}", kind, s, s, s) for s in sizes] for kind in quantised},
        "read": [_gemm("read", dtype, 1, n, k) for n, k in shapes],
        "copy": [_case("copy", "copy", dtype, {"elements": elements}, 0, 2 * elements * element)],
        "launch": [_case("launch", "empty", dtype, {"elements": 1}, 0, 2 * element)],
        "read_sum": [_case("read_sum", "sum", dtype, {"elements": elements}, 0, elements * element)],
        "write": [_case("write", "write", dtype, {"elements": elements}, 0, elements * element)],
    }
    if plan.eager_launch:
        found["launch_eager"] = [_case("launch_eager", "empty", dtype, {"elements": 1}, 0, 2 * element, eager=True)]
    return found | _host_copies(plan, dtype)


def _host_copies(plan: CeilingPlan, dtype: str) -> dict[str, list[Case]]:
    size = plan.host_bytes or plan.copy_bytes
    own: dict[str, Any] = {} if plan.host_bytes else {"missing": "the device works in the host's memory"}
    sizes = {"elements": size // ELEMENT_BYTES[dtype]}
    return {
        name: [_case(name, "host_copy", dtype, sizes, 0, size, to=to, **own)]
        for name, to in zip(_LINKS, ("device", "host"), strict=True)
    }


def working_sets(sizes: Iterable[int], dtype: str) -> dict[str, list[Case]]:
    """Reads of one buffer by its bytes, from inside the caches to memory."""
    return {
        f"{WORKING_SET}{size}": [
            _case(f"{WORKING_SET}{size}", "working_set", dtype, {"elements": size // ELEMENT_BYTES[dtype]}, 0, size)
        ]
        for size in sizes
    }


def search(bench: Bench, groups: dict[str, list[Case]], limit_s: float) -> list[State]:
    """Try every candidate for a moment within ``limit_s`` seconds and keep the best two of each kind for the rounds. A kind's first
    candidate is tried whatever the limit where predictions rest on it; what the time does not hold is left out and says so. What is left
    goes to the thermal states of the best product, which are not for the rounds."""
    kept: list[State] = []
    begin = bench.clock.now()
    deadline = begin + limit_s
    quick = Bench(bench.runner, bench.clock, bench.monitor, bench.random, _SEARCH_RULE, bench.progress)
    for name, cases in groups.items():
        late = not _is_needed(name) and bench.clock.now() > deadline
        tried = _try(quick, name, cases, deadline, late=late)
        if name == "matmul":
            tried = _refine(quick, tried, begin + _REFINE_SHARE * limit_s)
        kept += [s for s in tried if s.failure is None][:_FINALISTS] or tried[:1]
    for state in kept:
        state.rounds.clear()  # the search chose by luck, too: values come from the rounds alone
    best = next((s for s in kept if s.case.operation == "matmul" and s.failure is None), None)
    return kept + (thermal.states(bench, best, deadline - bench.clock.now()) if best else [])


def _try(
    bench: Bench, name: str, cases: Iterable[Case], deadline: float, *, late: bool = False, known: Iterable[State] = ()
) -> list[State]:
    """Candidates of a kind with the ``known`` ones, the best first; what cannot win any more gives its memory back."""
    tried, wanted = list(known), list(cases)
    for case in wanted:
        if tried and bench.clock.now() + 4 * tried[-1].call_s > deadline:
            break
        state = State(case, failure=_reason_against(case, late=late))
        bench.first_timing(state)
        if state.failure is None and len(wanted) > 1:
            bench.visit(state, -1, min(0.3, max(0.0, deadline - bench.clock.now())))
        tried.append(state)
    tried.sort(key=lambda s: _rate(s.case, name, s.call_s) if s.failure is None else -1.0, reverse=True)
    for state in tried[_FINALISTS:]:
        if state.timed is not None:
            state.timed.close()
            state.timed = None
    return tried


def _refine(bench: Bench, tried: list[State], deadline: float) -> list[State]:
    """Products with one size changed around the best ones. The rates of all that were tried go into the parameters of the best, as
    [m, n, k, FLOP/s]: the best shape is not the typical one."""
    living = [s for s in tried if s.failure is None]
    if len(living) < BEST:  # there was no time for the coarse grid
        return tried
    shapes: dict[Shape, State] = {_sizes(s.case): s for s in living}
    sizes = sorted({size for shape in shapes for size in shape})
    dtype = living[0].case.dtype
    around = [_gemm("matmul", dtype, *shape) for shape in neighbours(list(shapes)[:BEST], sizes, shapes)]
    found = _try(bench, "matmul", around, deadline, known=living)
    rates = [[*_sizes(s.case), _rate(s.case, "matmul", s.call_s)] for s in found if s.failure is None]
    best = found[0]
    best.case = replace(best.case, parameters=best.case.parameters | {"tried": rates})
    return found


def _sizes(case: Case) -> Shape:
    return case.shape["m"], case.shape["n"], case.shape["k"]


def _is_needed(name: str) -> bool:
    """Whether predictions rest on a kind of ceiling."""
    return name in _PRODUCTS or name in ("read", "copy", "launch")


def _reason_against(case: Case, *, late: bool) -> str | None:
    """Why a candidate is not tried; None for one that is."""
    if "missing" in case.parameters:
        return f"not available: {case.parameters['missing']}"
    return thermal.NO_TIME if late else None


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
    traffic, launch = _traffic(by_name, op_class), by_name.get("launch")
    if "matmul" not in by_name or traffic is None:
        return None
    return Ceilings(
        name="measured here",
        peaks={dtype: _picked(c, pick) for dtype, c in _products(by_name).items()},
        bandwidth=_picked(traffic, pick),
        launch_s=launches * launch.value if launch else 0.0,
    )


def are_reliable(ceilings: Iterable[Ceiling], op_class: str, dtype: str) -> bool:
    """Whether none of the ceilings that the prediction of an operator rests on is unreliable."""
    by_name = {c.name: c for c in ceilings}
    used = (_products(by_name).get(dtype), _traffic(by_name, op_class), by_name.get("launch"))
    return all(c is None or c.status != "unreliable" for c in used)


def _products(by_name: dict[str, Ceiling]) -> dict[str, Ceiling]:
    """Matrix products by type, without the thermal states of the plain one."""
    return {c.dtype: c for name, c in by_name.items() if name in _PRODUCTS and name not in thermal.NAMES}


def _traffic(by_name: dict[str, Ceiling], op_class: str) -> Ceiling | None:
    read, copy = by_name.get("read"), by_name.get("copy")
    return read if op_class in _READING else copy or read


def as_floor(ceilings: Iterable[Ceiling]) -> Ceilings | None:
    """The fastest samples of any kernel: what nothing on this device should beat."""
    found = list(ceilings)
    peaks: dict[str, float] = {}
    for c in found:
        if c.name in _PRODUCTS:
            peaks[c.dtype] = max(c.best, peaks.get(c.dtype, 0.0))
    rates = [c.best for c in found if c.unit == "byte/s" and c.name not in _LINKS]
    return Ceilings("measured here, best", peaks, max(rates)) if peaks and rates else None


def _picked(ceiling: Ceiling, pick: str) -> float:
    if pick == "value" or ceiling.interval is None:
        return ceiling.value
    return ceiling.interval[0] if pick == "low" else ceiling.interval[1]


def _rate(case: Case, name: str, time_s: float) -> float:
    return (case.flops if name in _PRODUCTS else case.bytes) / max(time_s, 1e-12)


def _gemm(name: str, dtype: str, m: int, n: int, k: int) -> Case:
    traffic = (m * k + n * k + m * n) * ELEMENT_BYTES[dtype]
    sizes = {"m": m, "n": n, "k": k}
    if dtype in ("fp8", "int8"):
        return _case(name, "scaled_gemm", dtype, sizes, 2 * m * n * k, traffic, format=dtype)
    return _case(name, "gemm", dtype, sizes, 2 * m * n * k, traffic)


def _case(name: str, kernel: str, dtype: str, shape: dict[str, int], flops: int, traffic: int, **parameters: Any) -> Case:
    sizes = "/".join(f"{key}{value}" for key, value in shape.items())
    return Case(f"ceiling:{name}/{sizes}/{dtype}", name, "ceiling", "ceiling", kernel, shape, dtype, flops, traffic, 1, parameters)
