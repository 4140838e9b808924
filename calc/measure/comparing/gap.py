"""The measured time of a call in parts: the time at datasheet rates, and what each known cause adds to it, until nothing explains the
rest. The causes are taken one after another, so that each second is charged once and the parts sum to the measured time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from calc.measure.ceilings import as_roofline
from calc.measure.records import Ceiling
from calc.operators.operator import Operator
from calc.timing import roofline
from calc.timing.roofline import Ceilings
from calc.timing.sizes import sizes

#: In the order in which they are charged. ``base_s`` is the time at datasheet rates, or at measured ones where no datasheet is named.
PARTS = ("base_s", "bandwidth_s", "compute_s", "tile_s", "wave_s", "launch_s", "unexplained_s")
#: Rows and columns of the output that one unit works on at a time: 128 x 128, and 64 rows, the least that Hopper's matrix units take,
#: for fewer (CUTLASS's default tiles; what the library chose is not known, so that both quantisations are estimates).
_TILE, _SMALL_TILE = 128, 64
#: Columns of K that a part of a split product keeps: four steps of 64. Libraries split long products that would leave units idle.
_LEAST_K = 256


def split(
    operator: Operator,
    measured_s: float | None,
    ceilings: Iterable[Ceiling],
    sheet: Ceilings | None,
    *,
    launches: int = 1,
    units: int | None = None,
) -> dict[str, float] | None:
    """Seconds by part (see ``PARTS``) that sum to ``measured_s``; None where a rate is unknown. ``units`` are the multiprocessors that
    tiles are spread over (None: a CPU, whose kernels have no fixed tiles). A negative part says that the kernel does better there."""
    here = as_roofline(ceilings, operator.op_class, launches)
    if measured_s is None or here is None or here.bandwidth is None or operator.compute_dtype not in here.peaks:
        return None
    rated = sheet is not None and sheet.bandwidth is not None and operator.compute_dtype in sheet.peaks
    start = sheet if rated and sheet is not None else here
    slower = Ceilings(here.name, start.peaks, here.bandwidth)
    tiles, waves = quantisation(operator.op_class, operator.shape, units) if units else (1.0, 1.0)
    times = [
        float(roofline.honest(operator, ceiling, compute).time_s)
        for ceiling, compute in ((start, 1.0), (slower, 1.0), (here, 1.0), (here, tiles), (here, tiles * waves))
    ]
    steps = [times[0], *(after - before for before, after in pairwise(times)), here.launch_s]
    return dict(zip(PARTS, [*steps, measured_s - math.fsum(steps)], strict=True))


def quantisation(op_class: str, shape: Mapping[str, Any], units: int) -> tuple[float, float]:
    """(share of the tiles' products that are asked for, share of the units' turns in use) of a matrix product; (1, 1) for the rest."""
    known = sizes(shape)
    if op_class not in ("gemm", "experts") or not {"m", "n", "k"} <= known.keys():
        return 1.0, 1.0
    rows, columns, depth = (known[letter] for letter in ("m", "n", "k"))
    products = max(1, round(float(shape.get("copies", shape.get("active", 1)))))
    height = _SMALL_TILE if rows <= _SMALL_TILE else _TILE
    down, across = math.ceil(rows / height), math.ceil(columns / _TILE)
    tiles = products * down * across
    if tiles < units:
        tiles *= max(1, min(units // tiles, int(depth // _LEAST_K)))
    filled = rows * columns / (down * height * across * _TILE)
    return filled, tiles / (math.ceil(tiles / units) * units)


def total(rows: Iterable[Mapping[str, Any]]) -> dict[str, float] | None:
    """The parts of a step: sums over rows with their ``count``. None where a measured row has no parts, which would hide its time."""
    sums = dict.fromkeys(PARTS, 0.0)
    found = False
    for row in rows:
        if row["measured_s"] is None:
            continue
        if row["gap"] is None:
            return None
        found = True
        for part in PARTS:
            sums[part] += row["count"] * row["gap"][part]
    return sums if found else None
