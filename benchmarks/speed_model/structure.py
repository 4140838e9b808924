"""Which effects every term has: the shape of the calibrated model, with prior widths. The values are fitted.

Each level was kept because cross-validated errors grow without it, or because it is what an unseen group falls back to. Widths are
starting points with the weight of three groups; the fit estimates them from the records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: Spread of the groups of a level, in the exponent.
WIDTHS = {
    "vendor": 0.2,
    "class": 0.15,
    "architecture": 0.12,
    "engine": 0.25,
    "engine class": 0.15,
    "format": 0.1,
    "format class": 0.15,
    "quantised": 0.15,
    "path": 0.15,
    "path class": 0.15,
    "experts": 0.2,
    "experts class": 0.2,
    "attention": 0.2,
    "attention class": 0.2,
    "device": 0.05,
    "model": 0.05,
    "split": 0.15,
    "version": 0.15,
    "link": 0.3,
    "library": 0.2,
    "operation": 0.2,
    "type": 0.1,
    "hidden size": 0.15,
    "watts per TFLOP": 0.3,
}
OBSERVATIONS_OF_PRIOR = 3.0


@dataclass(frozen=True)
class TermSpec:
    """A term's value before any record was read, how sure that is, and its levels and slopes."""

    base: float
    base_width: float = 1.0
    levels: tuple[str, ...] = ()
    slopes: tuple[str, ...] = ()
    widths: dict[str, float] = field(default_factory=dict)

    def width(self, level: str) -> float:
        """Prior width of a level or slope."""
        return self.widths.get(level, WIDTHS[level])


def _times(multiple: float, *levels: str, slopes: tuple[str, ...] = (), sure: float = 1.0, **widths: float) -> TermSpec:
    return TermSpec(math.log(multiple), sure, levels, slopes, {k.replace("_", " "): v for k, v in widths.items()})


TERMS: dict[str, TermSpec] = {
    "decode.weights": _times(1.2, "class", "architecture", "engine", "format", "format class", "experts", slopes=("hidden size",)),
    "decode.kv": _times(1.5, "engine", "attention", "attention class"),
    "decode.fixed": _times(30, "class", "architecture", "engine", "quantised", "experts"),
    "decode.compute": _times(2, "class", "engine", "format"),
    "decode.sequences": _times(3),
    "prefill.linear": _times(
        2, "class", "engine", "engine class", "path", "path class", "experts class", slopes=("watts per TFLOP",)
    ),
    "prefill.attention": _times(4, "class", "attention", "attention class"),
    "prefill.weights": _times(1.3, "engine"),
    "prefill.activations": _times(1.2, sure=0.3),
    "prefill.fixed": _times(50, "engine"),
    "prefill.tiles": _times(1.5, "class", "engine"),
    "collective": _times(1, "link", "engine", sure=0.15, link=0.1, engine=0.1),
    "allreduce.latency": _times(5, "link", "library", sure=0.5),
    "allreduce.bytes": _times(1.3, "link", "device", sure=0.3, device=0.5),
    "allreduce.fill": _times(2.5, "link", "device", sure=0.3, device=0.3),
    "direct.latency": _times(5.5, "device", sure=0.3, device=0.2),
    "direct.bytes": _times(1.7, "device", sure=0.3, device=0.3),
    "gemm.compute": _times(1.3, "vendor", "type", "library", slopes=("watts per TFLOP",), sure=0.3, library=0.1, type=0.05),
    "gemm.memory": _times(1.15, "library", sure=0.15, library=0.05),
    "gemm.launch": _times(5, "library", sure=0.5, library=0.7),
    "gemm.rounding": _times(10, sure=0.5),
    "attention.prefill": _times(1.6, "library", "architecture", sure=0.5),
    "attention.ramp": _times(1.0, "library"),
    "attention.decode": _times(1.2, "operation", "architecture", "class", sure=0.3),
    "attention.fixed": _times(15, "operation", "class"),
    "bandwidth.stream": _times(1.2, "class", "architecture", sure=0.2),
}
#: Effects on all terms of a phase: what the row's own device, model, split and engine version add.
PHASES: dict[str, TermSpec] = {
    "decode": TermSpec(0.0, 0.0, ("device", "model", "split", "version"), widths={"version": 0.08}),
    "prefill": TermSpec(0.0, 0.0, ("device", "model", "split", "version"), widths={"device": 0.1}),
}
#: Effects on a whole composition of steps.
COMPOSITIONS: dict[str, TermSpec] = {f"serving.{kind}": TermSpec(0.0, 0.15) for kind in ("static", "loaded", "saturated")}

SPECS = TERMS | PHASES | COMPOSITIONS
#: Levels whose groups belong to one engine: they are kept in the engine's own file.
ENGINE_LEVELS = ("engine", "engine class", "version")
