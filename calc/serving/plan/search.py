"""The cheapest deployments that carry a demand within latency objectives, by looking at every deployment of the space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from calc.errors import UsageError, did_you_mean, require
from calc.operators import work
from calc.operators.operator import Operator
from calc.operators.step import step_operators
from calc.profiles.catalog import Loaded
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import ModelProfile
from calc.serving import cost, flow
from calc.serving.cost import Price
from calc.serving.deployment import Warnings
from calc.serving.load.answer import Answer, answer
from calc.serving.load.memory import framed, option
from calc.serving.load.objectives import Demand, Objectives, Rules
from calc.serving.load.option import Option
from calc.serving.load.traffic import Traffic
from calc.serving.plan import instances
from calc.serving.plan.space import Space, deployments
from calc.timing import extrapolation

GoalName = Literal["cost", "gpus", "tpot", "ttft", "throughput"]
#: Reasons that are named where nothing on a device can be answered: splits differ in figures alone.
_MOST_REASONS = 3
#: Key to sort by, option and replicas.
Choice = tuple[tuple[float, ...], Option, int]
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
    whole_instances: bool = False
    space: Space = field(default_factory=Space)
    top: int = 5

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise UsageError(f"unknown goal {self.goal!r}", did_you_mean(self.goal, GOALS) or "known: " + ", ".join(GOALS))
        require(self.top, "top", 1, 1000)
        for name, usd in self.prices.items():
            require(usd, f"price of {name}", cost.LEAST_USD)


@dataclass(frozen=True)
class Counts:
    """How many deployments were looked at, fit, and meet the objectives within the GPUs allowed."""

    examined: int
    fit: int
    meet: int


@dataclass(frozen=True)
class Plan:
    """Every option that was looked at, and the best answers (best first; none: nothing meets the objectives)."""

    question: Question = field(repr=False)
    answers: tuple[Answer, ...]
    options: tuple[Option, ...] = field(repr=False)
    counts: Counts
    warnings: Warnings


def plan(question: Question, progress: Callable[[], None] = lambda: None) -> Plan:
    """Look at every deployment of the space. Raises UsageError where no asked device can be answered at all."""
    warnings: list[tuple[str, str]] = []
    priced = _priced(question, warnings)
    options = [o for hardware, price in priced for o in _options(question, hardware, price, warnings, progress)]
    if not options:
        why = "; ".join(message for _, message in warnings) or "no split divides the model on these devices"
        raise UsageError(
            f"no deployment of {question.model.name} can be answered: {why}", "ask for other devices, sizes or engines"
        )
    chosen = [
        (key, option, replicas) for option in options if (found := best_of(option, question.goal)) for key, replicas in [found]
    ]
    chosen = (
        _exact(chosen, question)
        if question.demand.request_rate and question.goal in ("tpot", "ttft")
        else sorted(chosen, key=_first)
    )
    answers = [_answer(option, replicas) for _, option, replicas in _distinct(chosen)[: question.top]]
    answers.sort(key=lambda a: _order(a, question))
    counts = Counts(len(options), sum(o.limit >= 1 for o in options), len(chosen))
    if answers:
        first = answers[0]
        warnings += [*first.deployment.warnings, *first.option.held.warnings, *_rank_warnings(first)]
        warnings += first.deployment.beyond_model(question.traffic.longest)
        warnings += extrapolation.warnings(_operators(first, question.traffic), first.deployment.efficiency)
    return Plan(question, tuple(answers), tuple(options), counts, tuple(dict.fromkeys(warnings)))


def _answer(option: Option, replicas: int) -> Answer:
    """An answer whose bill is that of whole instances where these are what is sold."""
    price = instances.per_gpu_in_use(option, replicas * option.ranks)
    return answer(option if price is option.price else replace(option, price=price), replicas)


def _order(found: Answer, question: Question) -> tuple[float, ...]:
    """The key of an answer at its very load, as ``_key`` at a rung of the ladder. Bills are compared to the millionth."""
    option, part = found.option, "high" if question.conservative else "expected"
    usd = math.inf if found.usd_per_hour is None else float(f"{found.usd_per_hour:.6g}")
    tpot, ttft = float(getattr(found.tpot_s, part)), float(getattr(found.ttft_s, part))
    figure = {"cost": usd, "gpus": float(found.gpus), "tpot": tpot, "ttft": ttft}.get(question.goal)
    if figure is None:
        figure = -(found.request_rate if question.demand.closed else found.sustainable_rate)
    return figure, usd, float(instances.paid_gpus(option, found.gpus)), tpot


def _rank_warnings(chosen: Answer) -> Warnings:
    """What is to be told of data-parallel attention: a number of users is dealt out to its ranks, a rate evenly."""
    demand = chosen.option.rules.demand
    users = demand.users(chosen.replicas) if demand.concurrency is not None else chosen.deployment.sharding.data_ranks
    return flow.warnings(chosen.deployment, users)


def _operators(chosen: Answer, traffic: Traffic) -> Iterator[Operator]:
    """The operators of an answer at its largest batch, prompt and mean context of the request that holds the objectives."""
    held, tail = chosen.deployment, traffic.tail
    for step in (work.prefill(1, tail.input_len, tail.cached_len), work.decode(chosen.batch_limit, tail.mean_context)):
        yield from step_operators(held.model.profile, held.sharding, held.numbers, step, held.fusion)


def best_of(option: Option, goal: GoalName) -> tuple[tuple[float, ...], int] | None:
    """(key to sort by, replicas) of the best deployment of an option: the figure to minimise, then USD, GPUs that are paid for and TPOT.
    None where the demand cannot be met with the GPUs allowed."""
    fewest = option.fewest_replicas
    if option.most_replicas < 1 or fewest is None or fewest > option.most_replicas:
        return None
    paid = instances.paid_gpus(option, fewest * option.ranks) // option.ranks
    counts = list(range(fewest, min(paid, option.most_replicas) + 1))  # a GPU that is paid for and idle saves nothing
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
    usd = math.inf if (known := instances.bill(option, gpus)) is None else known
    tpot = float(option.load.tpot_s[at])
    figure = {"cost": usd, "gpus": float(gpus), "tpot": tpot, "ttft": float(option.load.ttft_s[at])}.get(goal)
    if figure is None:
        figure = -((option.rate(replicas) or 0.0) if option.rules.demand.closed else replicas * option.most_rate)
    return figure, usd, float(instances.paid_gpus(option, gpus)), tpot


def _first(choice: Choice) -> tuple[float, ...]:
    return choice[0]


def _exact(chosen: list[Choice], question: Question) -> list[Choice]:
    """Best first by the latency at the very rate. The rungs beside it bound it, so few options have to be looked at closely."""
    name: Literal["tpot_s", "ttft_s"] = "tpot_s" if question.goal == "tpot" else "ttft_s"

    def least(choice: Choice) -> float:
        at = choice[1].index(choice[2])
        return float(getattr(choice[1].load, name)[at - 1]) if at else 0.0

    exact: list[Choice] = []
    waiting = sorted(chosen, key=least)
    while waiting and (len(exact) < question.top or least(waiting[0]) <= sorted(exact, key=_first)[question.top - 1][0][0]):
        _, option, replicas = waiting.pop(0)
        close = option.at_rate(replicas)
        exact.append((_key(close, replicas, question.goal), close, replicas))
    return sorted(exact, key=_first) + sorted(waiting, key=_first)


def _distinct(chosen: list[Choice]) -> list[Choice]:
    """The best of every device, format, engine and limit first, then the others: five variants of one split say little."""
    seen: set[tuple[object, ...]] = set()
    first: list[Choice] = []
    others: list[Choice] = []
    for item in chosen:
        inputs, memory = item[1].deployment.inputs, item[1].deployment.memory
        label = (
            *(inputs[k] for k in ("hardware", "quantization", "kv_cache_dtype", "engine")),
            *(memory.max_num_seqs, memory.max_num_batched_tokens),
        )
        (others if label in seen else first).append(item)
        seen.add(label)
    return first + others


def _priced(question: Question, warnings: list[tuple[str, str]]) -> list[tuple[Loaded[HardwareProfile], Price | None]]:
    """Each device with its price. A device without one cannot be ranked by cost: it is left out with a warning."""
    found: list[tuple[Loaded[HardwareProfile], Price | None]] = []
    unknown = []
    for hardware in question.hardware:
        given = question.prices.get(hardware.profile.id)
        price = cost.profile_price(hardware.profile) if given is None else Price(given, instances.GIVEN)
        if price is not None and given is None and question.whole_instances:
            price = replace(price, instance=instances.sold_as(hardware.profile))
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
    providers = {h.profile.id: _provider(h.profile, price) for h, price in found if price}
    if len(set(providers.values())) > 1:
        sold = {p: ", ".join(name for name, other in providers.items() if other == p) for p in providers.values()}
        each = "; ".join(f"{names} ({provider})" for provider, names in sold.items())
        warnings.append(("prices_differ", f"prices come from different providers: {each}. --price sets what you are offered"))
    return found


def _provider(hardware: HardwareProfile, price: Price) -> str:
    known = hardware.cloud_price_usd_per_hour
    return "yours" if price.source == instances.GIVEN or known is None else known.provider or "unnamed"


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
