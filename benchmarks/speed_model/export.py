"""From a fit to the effect files that commands read: one shared by all engines, one for each engine."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.speed_model.case import Case
from benchmarks.speed_model.regression import Array, Design, Fit
from benchmarks.speed_model.structure import ENGINE_LEVELS, SPECS
from benchmarks.statistics import quantile
from calc.profiles.efficiency import Calibration, Effect, EffectFile, Level, Term
from calc.timing.calibrated import Effects
from calc.timing.setting import Setting

ORIGIN = "python -m benchmarks.fit_efficiency on benchmarks/records/measured_speed.yaml"
KERNELS = "kernels"  # the file of libraries that were timed alone
_DIGITS = 5
_BEST = 0.99
Ranges = Mapping[str, Mapping[str, tuple[float, float]]]


def family(setting: Any) -> str:
    """The effect file of a setting: its engine without the backend, or that of the kernel libraries."""
    return setting.family if isinstance(setting, Setting) else KERNELS


def rounded(value: float) -> float:
    """Five significant digits: what the fit reproduces."""
    return float(f"{value:.{_DIGITS}g}")


def export(
    design: Design,
    cases: Sequence[Case],
    found: Fit,
    rows: Array | None = None,
    ranges: Ranges | None = None,
    further: Mapping[str, float] | None = None,
    sha256: str = "",
) -> dict[str, EffectFile]:
    """Effect files by id. ``rows`` are those that were fitted; effects that none of them uses are left out."""
    used = list(range(design.n)) if rows is None else [int(r) for r in rows]
    parts = np.isin(design.row[design.part], used)
    count = np.zeros(len(design.effects), dtype=int)
    pairs = np.unique(np.stack([design.row[design.part][parts], design.effect[parts]]), axis=1)
    np.add.at(count, pairs[1], 1)
    trees: dict[str, dict[str, dict[str, dict[str, Effect]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for (term, level, key), i in design.effects.items():
        if not count[i]:
            continue
        effect = (rounded(found.effects[i]), rounded(math.sqrt(found.variance[i])), int(count[i]))
        own = key.split(" ")[0] if level in ENGINE_LEVELS else "shared"
        trees[own][term][level][key] = effect
    widths = {level: rounded(width) for level, width in zip(design.levels, found.width, strict=True)}
    files = {}
    counts = _rows(cases, used)
    for name in {"shared", *trees, *counts}:
        is_shared = name == "shared"
        terms = {t: _term(t, trees[name][t], widths if is_shared else {}) for t in (SPECS if is_shared else trees[name])}
        files[name] = EffectFile(
            id=name,
            origin=ORIGIN,
            records_sha256=sha256,
            terms=terms,
            kinds=_kinds(design, [cases[i] for i in used], found, counts[name], ranges or {}),
            noise=dict(further or {}) if is_shared else {},
        )
    return files


def _term(name: str, tree: Mapping[str, dict[str, Effect]], widths: Mapping[tuple[str, str], float]) -> Term:
    spec = SPECS[name]
    if not widths:
        return Term(levels={level: Level(effects=effects) for level, effects in sorted(tree.items())})
    levels = {}
    for level in spec.levels:
        width = widths.get((name, level), spec.width(level))
        levels[level] = Level(width=width, effects=dict(sorted(tree.get(level, {}).items())))
    base = tree.get("base", {}).get("") or ((rounded(spec.base), spec.base_width, 0) if spec.base_width else None)
    slopes = {s: tree.get("slope", {}).get(s) or (0.0, spec.width(s), 0) for s in spec.slopes}
    return Term(base=base, levels=levels, slopes=slopes)


def _rows(cases: Sequence[Case], used: Sequence[int]) -> dict[str, dict[str, Counter[str]]]:
    """Observations by file, kind and key."""
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for i in used:
        case = cases[i]
        found["shared"][case.kind]["all"] += 1
        engine, own = case.setting.engine, found[family(case.setting)][case.kind]
        for key in (engine, case.setting.keys["engine class"], f"{engine} | {case.setting.hardware.id}"):
            own[key] += 1
    return found


def _kinds(
    design: Design, cases: Sequence[Case], found: Fit, counts: Mapping[str, Counter[str]], ranges: Ranges
) -> dict[str, Calibration]:
    kinds = {}
    for i, kind in enumerate(design.kinds):
        if not counts.get(kind):
            continue
        spans = {level: (rounded(a), rounded(b)) for level, (a, b) in ranges.get(kind, {}).items()}
        reached = quantile([case.floor_s / case.measured_s for case in cases if case.kind == kind], _BEST) or 1.0
        kinds[kind] = Calibration(
            noise=rounded(found.noise[i]), best=min(1.0, rounded(reached)), ranges=spans, rows=dict(sorted(counts[kind].items()))
        )
    return kinds


def effects_of(files: Mapping[str, EffectFile], setting: Any) -> Effects:
    """The effects that a setting draws on."""
    return Effects(files["shared"], files.get(family(setting)))
