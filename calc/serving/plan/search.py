"""The cheapest deployments that carry a demand within latency objectives, by looking at every deployment of the space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate

from calc.errors import UsageError, did_you_mean, require
from calc.operators import work
from calc.operators.operator import Operator
from calc.operators.step import step_operators
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.serving import cost
from calc.serving.cost import Price, TokenCost
from calc.serving.deployment import Deployment, Warnings
from calc.serving.load.traffic import Traffic
from calc.serving.plan.memory import framed, option
from calc.serving.plan.option import Demand, GoalName, Objectives, Option, Rules, Shortfall
from calc.serving.plan.space import Space, deployments
from calc.timing import extrapolation
from calc.timing.step_time import Range

#: Reasons that are named where nothing on a device can be answered: splits differ in figures alone.
_MOST_REASONS = 3
GOALS: tuple[GoalName, ...] = ("cost", "gpus", "tpot", "ttft", "throughput")


@dataclass(frozen=True)
class Question:
    """What is asked. ``prices`` (USD per GPU and hour, by profile id) replace those of the profiles."""

    model: Loaded[ModelProfile]
    hardware: tuple[Loaded[HardwareProfile], ...]
    traffic: Traffic
    objectives: Objectives = field(default_factory=Objectives)
    demand: Demand = field(default_factory=Demand)
    goal: GoalName = "cost"
    conservative: bool = False
    prices: dict[str, float] = field(default_factory=dict)
    space: Space = field(default_factory=Space)
    top: int = 5

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise UsageError(f"unknown goal {self.goal!r}", did_you_mean(self.goal, GOALS) or "known: " + ", ".join(GOALS))
        require(self.top, "top", 1, 1000)


@dataclass(frozen=True)
class Answer:
    """A deployment that meets everything: ``replicas`` of an option, each with ``in_flight`` requests under the demand.

    ``batch_limit`` is the most requests at once at which the objectives hold, ``sustainable_rate`` (requests/s, all replicas) what it
    carries there; ``limited_by`` says what fails one step further. ``longest_step_s`` is a step with a chunk of prompt: the largest
    gap between two tokens.
    """

    option: Option
    replicas: int
    batch_limit: int
    in_flight: float
    ttft_s: Range
    tpot_s: Range
    e2e_s: Range
    longest_step_s: float
    request_rate: float
    sustainable_rate: float
    output_tokens_per_s: float
    usd_per_hour: float | None
    token_cost: TokenCost | None
    joules_per_output_token: float | None
    limited_by: Shortfall
    decode_bound: str
    prefill_bound: str

    @property
    def deployment(self) -> Deployment:
        """The deployment of one replica."""
        return self.option.deployment

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.option.ranks


@dataclass(frozen=True)
class Counts:
    """How many deployments were looked at, fit, and meet the objectives within the GPUs allowed."""

    examined: int
    fit: int
    meet: int


@dataclass(frozen=True)
class Plan:
    """Every option that was looked at, and the best answers (best first; none: nothing meets the objectives)."""

    question: Question
    answers: tuple[Answer, ...]
    options: tuple[Option, ...]
    counts: Counts
    warnings: Warnings


def plan(question: Question, progress: Callable[[], None] = lambda: None) -> Plan:
    """Look at every deployment of the space. Raises UsageError where no asked device can be answered at all."""
    warnings: list[tuple[str, str]] = []
    priced = _priced(question, warnings)
    options = [o for hardware, price in priced for o in _options(question, hardware, price, warnings, progress)]
    if not options:
        why = "; ".join(message for _, message in warnings) or "no split divides the model on these devices"
        raise UsageError(f"no deployment of {question.model.name} can be answered: {why}")
    chosen = [
        (key, option, replicas) for option in options if (found := best_of(option, question.goal)) for key, replicas in [found]
    ]
    chosen.sort(key=lambda c: c[0])
    answers = [answer(option, replicas) for _, option, replicas in _distinct(chosen)[: question.top]]
    counts = Counts(len(options), sum(o.limit >= 1 for o in options), len(chosen))
    if answers:
        first = answers[0]
        warnings += [*first.deployment.warnings, *first.option.held.warnings]
        warnings += extrapolation.warnings(_operators(first, question.traffic), first.deployment.efficiency)
    return Plan(question, tuple(answers), tuple(options), counts, tuple(dict.fromkeys(warnings)))


def _operators(chosen: Answer, traffic: Traffic) -> Iterator[Operator]:
    """The operators of an answer at its largest batch, prompt and mean context of the request that holds the objectives."""
    held, tail = chosen.deployment, traffic.tail
    for step in (work.prefill(1, tail.input_len, tail.cached_len), work.decode(chosen.batch_limit, tail.mean_context)):
        yield from step_operators(held.model.profile, held.sharding, held.numbers, step, held.fusion)


def best_of(option: Option, goal: GoalName) -> tuple[tuple[float, ...], int] | None:
    """(key to sort by, replicas) of the best deployment of an option: the figure to minimise, then USD, GPUs and TPOT. None where the
    demand cannot be met with the GPUs allowed."""
    fewest = option.fewest_replicas
    if option.most_replicas < 1 or fewest is None or fewest > option.most_replicas:
        return None
    counts = [fewest]
    if goal in ("tpot", "ttft", "throughput"):
        # More replicas never slow independent users down; a fixed number of users may be dealt out in several ways.
        many = option.rules.demand.concurrency is not None
        counts = list(range(fewest, option.most_replicas + 1)) if many else [option.most_replicas]
    keys = [(_key(option, replicas, goal), replicas) for replicas in counts if option.index(replicas) is not None]
    return min(keys, default=None)


def _key(option: Option, replicas: int, goal: GoalName) -> tuple[float, ...]:
    at = option.index(replicas)
    assert at is not None
    gpus = replicas * option.ranks
    usd = cost.usd_per_hour(option.price, gpus) if option.price else math.inf
    tpot = float(option.load.tpot_s[at])
    figure = {"cost": usd, "gpus": float(gpus), "tpot": tpot, "ttft": float(option.load.ttft_s[at])}.get(goal)
    if figure is None:
        figure = -replicas * (float(option.load.rate[at]) if option.rules.demand.closed else option.most_rate)
    return figure, usd, float(gpus), tpot


def _distinct(chosen: list[tuple[tuple[float, ...], Option, int]]) -> list[tuple[tuple[float, ...], Option, int]]:
    """The best of every device, format and engine first, then the others: five variants of one split say little."""
    seen: set[tuple[str, ...]] = set()
    first: list[tuple[tuple[float, ...], Option, int]] = []
    others: list[tuple[tuple[float, ...], Option, int]] = []
    for item in chosen:
        inputs = item[1].deployment.inputs
        label = tuple(str(inputs[k]) for k in ("hardware", "quantization", "kv_cache_dtype", "engine"))
        (others if label in seen else first).append(item)
        seen.add(label)
    return first + others


def _priced(question: Question, warnings: list[tuple[str, str]]) -> list[tuple[Loaded[HardwareProfile], Price | None]]:
    """Each device with its price. A device without one cannot be ranked by cost: it is left out with a warning."""
    found: list[tuple[Loaded[HardwareProfile], Price | None]] = []
    unknown = []
    for hardware in question.hardware:
        given = question.prices.get(hardware.profile.id)
        price = cost.profile_price(hardware.profile) if given is None else Price(given, "given")
        if price is None:
            unknown.append(hardware.profile.id)
        if price is not None or question.goal != "cost":
            found.append((hardware, price))
    if unknown and not found:
        raise UsageError(
            f"no price is known for {', '.join(unknown)}",
            f"give --price {unknown[0]}=USD_PER_GPU_HOUR, or --minimise gpus",
        )
    left = "left out of the cost ranking" if question.goal == "cost" else "answered without cost"
    warnings += [
        ("price_unknown", f"no price is known for {name}: {left}; give --price {name}=USD_PER_GPU_HOUR") for name in unknown
    ]
    return found


def _options(
    question: Question,
    hardware: Loaded[HardwareProfile],
    price: Price | None,
    warnings: list[tuple[str, str]],
    progress: Callable[[], None],
) -> list[Option]:
    rules = Rules(question.traffic, question.objectives, question.demand, question.space.max_gpus, question.conservative)
    base = question.space.base
    space = replace(question.space, base=replace(base, memory=framed(base.memory, question.traffic)))
    refused: dict[str, int] = {}
    found = []
    for deployment, draft in deployments(space, question.model, hardware, refused):
        if not deployment.has_rates:
            refused |= {message: 1 for code, message in deployment.warnings if code in ("no_rate", "no_link")}
            continue
        try:
            found.append(option(deployment, price, rules, draft))
        except UsageError as error:  # more left to the host than this split's share of the layers
            refused[error.message] = refused.get(error.message, 0) + 1
            continue
        progress()
    if not found:
        warnings += [("not_answered", message) for message in list(refused)[:_MOST_REASONS]]
    return found


def answer(option: Option, replicas: int) -> Answer:
    """Everything about ``replicas`` of an option under the demand."""
    at, best = option.index(replicas), option.best
    assert at is not None
    assert best is not None
    demand, traffic, load = option.rules.demand, option.rules.traffic, option.load
    ends = {part: option.replica.at(part) for part in ("floor", "low", "expected", "high")}

    def spread(name: str) -> Range:
        # Waits do not grow with the step alone, so an end of the range may overtake its neighbour.
        floor, low, expected, high = accumulate((float(getattr(load, name)[at]) for load in ends.values()), max)
        return Range(floor, low, expected, high, option.replica.step_s.evidence)

    rate = demand.request_rate if demand.request_rate is not None else replicas * float(load.rate[at])
    output = rate * traffic.mean_output
    gpus, price, tdp = replicas * option.ranks, option.price, option.deployment.hardware.profile.tdp_w
    usd = cost.usd_per_hour(price, gpus) if price else None
    share = float(load.prefill_share[at])
    decode, mixed = ({k: float(v[at]) for k, v in shares.items()} for shares in option.replica.bounds)
    added = {k: mixed[k] - decode[k] for k in mixed}
    return Answer(
        option=option,
        replicas=replicas,
        batch_limit=max(1, int(option.replica.in_flight[best])),
        in_flight=float(option.replica.in_flight[at]),
        ttft_s=spread("ttft_s"),
        tpot_s=spread("tpot_s"),
        e2e_s=spread("e2e_s"),
        longest_step_s=float(load.longest_step_s[at]),
        request_rate=rate,
        sustainable_rate=replicas * option.most_rate,
        output_tokens_per_s=output,
        usd_per_hour=usd,
        token_cost=cost.token_cost(usd, rate * traffic.mean_input, output, share) if usd is not None else None,
        joules_per_output_token=cost.joules_per_token(tdp, gpus, output) if tdp else None,
        limited_by=option.limited_by(),
        decode_bound=max(decode, key=lambda k: decode[k]),
        prefill_bound=max(added, key=lambda k: added[k]),
    )
