"""The calibrated model: terms of a step times what engines and devices were seen to make of them, with the spread of what was seen.

``t = sum over terms of size x exp(sum of effects)``. Effects nest from all devices and engines down to the row's own group; a group
that was never measured counts zero with the spread between its like, so an unseen device, engine or model falls back to its
neighbours and the range widens by itself. Deviations are combined as independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from calc.arrays import Number, divide, maximum, minimum
from calc.operators.operator import Operator
from calc.operators.work import Work
from calc.profiles.efficiency import Effect, EffectFile, Term
from calc.timing.roofline import Ceilings
from calc.timing.setting import Setting
from calc.timing.terms import Mix, Sizes, mix, operator_sizes

KNOWN, DEVICE_UNSEEN, ENGINE_UNSEEN = "known", "device unseen", "engine unseen"
#: Decode steps of more rows than this vary more between engines than small ones.
LARGE_BATCH = 16
#: Levels whose groups may carry noise of their own.
NOISE_LEVELS = ("experts", "class", "engine")
#: Kinds of observations that bear on a kind of step.
_EVIDENCE = {"decode": ("decode", "serving"), "prefill": ("prefill", "serving"), "serving": ("serving", "decode", "prefill")}
_NOTHING = Term()
_NORMAL = (1.2816, 1.2816)  # what holds 80 % of a normal distribution, where nothing was calibrated


@dataclass(frozen=True)
class Effects:
    """All fitted effects that a setting can draw on: the shared file and those of its engine, if there are any."""

    shared: EffectFile
    engine: EffectFile | None = None

    def term(self, name: str, setting: Setting) -> tuple[float, float]:
        """Sum of the effects of a term (or of a phase) and its variance; an unseen group adds the spread of its level."""
        term = self.shared.terms.get(name, _NOTHING)
        own = self.engine.terms.get(name, _NOTHING) if self.engine else _NOTHING
        value, variance = _of(term.base)
        for level, table in term.levels.items():
            key = setting.keys.get(level)
            if key is None:
                continue
            seen = table.effects.get(key)
            if seen is None and level in own.levels:
                seen = own.levels[level].effects.get(key)
            effect = (0.0, table.width**2) if seen is None else _of(seen)
            value, variance = value + effect[0], variance + effect[1]
        for covariate, slope in term.slopes.items():
            x = setting.slopes.get(covariate, 0.0)
            effect = _of(slope)
            value, variance = value + x * effect[0], variance + x * x * effect[1]
        return value, variance


def _of(effect: Effect | None) -> tuple[float, float]:
    return (effect[0], effect[1] ** 2) if effect else (0.0, 0.0)


def phase_of(term: str) -> str:
    """What stands before the point: decode, prefill, …"""
    return term.partition(".")[0]


@dataclass(frozen=True)
class Expectation:
    """An expected time with its relative standard deviation and the seconds of each term."""

    seconds: Number
    deviation: Number
    terms: Sizes


@dataclass(frozen=True)
class Calibrated:
    """The calibrated model of one setting. ``scale`` multiplies terms (what if launches took half the time?)."""

    effects: Effects
    setting: Setting
    scale: Mapping[str, float] = field(default_factory=dict)
    _terms: dict[str, tuple[float, float]] = field(default_factory=dict, compare=False, repr=False)

    def _term(self, name: str) -> tuple[float, float]:
        found = self._terms.get(name)
        if found is None:
            value, variance = self.effects.term(name, self.setting)
            found = self._terms[name] = (math.exp(value), variance)
        return found

    def factor(self, term: str) -> float:
        """What a term's size is multiplied with, effects of its phase included."""
        return self._term(term)[0] * self._term(phase_of(term))[0] * self.scale.get(term, 1.0)

    def composition(self, kind: str) -> tuple[float, float]:
        """(multiple of the sum of its steps that a composition of steps takes, largest share of its floor that any served one came
        to)."""
        return self._term(kind)[0], self.effects.shared.kinds[phase_of(kind)].best

    def expectation(self, sizes: Mapping[str, Number], kind: str = "", noise: Number = 0.0) -> Expectation:
        """Time of a sum of terms. ``kind`` names a composition of steps with an effect of its own; ``noise`` is the relative
        deviation that no effect explains."""
        own, own_variance = self._term(kind) if kind else (1.0, 0.0)
        terms = {name: size * (self.factor(name) * own) for name, size in sizes.items()}
        total: Number = 0.0
        phases: dict[str, Number] = {}
        for name, seconds in terms.items():
            total = total + seconds
            phases[phase_of(name)] = phases.get(phase_of(name), 0.0) + seconds
        spread: Number = 0.0
        for name, seconds in terms.items():
            spread = spread + seconds * seconds * self._term(name)[1]
        for name, seconds in phases.items():
            spread = spread + seconds * seconds * self._term(name)[1]
        variance = divide(spread, maximum(total * total, 1e-60)) + own_variance + noise * noise
        return Expectation(total, variance**0.5, terms)

    def step(self, operators: list[Operator], ceilings: Ceilings, work: Work) -> tuple[list[Number], Expectation, Mix]:
        """Expected seconds of one call of each operator, the whole step, and what it is made of."""
        parts = mix(operators, self.setting, work)
        calls: list[Number] = []
        total: Sizes = {}
        for operator in operators:
            seconds: Number = 0.0
            for term, size in operator_sizes(operator, ceilings, self.setting, parts).items():
                total[term] = total.get(term, 0.0) + size * operator.count
                seconds = seconds + size * self.factor(term)
            calls.append(seconds)
        return calls, self.expectation(total, noise=self.noise(total, parts)), parts

    def noise(self, sizes: Sizes, parts: Mix) -> Number:
        """Relative deviation of a step of these sizes that no effect explains.

        Decode and prefill have one each, weighted by the seconds that they take; the two are added, not squared, since an engine on a
        device errs the same way in both. Messages have that of the phase that they serve, in a mixed step that of the less certain one.
        So a faster part never widens the deviation in seconds."""
        decode, prefill = (self.variance(p) ** 0.5 for p in ("decode", "prefill"))
        both = parts.decodes * parts.prompts
        rest = both * max(decode, prefill) + (1 - parts.prompts) * decode + (1 - parts.decodes) * parts.prompts * prefill
        total: Number = 0.0
        spread: Number = 0.0
        for name, size in sizes.items():
            seconds = size * self.factor(name)
            total = total + seconds
            spread = spread + seconds * {"decode": decode, "prefill": prefill}.get(phase_of(name), rest)
        variance = divide(spread, maximum(total, 1e-30)) ** 2 + self.large_batch_variance(parts)
        result: Number = variance**0.5
        return result

    def variance(self, kind: str) -> float:
        """Relative variance of a kind of observation that no effect explains, that of this setting's groups included."""
        further = self.effects.shared.noise
        own = [further.get(f"{kind} {level} {self.setting.keys.get(level)}", 0.0) for level in NOISE_LEVELS]
        return self.effects.shared.kinds[kind].noise ** 2 + sum(noise**2 for noise in own)

    def large_batch_variance(self, parts: Mix) -> Number:
        """What steps of many decode rows vary more."""
        return self.effects.shared.noise.get("large batch", 0.0) ** 2 * maximum(
            0.0, 1 - LARGE_BATCH / maximum(parts.decode_tokens, 1)
        )

    def level(self, kind: str) -> str:
        """Which evidence there is for a kind of step: engine and device seen together, the engine on other devices of the class, or not
        even that. Served requests are evidence for the steps that they consist of."""
        seen = self.effects.engine.kinds if self.effects.engine else {}
        rows = [seen[k].rows for k in _EVIDENCE.get(kind, (kind,)) if k in seen]
        if not any(self.setting.keys["engine class"] in r for r in rows):
            return ENGINE_UNSEEN
        pair = f"{self.setting.engine} | {self.setting.hardware.id}"
        return KNOWN if any(pair in r for r in rows) else DEVICE_UNSEEN

    def rows(self, kind: str) -> int:
        """Observations behind a kind of step: of this engine on this class of device, else of the engine, else of all engines."""
        seen = self.effects.engine.kinds if self.effects.engine else {}
        held = [seen[k].rows for k in _EVIDENCE.get(kind, (kind,)) if k in seen]
        own = sum(r.get(self.setting.keys["engine class"], 0) for r in held) or sum(r.get(self.setting.engine, 0) for r in held)
        return own or self.effects.shared.kinds[kind].rows.get("all", 0)

    def evidence(self, kind: str) -> str:
        """``fitted n=…`` with the level where it is not ``known``."""
        level = self.level(kind)
        return f"fitted n={self.rows(kind)}" + ("" if level == KNOWN else f" ({level})")

    def around(self, expectation: Expectation, floor: Number, kind: str) -> tuple[Number, Number, Number]:
        """Low, expected and high time: none below the floor, the expected one no closer to it than any observation came."""
        fast, slow = self.multiples(kind)
        expected = maximum(expectation.seconds, floor / self.effects.shared.kinds[kind].best)
        # Reciprocal below and linear above: both stay positive, and a better device never raises them.
        low = minimum(maximum(expectation.seconds / (1 + fast * expectation.deviation), floor), expected)
        return low, expected, expected + slow * expectation.deviation * expectation.seconds

    def multiples(self, kind: str) -> tuple[float, float]:
        """Multiples of the deviation to the fast and to the slow side that hold 80 % of what was seen."""
        ranges = self.effects.shared.kinds[kind].ranges
        return ranges.get(self.level(kind)) or ranges.get(KNOWN) or _NORMAL
