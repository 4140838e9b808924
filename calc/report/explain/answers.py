"""Steps of a plan's best answer: the steady state of a replica, the replicas, the bill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calc.formula import formula_of
from calc.report.explain import places
from calc.report.explain.step import Section, Step, Value
from calc.serving import cost
from calc.serving.load import batching
from calc.serving.load.answer import Answer
from calc.serving.load.option import replicas_for
from calc.serving.load.replica import Load, Replica, step_budget


def sections(answer: Answer) -> list[Section]:
    """All steps of an answer, at the judged end of the range."""
    return [steady_state(answer), Section("Replicas and bill", tuple(_bill(answer)))]


def steady_state(answer: Answer) -> Section:
    """Latency and rate of a replica under its share of the load."""
    return Section("Steady state of a replica", tuple(_replica(answer)))


@dataclass(frozen=True)
class _At:
    """An answer at its load: the replica, the figures and the step times of one point."""

    replica: Replica
    load: Load
    index: int
    part: str
    composition: str
    sure: str
    decode_s: float
    mixed_s: float
    full_s: float

    def pick(self, value: Any) -> float:
        """An array's figure at the point."""
        import numpy as np

        return float(np.broadcast_to(value, self.replica.in_flight.shape)[self.index])


def _at(answer: Answer) -> _At:
    option, replica = answer.option, answer.option.replica
    index, part = option.index(answer.replicas), option.rules.part
    assert index is not None
    steps = (float(row[index]) for row in getattr(replica.step_s, part)[:3])
    return _At(replica, option.load, index, part, option.rules.composition, f"{part}, {replica.step_s.evidence}", *steps)


def _replica(answer: Answer) -> list[Step]:
    at = _at(answer)
    steps = [*_mean_step(at), _prefill_limit(at, step_budget(answer.option.held)), _ttft(at)]
    rate = at.pick(at.load.rate)
    if not at.replica.closed and rate < at.pick(at.load.limit):
        little = (
            Value("in_flight", at.pick(at.replica.in_flight), "requests"),
            Value("steps", at.pick(at.replica.steps), "", "of a request: those of its prompt, and those that decode"),
            Value("step_s", at.pick(at.load.tpot_s) * at.replica.tokens_per_step, "s", "served_step * pace"),
        )
        by = places.name(batching.request_rate)
        steps.append(Step("a replica carries", formula_of(batching.request_rate), little, rate, "requests/s", by, "Little's law"))
    return steps


def _mean_step(at: _At) -> list[Step]:
    chunk, traffic, running = at.replica.mean, at.replica.traffic, at.pick(at.replica.in_flight)
    beside = at.pick(at.replica.decoding)
    share = at.pick(chunk.share)
    mean = float(batching.mean_step_s(at.decode_s, at.mixed_s, share))
    each = f"{traffic.mean_new_tokens:,.0f} prompt tokens per {traffic.mean_decode_steps:,.0f} decode steps"
    values = (
        Value("decode_s", at.decode_s, "s", f"a step without prompt at {running:,.2f} requests in flight"),
        Value(
            "mixed_s",
            at.mixed_s,
            "s",
            f"a step with {at.pick(chunk.tokens):,.0f} prompt tokens beside {beside:,.2f} requests that decode",
        ),
        Value("share", share, "", f"of the steps carry prompt: {each}"),
    )
    steps = [Step("mean step", formula_of(batching.mean_step_s), values, mean, "s", places.name(batching.mean_step_s), at.sure)]
    return [*steps, *_served(at, mean, share)]


def _served(at: _At, mean: float, share: float) -> list[Step]:
    """What loaded servers make of the sum of steps, and TPOT from it."""
    replica, part = at.replica, at.part
    floors = [float(replica.step_s.floor[row][at.index]) for row in (0, 1)]  # type: ignore[index]
    least = float(batching.least_s(mean, batching.mean_step_s(floors[0], floors[1], share), replica.effect.best))
    served = (
        Value("mean_s", mean, "s"),
        Value("effect", replica.effect.factor, "", f"{at.composition}: fitted on served requests, applied once, here"),
        Value("alone_s", float(getattr(replica.alone_s, part)[0]), "s", "the step of one request alone"),
        Value(
            "least_s",
            least,
            "s",
            f"at most the floor of the mean step over {replica.effect.best:.3g}, the largest share that was reached",
        ),
    )
    pace = Value("pace", replica.pace, "", "layers of the largest pipeline stage over the mean")
    tpot = at.pick(at.load.tpot_s)
    whole = Value("served_step", tpot * replica.tokens_per_step / replica.pace, "s")
    formula, by = formula_of(batching.served_step_s), places.name(batching.served_step_s)
    steps = [Step("mean step under load", formula, served, whole.value, "s", by, at.sure)]
    if replica.tokens_per_step == 1:
        return [*steps, Step("TPOT", "served_step * pace", (whole, pace), tpot, "s", evidence=at.sure)]
    made = Value("tokens_per_step", replica.tokens_per_step, "tokens", "of a request in a round of drafts and their check")
    return [*steps, Step("TPOT", "served_step * pace / tokens_per_step", (whole, pace, made), tpot, "s", evidence=at.sure)]


def _prefill_limit(at: _At, budget: int) -> Step:
    filled = at.pick(at.replica.served_s(at.part, 2, at.full_s, at.replica.step_s.floor[2][at.index]))  # type: ignore[index]
    groups = at.replica.stages * at.replica.data_ranks
    each = f", over {groups} prompts at once" if groups > 1 else ""
    values = (
        Value("room", at.pick(at.replica.mean.room), "tokens", f"of the {budget:,} tokens of a step"),
        Value("prompt", at.replica.traffic.mean_new_tokens, "tokens"),
        Value("full_s", filled / groups, "s", f"a step filled with prompt, under load{each}"),
    )
    by = places.name(batching.prefill_limit)
    return Step(
        "prefill alone carries", formula_of(batching.prefill_limit), values, at.pick(at.load.limit), "requests/s", by, at.sure
    )


def _ttft(at: _At) -> Step:
    pieces, ttft = at.pick(at.replica.tail.per_prompt), at.pick(at.load.ttft_s)
    own = at.pick(at.replica.own_prompt_s(at.part))
    queue = f"{at.pick(at.load.rate):,.3g} of {at.pick(at.load.limit):,.3g} requests/s: {_queue(at.replica.closed)}"
    prompt = f"{pieces:,.0f} steps of its own prompt of {at.replica.traffic.tail.new_tokens:,} tokens"
    wait = Value("wait", ttft - own, "s", f"rest of the running step and queue at {queue}")
    return Step("TTFT", "wait + own", (wait, Value("own", own, "s", prompt)), ttft, "s", evidence=at.sure)


def _queue(closed: bool) -> str:
    return places.name(batching.closed_queue_s if closed else batching.queue_s)


def _bill(answer: Answer) -> list[Step]:
    option, demand = answer.option, answer.option.rules.demand
    steps = []
    if demand.request_rate is not None and option.fewest_replicas == answer.replicas:
        values = (
            Value("request_rate", demand.request_rate, "requests/s", "--request-rate"),
            Value("headroom", demand.headroom, "", "--headroom"),
            Value(
                "most_rate",
                option.most_rate,
                "requests/s",
                f"of a replica within the objectives, at {answer.batch_limit:,} requests at once",
            ),
        )
        by = places.name(replicas_for)
        steps.append(Step("replicas", formula_of(replicas_for), values, float(answer.replicas), "replicas", by))
    price = option.price
    if price is None or answer.usd_per_hour is None or answer.token_cost is None:
        return steps
    source = price.source if price.source == "given" else places.hardware(answer.deployment, "cloud_price_usd_per_hour", "value")
    each = (Value("price", price.usd_per_hour, "USD/h", f"{price.source}; {source}"), Value("gpus", float(answer.gpus), "GPUs"))
    steps.append(Step("bill", formula_of(cost.usd_per_hour), each, answer.usd_per_hour, "USD/h", places.name(cost.usd_per_hour)))
    tokens = (
        Value("usd_hour", answer.usd_per_hour, "USD/h"),
        Value("tokens_per_s", answer.output_tokens_per_s, "tokens/s", "under this load"),
    )
    by = places.name(cost.usd_per_million)
    formula = formula_of(cost.usd_per_million)
    steps.append(Step("per million output tokens", formula, tokens, answer.token_cost.output_all_in, "USD", by))
    tdp = answer.deployment.hardware.profile.tdp_w
    if tdp and answer.joules_per_output_token is not None:
        energy = (
            Value("tdp_w", tdp, "W", places.hardware(answer.deployment, "tdp_w")),
            Value("gpus", float(answer.gpus), "GPUs"),
            Value("tokens_per_s", answer.output_tokens_per_s, "tokens/s"),
        )
        by = places.name(cost.joules_per_token)
        steps.append(
            Step(
                "energy per output token, at most",
                formula_of(cost.joules_per_token),
                energy,
                answer.joules_per_output_token,
                "J",
                by,
                "upper bound",
            )
        )
    return steps
