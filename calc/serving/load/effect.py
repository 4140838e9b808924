"""What a load makes of the sum of its steps: the fitted effect, and the bounds that it keeps to."""

from __future__ import annotations

from typing import Any, NamedTuple

from calc.serving.deployment import Deployment
from calc.serving.load import batching
from calc.timing.calibrated import Calibrated

#: Fitted effects on steps with their share of prompts: with a stated load, and with as many requests as there is room for, all of them
#: waiting from the start.
LOADED, SATURATED = "serving.loaded", "serving.saturated"


class Effect(NamedTuple):
    """``factor`` of the sum of steps, and the ``best``: the largest share of a floor that any load came to."""

    factor: float
    best: float


def effect_of(deployment: Deployment, composition: str) -> Effect:
    """The effect of a composition; none where nothing was fitted."""
    model = deployment.efficiency
    return Effect(*model.composition(composition)) if isinstance(model, Calibrated) else Effect(1.0, 1.0)


def loaded_step_s(part: str, mean_s: Any, floor_s: Any, alone_s: Any, effect: Effect) -> Any:
    """``batching.served_step_s`` at one end of the range; nothing is known to shorten the floor itself."""
    if part == "floor":
        return mean_s
    least = batching.least_s(mean_s, floor_s, 1.0 if part == "low" else effect.best)
    return batching.served_step_s(mean_s, effect.factor, alone_s, least)
