"""Steps of a plan's best answer: the steady state of a replica, the replicas, the bill."""

from __future__ import annotations

import math

from calc.formula import formula_of
from calc.report.explain import places
from calc.report.explain.step import Section, Step, Value
from calc.serving import batching, cost
from calc.serving.plan import Answer
from calc.serving.replica import step_budget


def sections(answer: Answer) -> list[Section]:
    """All steps of an answer, at the judged end of the range."""
    return [Section("Steady state of a replica", tuple(_replica(answer))), Section("Replicas and bill", tuple(_bill(answer)))]


def _replica(answer: Answer) -> list[Step]:
    option = answer.option
    replica, load, at = option.replica, option.load, option.index(answer.replicas)
    assert at is not None
    traffic, part = replica.traffic, option.rules.part
    decode, mixed, full, tail = (float(row[at]) for row in getattr(replica.step_s, part))
    sure = f"{part}, {replica.step_s.evidence}"
    chunk, running = replica.mean, float(replica.in_flight[at])

    def picked(value: object) -> float:
        import numpy as np

        return float(np.broadcast_to(value, replica.in_flight.shape)[at])  # type: ignore[call-overload]

    share = picked(chunk.share)
    mean = batching.mean_step_s(decode, mixed, share)
    limit, rate = float(load.limit[at]), float(load.rate[at])
    tpot, others = float(load.tpot_s[at]), running - 1 if replica.closed else running
    step_values = (
        Value("decode_s", decode, "s", f"a step of {running:,.0f} requests that decode"),
        Value("mixed_s", mixed, "s", f"a step with {picked(chunk.tokens):,.0f} prompt tokens beside {others:,.0f} requests"),
        Value(
            "share",
            share,
            "",
            f"of the steps carry prompt: {traffic.mean_new_tokens:,.0f} tokens per {traffic.mean_output:,.0f} output tokens",
        ),
    )
    by = places.name(batching.mean_step_s)
    steps = [Step("mean step", formula_of(batching.mean_step_s), step_values, float(mean), "s", by, sure)]
    pace = Value("pace", replica.pace, "", "layers of the largest pipeline stage over the mean")
    steps.append(Step("TPOT", "mean_step * pace", (Value("mean_step", float(mean), "s"), pace), tpot, "s", evidence=sure))
    room = (
        Value("room", picked(chunk.room), "tokens", f"of the {step_budget(option.held):,} tokens of a step"),
        Value("prompt", traffic.mean_new_tokens, "tokens"),
        Value("full_s", full * replica.pace / replica.stages, "s", "a step filled with prompt"),
    )
    steps.append(
        Step(
            "prefill alone carries",
            formula_of(batching.prefill_limit),
            room,
            limit,
            "requests/s",
            places.name(batching.prefill_limit),
            sure,
        )
    )
    own = float(batching.prompt_s(tail, picked(replica.tail.per_prompt), replica.stages))
    wait = float(load.ttft_s[at]) - own
    values = (
        Value(
            "wait",
            wait,
            "s",
            f"rest of the running step and queue at {rate:,.3g} of {limit:,.3g} requests/s: {_queue(replica.closed)}",
        ),
        Value(
            "own", own, "s", f"{picked(replica.tail.per_prompt):,.0f} steps of its own prompt of {traffic.tail.new_tokens:,} tokens"
        ),
    )
    steps.append(Step("TTFT", "wait + own", values, float(load.ttft_s[at]), "s", evidence=sure))
    if not replica.closed and rate < limit:
        little = (
            Value("in_flight", running, "requests"),
            Value("mean_output", traffic.mean_output, "tokens"),
            Value("tpot_s", tpot, "s"),
        )
        by = places.name(batching.request_rate)
        steps.append(Step("a replica carries", formula_of(batching.request_rate), little, rate, "requests/s", by, "Little's law"))
    return steps


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
        found = float(math.ceil(demand.request_rate / (1 - demand.headroom) / option.most_rate - 1e-9))
        if found == answer.replicas:
            text = "ceil(request_rate / (1 - headroom) / most_rate - 1e-9)"
            steps.append(Step("replicas", text, values, float(answer.replicas), "replicas"))
    price = option.price
    if price is None or answer.usd_per_hour is None or answer.token_cost is None:
        return steps
    source = price.source if price.source == "given" else places.hardware(answer.deployment, "cloud_price_usd_per_hour", "value")
    each = (Value("price", price.usd_per_hour, "USD/h", f"{price.source}; {source}"), Value("gpus", float(answer.gpus), "GPUs"))
    steps.append(Step("bill", "price * gpus", each, answer.usd_per_hour, "USD/h", places.name(cost.usd_per_hour)))
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
