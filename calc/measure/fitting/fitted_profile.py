"""Run files → an efficiency profile: one fit per operator class and type, with errors, intervals and what was left out."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from calc.errors import UsageError
from calc.measure.cases.formats import DTYPES
from calc.measure.fitting import fit as fitting
from calc.measure.fitting import observations
from calc.measure.fitting.fit import ClassFit, Fitted
from calc.measure.fitting.solver import Law, Observation
from calc.measure.statistics import quantile
from calc.profiles import efficiency as schema
from calc.profiles.efficiency import Correction, EfficiencyProfile, Factor, Latency, RunOrigin, Spread, Threads
from calc.timing.efficiency import load_efficiency
from calc.timing.sizes import sizes
from calc.units import format_count

_LEAST_SPREAD = 0.02
_LAUNCH_S = 2e-6  # where a run has no launch ceiling
_FEW = 3
#: Classes whose kernels differ by the format of the weights: one that unpacks them is not the one that was measured.
_WEIGHTED = ("gemm", "experts")


def fit_runs(
    runs: Sequence[dict[str, Any]], hashes: Sequence[str], hardware: dict[str, Any] | None = None, identifier: str | None = None
) -> EfficiencyProfile:
    """The profile of one device from its run files (validated). ``hardware`` replaces the datasheet that the runs name, ``identifier``
    the id that the device's name gives.

    Raises UsageError for runs of different devices, a run given twice (its cases would count twice), or no usable case.
    """
    _one_device(runs)
    _distinct(hashes)
    sheets = [hardware or run.get("hardware") for run in runs]
    known = all(sheets) and len({s["id"] for s in sheets if s}) == 1
    rates = [observations.rates(run, s if known else None) for s, run in zip(sheets, runs, strict=True)]
    found: dict[tuple[str, str], list[Observation]] = {}
    left_out: Counter[str] = Counter()
    launch = [c["value"] for run in runs for c in run["ceilings"] if c["name"] == "launch" and c["value"]]
    for run, own in zip(runs, rates, strict=True):
        observations.collect(run, own, found, left_out)
    if not found:
        raise UsageError(
            f"no case of these runs can be used: {', '.join(f'{n} {why}' for why, n in left_out.items()) or 'there is none'}",
            "measure again when the machine is quiet",
        )
    fitted = {key: _fitted(part, launch) for key, part in sorted(found.items())}
    shapes = {c["id"]: c["shape"] for run in runs for c in run["cases"]}
    factors = [factor for key, one in fitted.items() for factor in _factors(*key, found[key], one, shapes)]
    default = load_efficiency().profile.factors[-1]
    factors.append(Factor(compute=_untold(default.compute), bandwidth=_untold(default.bandwidth), link=default.link))
    sheet = sheets[0] if known else None
    device = runs[0]["environment"].get("device", {}).get("name") or "this device"
    return EfficiencyProfile(
        id=_identifier(identifier or f"{sheet['id'] if sheet else device}-measured"),
        evidence="measured here",
        origin=f"roofcast fit on {format_count(len(runs), 'run file')} of {device}; engine torch, not a serving engine",
        hardware=sheet["id"] if sheet else None,
        factors=factors,
        fit=schema.Fit(
            date=max(str(run["environment"].get("started", "")) for run in runs)[:10],
            runs=[_origin(run, h) for run, h in zip(runs, hashes, strict=True)],
            against="datasheet" if known else "measured ceilings",
            ceilings=rates[0],
            left_out=dict(left_out),
            environment=_environment(runs[0]),
            fit_error=_errors([r for f in fitted.values() for r in f.residuals.values()]),
            held_out_error=_errors([r for f in fitted.values() for r in f.held_out.values()]),
        ),
    )


def _identifier(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:100] or "measured"


def short_hash(case_id: str) -> str:
    """What a profile keeps of the id of a case that it saw."""
    return hashlib.sha256(case_id.encode()).hexdigest()[:8]


def _one_device(runs: Sequence[dict[str, Any]]) -> None:
    names = sorted({str(run["environment"].get("device", {}).get("name")) for run in runs})
    if len(names) > 1:
        raise UsageError(f"the runs are of different devices: {', '.join(names)}", "fit one device at a time")


def _distinct(hashes: Sequence[str]) -> None:
    for at, one in enumerate(hashes):
        if one in hashes[:at]:
            raise UsageError(f"run files {hashes.index(one) + 1} and {at + 1} are the same run", "leave one of them out")


def _fitted(part: list[Observation], launch: list[float]) -> ClassFit:
    default = load_efficiency().profile.factors[-1]
    start = Law(default.compute.expected, default.bandwidth.expected, max(1e-9, min(launch, default=_LAUNCH_S)), None)
    return fitting.fit(part, start.launch_s, start=start)


def _factors(op_class: str, dtype: str, part: list[Observation], fit: ClassFit, shapes: dict[str, dict[str, Any]]) -> list[Factor]:
    """Those of kernels with a law of their own, and the one of the class."""
    own = {k: [o for o in part if o.kernel == k] for k in fit.own}
    found = [
        msgspec.structs.replace(_factor(op_class, dtype, own[k], one, _box(own[k], shapes)), operations=[k])
        for k, one in fit.own.items()
    ]
    if own and op_class == "gemm":
        return found  # every product has one row or more
    whole = _factor(op_class, dtype, part, fit.whole, _box(part, shapes))
    # Where kernels have laws of their own, that of the class serves the others: none of its cases is one of those.
    return [*found, msgspec.structs.replace(whole, cases=0, flags=[]) if own else whole]


def _factor(op_class: str, dtype: str, part: list[Observation], one: Fitted, box: dict[str, tuple[float, float]]) -> Factor:
    law = one.law
    ratios = sorted((one.held_out or one.residuals).values())
    low = math.exp(min(-_LEAST_SPREAD, quantile(ratios, 0.1)))
    high = math.exp(max(_LEAST_SPREAD, quantile(ratios, 0.9)))
    launch_low, launch_high = one.intervals.get("launch_s", (law.launch_s, law.launch_s))
    flags = [
        f"{name} reaches {value:.3g} of its ceiling: operands in cache, a wrong datasheet, or a wrong count"
        for name, value, n in (("compute", law.compute, one.compute_cases), ("bandwidth", law.bandwidth, one.bandwidth_cases))
        if value > 1 and n
    ]
    if len(part) < _FEW:
        flags.append(f"only {format_count(len(part), 'case')}: no validation")
    if not one.compute_cases and any(o.compute_s > 0 for o in part):
        flags.append("no case was bound by compute: that efficiency is the default's")
    if not one.bandwidth_cases:
        flags.append("no case was bound by memory: that efficiency is the default's")
    default = load_efficiency().profile.factors[-1]
    return Factor(
        operator_classes=[op_class],
        formats=[dtype] if op_class in _WEIGHTED and dtype in DTYPES else [],
        compute_dtypes=[dtype],
        compute=_spread(law.compute, low, high, one.compute_cases),
        bandwidth=_spread(law.bandwidth, low, high, one.bandwidth_cases),
        link=default.link,
        launch_s=Latency(
            low=_short(min(launch_low, law.launch_s)),
            expected=_short(law.launch_s),
            high=_short(max(launch_high, law.launch_s)),
            n=len(part),
        ),
        knee=law.knee,
        threads=Threads(grain=_short(law.threads[0]), enough=_short(law.threads[1])) if law.threads else None,
        correction=[Correction(rows=rows, factor=_short(ratio)) for rows, ratio in law.correction],
        intervals={name: (_short(a), _short(b)) for name, (a, b) in one.intervals.items()},
        box=box,
        cases=len(part),
        fit_error=_by_phase(one.residuals, part),
        held_out_error=_by_phase(one.held_out, part),
        flags=flags,
    )


def _box(part: list[Observation], shapes: dict[str, dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Least and largest of each size."""
    found: dict[str, list[float]] = {}
    for one in part:
        for name, size in sizes(shapes[one.case_id]).items():
            found.setdefault(name, []).append(size)
    return {name: (min(values), max(values)) for name, values in found.items()}


def _spread(value: float, low: float, high: float, n: int) -> Spread:
    return Spread(low=_short(value * low), expected=_short(value), high=_short(value * high), n=n)


def _short(value: float) -> float:
    """Five digits: more than any fit knows."""
    return float(f"{value:.5g}")


def _untold(spread: Spread) -> Spread:
    """A default's spread, which no case of this fit bears on."""
    return Spread(low=spread.low, expected=spread.expected, high=spread.high, n=0)


def _errors(ratios: Sequence[float], by_phase: dict[str, schema.Errors] | None = None) -> schema.Errors | None:
    found = fitting.errors(ratios)
    if found is None:
        return None
    return schema.Errors(
        n=found.n,
        median=_short(found.median),
        p90=_short(found.p90),
        worst=_short(found.worst),
        bias=_short(found.bias),
        by_phase=by_phase or {},
    )


def _by_phase(ratios: dict[str, float], part: list[Observation]) -> schema.Errors | None:
    phases = {o.case_id: o.phase for o in part}
    split = {p: _errors([r for i, r in ratios.items() if phases[i] == p]) for p in sorted(set(phases.values()))}
    return _errors(list(ratios.values()), {p: e for p, e in split.items() if e})


def _origin(run: dict[str, Any], content_hash: str) -> RunOrigin:
    environment = run["environment"]
    return RunOrigin(
        sha256=content_hash,
        model=str(run.get("model", {}).get("id")),
        device=str(environment.get("device", {}).get("name")),
        started=str(environment.get("started", "")),
        seen_sha256=sorted(short_hash(c["id"]) for c in run["cases"] if c["status"] in ("ok", "noisy")),
    )


def _environment(run: dict[str, Any]) -> dict[str, Any]:
    environment = run["environment"]
    torch, host, device = (environment.get(k) or {} for k in ("torch", "host", "device"))
    return {
        "device": device.get("name"),
        "driver": device.get("driver"),
        "torch": torch.get("version"),
        "cuda": torch.get("cuda"),
        "threads": host.get("threads"),
        "system": host.get("system"),
    }
