"""What a sweep is asked to vary: every list and range is read, and every name looked up, before the first row is written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calc.commands import options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calc.profiles.catalog import Loaded
    from calc.profiles.hardware import HardwareProfile
    from calc.profiles.model import ModelProfile

#: Options that a sweep takes once: a file and a folder.
_SINGLE = ("profiles_dir", "efficiency")


@dataclass(frozen=True)
class Varied:
    """Models and devices by the names that were given, values of the deployment's options, and options that are the same throughout."""

    models: dict[str, Loaded[ModelProfile]]
    hardware: dict[str, Loaded[HardwareProfile]]
    values: dict[str, Sequence[str | int]]
    fixed: dict[str, Any]

    @property
    def deployments(self) -> int:
        """Size of the cross product."""
        return len(self.models) * len(self.hardware) * math.prod(map(len, self.values.values()))

    @property
    def heads(self) -> list[str]:
        """Columns that tell the deployments apart."""
        return ["model", "hardware", *(name for name, values in self.values.items() if len(values) > 1)]

    @property
    def choices(self) -> dict[str, list[Any]]:
        """Values of every axis, in the order of the cross product."""
        return {"model": list(self.models), "hardware": list(self.hardware)} | {k: list(v) for k, v in self.values.items()}

    def options(self, combination: dict[str, Any]) -> dict[str, Any]:
        """Options of one deployment, as text."""
        return self.fixed | {name: str(combination[name]) for name in self.values}


def varied(models: str, hardware: str, options: dict[str, Any]) -> Varied:
    """What the lists say. Raises UsageError for a value that can never hold, UnknownNameError and ProfileError for names."""
    import calc
    from calc.commands import lists

    folder = options.get("profiles_dir")
    given = {p.name: options[p.name] for p in opt.DEPLOYMENT if options.get(p.name) is not None}
    asked = {name: text for name, text in given.items() if isinstance(text, str) and name not in _SINGLE}
    return Varied(
        models={name: calc.load_model(name, folder) for name in lists.words(models, "MODEL")},
        hardware={name: calc.load_hardware(name, folder) for name in lists.words(hardware, "HARDWARE")},
        values={name: _values(name, text) for name, text in asked.items()},
        fixed={name: value for name, value in given.items() if name not in asked},
    )


def check_values(found: Varied) -> None:
    """Settle every value alone: what no deployment understands ends the sweep; what one of them refuses is a row that says so."""
    from calc.errors import UnknownNameError, UsageError
    from calc.serving.deployment import resolve

    model, device = next(iter(found.models.values())), next(iter(found.hardware.values()))
    engines: Sequence[str | int | None] = found.values.get("engine", (None,))
    for engine in engines:  # versions, layers and formats belong to an engine
        base = found.fixed | ({} if engine is None else {"engine": str(engine)})
        for single in ({}, *({name: str(v)} for name, values in found.values.items() for v in _few(values))):
            settled = opt.deployment_options(base | single)
            try:
                resolve(model, device, settled)
            except UnknownNameError:
                raise
            except UsageError:
                continue


def _few(values: Sequence[str | int]) -> Sequence[str | int]:
    """Counts were read already: their first stands for all."""
    return values[:1] if isinstance(values[0], int) else values


def _values(name: str, text: str) -> Sequence[str | int]:
    from calc import units
    from calc.commands import lists

    what = opt.written(name)
    if name not in opt.COUNTS or (name == "gpu_layers" and set(lists.words(text, what)) & set(opt.ALL_LAYERS)):
        return lists.words(text, what)
    minimum, maximum = opt.COUNTS[name]
    return lists.counts(text, what, minimum=minimum, maximum=maximum or units.MAX_COUNT)
