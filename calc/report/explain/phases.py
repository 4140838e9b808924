"""Steps of a phase: work, traffic, intensity, ridge, floor and expected time; and the latency of a request."""

from __future__ import annotations

from calc.arrays import Number
from calc.formula import formula_of
from calc.report.explain import places
from calc.report.explain.host import host_steps
from calc.report.explain.parallel import parallel_steps
from calc.report.explain.step import Section, Step, Value, total
from calc.serving import request as requests
from calc.serving.deployment import Deployment
from calc.serving.phase import Phase
from calc.serving.request import Latency, Workload
from calc.timing.calibrated import Calibrated
from calc.timing.step_time import OperatorTime, step_time
from calc.units import GIGA

#: Operators whose floor is shown in full.
_SHOWN = 2


def phase_section(deployment: Deployment, phase: Phase, name: str) -> Section:
    """Everything about one step."""
    steps = [*_work(deployment, phase), *parallel_steps(deployment, phase), *_intensity(deployment, phase)]
    if phase.timed is not None:
        steps += _times(deployment, phase)
    return Section(f"{name.capitalize()}, one step on {phase.ranks} rank{'s' if phase.ranks > 1 else ''}", tuple(steps))


def _work(deployment: Deployment, phase: Phase) -> list[Step]:
    terms = [
        (f"{o.count} calls x {o.ranks} ranks of {o.name} ({o.layers})", float(o.flops) * o.count * o.ranks)
        for o in phase.operators
        if o.flops
    ]
    steps = [total("work", terms, float(phase.totals.flops), "FLOP", formula="sum of FLOP x calls x ranks over the operators")]
    products = [o for o in phase.operators if {"m", "n", "k"} <= o.shape.keys() and o.op_class == "gemm" and o.flops]
    if products:
        one = max(products, key=lambda o: float(o.flops) * o.count)
        where = places.layer(deployment, one.layers) if one.layers in deployment.model.profile.layer_kinds else ""
        values = [
            Value("m", float(one.shape["m"]), "rows"),
            *(Value(s, float(one.shape[s]), "", where) for s in ("n", "k")),
            Value("copies", float(one.shape.get("copies", 1))),
        ]
        steps.append(Step(f"one call of {one.name} on one rank", "2 * m * n * k * copies", tuple(values), float(one.flops), "FLOP"))
    parts = ("weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes")
    traffic = tuple(Value(p, float(getattr(phase.totals, p)), "B") for p in parts)
    steps.append(
        Step("traffic", " + ".join(parts), traffic, float(phase.totals.bytes), "B", evidence=f"fusion policy {phase.fusion_policy}")
    )
    return steps


def _intensity(deployment: Deployment, phase: Phase) -> list[Step]:
    values = (Value("flops", float(phase.totals.flops), "FLOP"), Value("bytes", float(phase.totals.bytes), "B"))
    steps = [Step("arithmetic intensity", "flops / bytes", values, float(phase.arithmetic_intensity), "FLOP/B")]
    if phase.ridge_point:
        values = (_peak(deployment, phase.main_dtype), _bandwidth(deployment))
        steps.append(Step("ridge point", "peak / bandwidth", values, phase.ridge_point, "FLOP/B", evidence="datasheet"))
    return steps


def _peak(deployment: Deployment, dtype: str) -> Value:
    source = places.hardware(deployment, "peak_dense_tflops", dtype)
    return Value("peak", float(deployment.ceilings.peak(dtype) or 0.0), "FLOP/s", source)


def _bandwidth(deployment: Deployment) -> Value:
    source = places.hardware(deployment, "memory_bandwidth_gb_per_s")
    return Value("bandwidth", float(deployment.ceilings.bandwidth or 0.0), "B/s", source)


def _times(deployment: Deployment, phase: Phase) -> list[Step]:
    timed = phase.timed
    assert timed is not None
    by = places.name(step_time)
    steps = []
    for part in ("floor", "expected"):
        terms = [
            (f"{i.operator.count} calls of {i.operator.name} ({i.operator.layers})", _seconds(phase, i, part) * i.operator.count)
            for i in timed.operators
        ]
        hidden = float(timed.hidden_s[part]) if timed.hidden_s else 0.0
        terms += [("less messages behind compute", -hidden)] if hidden else []
        evidence = "datasheet: nothing beats it" if part == "floor" else timed.time_s.evidence
        result = float(getattr(timed.time_s, part) or 0.0)
        steps.append(
            total(f"{part} time", terms, result, "s", formula="sum of calls x time of one call", computed_by=by, evidence=evidence)
        )
        if part == "floor":
            kernels = [i for i in timed.operators if i.operator.op_class != "host"]
            largest = sorted(kernels, key=lambda i: -float(i.floor.time_s) * i.operator.count)[:_SHOWN]
            steps += [_floor(deployment, item) for item in largest]
        elif timed.terms_s:
            steps += _physical(timed.terms_s, result, evidence)
    return [*steps, *host_steps(deployment, phase)]


def _seconds(phase: Phase, item: OperatorTime, part: str) -> float:
    """Seconds of one call. The floor of what the host adds is its bound: its own range only begins at what it is expected to add."""
    if part == "floor" and item.operator.op_class == "host":
        return float(item.floor.time_s) * float(phase.flow.stretch)
    return float(getattr(item.time_s, part) or 0.0)


def _physical(terms_s: dict[str, Number], expected: float, evidence: str) -> list[Step]:
    """The same time by physical term, each its size at datasheet rates times what was fitted; nothing where the floor lifted it."""
    terms = [(name, float(seconds)) for name, seconds in terms_s.items() if float(seconds)]
    if not terms or abs(sum(s for _, s in terms) - expected) > 1e-9 * expected:
        return []
    by = places.name(Calibrated.expectation)
    text = "sum over physical terms of size at datasheet rates x fitted factor"
    return [total("expected time, by term", terms, expected, "s", most=8, formula=text, computed_by=by, evidence=evidence)]


def _floor(deployment: Deployment, item: OperatorTime) -> Step:
    operator, bounds = item.operator, item.floor
    result, name = float(bounds.time_s), f"floor of one call of {operator.name}"
    if operator.collective is not None:
        link = deployment.ceilings.link_for(operator.collective)
        wires = Value(
            "network_s", float(bounds.network_s), "s", f"{link.name}, {link.bandwidth / GIGA:g} GB/s per direction" if link else ""
        )
        return Step(name, "network_s", (wires,), result, "s", evidence="datasheet")
    compute, memory = float(bounds.compute_s), float(bounds.memory_s)
    moved = Value("moved", memory * float(deployment.ceilings.bandwidth or 0.0), "B", "weights, KV and state that must move")
    if not compute:
        return Step(name, "moved / bandwidth", (moved, _bandwidth(deployment)), result, "s", evidence="datasheet")
    values = (
        Value("flops", float(operator.flops), "FLOP"),
        _peak(deployment, deployment.ceilings.dtype_for(operator)),
        moved,
        _bandwidth(deployment),
    )
    return Step(name, "max(flops / peak, moved / bandwidth)", values, result, "s", evidence=f"datasheet, {item.bound}-bound")


def request_section(workload: Workload, latency: Latency) -> Section:
    """TTFT, TPOT, end to end and the rate, at the expected times."""
    ttft, tpot, e2e = (x.expected for x in (latency.ttft_s, latency.tpot_s, latency.e2e_s))
    if ttft is None or tpot is None or e2e is None:
        return Section("Request", ())
    sure = latency.e2e_s.evidence
    first, each = (
        Value("ttft_s", float(ttft), "s", "prefill, expected time"),
        Value("tpot_s", float(tpot), "s", "mean decode step, expected time"),
    )
    output = Value("output_len", workload.output_len, "tokens", "--output-len")
    whole = Value("e2e_s", float(e2e), "s")
    rate = float(latency.output_tokens_per_s.expected or 0.0)
    by = places.name(requests.end_to_end_s)
    batch = Value("batch_size", workload.batch_size, "requests", "--batch-size")
    formula = formula_of(requests.end_to_end_s)
    steps = (
        Step("end to end", formula, (first, each, output), float(e2e), "s", by, sure),
        Step("output tokens/s", "batch_size * output_len / e2e_s", (batch, output, whole), rate, "tokens/s", evidence=sure),
    )
    return Section("Request, expected times", steps)
