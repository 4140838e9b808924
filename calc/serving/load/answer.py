"""What a deployment does under a demand: latencies with their ranges, rates, the bill, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from calc.serving import cost
from calc.serving.cost import TokenCost
from calc.serving.deployment import Deployment
from calc.serving.load.objectives import Shortfall
from calc.serving.load.option import Option
from calc.timing.step_time import Range
from calc.units import format_number, format_seconds


@dataclass(frozen=True)
class Answer:
    """A deployment that meets everything: ``replicas`` of an option, each with ``in_flight`` requests under the demand: those whose
    prompt or decode steps run; of a fixed number of users all of the busiest replica.

    ``batch_limit`` is the most requests at once at which the objectives hold, ``sustainable_rate`` (requests/s, all replicas) what it
    carries there; ``limited_by`` says what fails one step further. ``longest_step_s`` is the largest gap between two tokens: a step with
    a chunk of another's prompt, where there is another.
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

    def __repr__(self) -> str:
        times = f"TTFT {format_seconds(self.ttft_s.expected)}, TPOT {format_seconds(self.tpot_s.expected)}"
        return f"<Answer: {self.replicas} x {self.deployment!r}, {times}, {format_number(self.request_rate)} requests/s>"

    @property
    def deployment(self) -> Deployment:
        """The deployment of one replica."""
        return self.option.deployment

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.option.ranks


def answer(option: Option, replicas: int) -> Answer:
    """Everything about ``replicas`` of an option under the demand, at its very load."""
    option = option.at_rate(replicas)
    at, best, rate = option.index(replicas), option.best, option.rate(replicas)
    assert at is not None
    assert best is not None
    assert rate is not None
    traffic, load = option.rules.traffic, option.load
    judged = Range.PARTS.index(option.rules.part)
    ends = [option.replica.at(part, load.rate) for part in Range.PARTS]

    def spread(name: str) -> Range:
        # Waits do not grow with the step alone, so an end of the range may overtake its neighbour; the judged one stands.
        times = [float(getattr(end, name)[at]) for end in ends]
        below, above = accumulate(times[judged::-1], min), accumulate(times[judged:], max)
        floor, low, expected, high = [*list(below)[:0:-1], *above]
        return Range(floor, low, expected, high, option.replica.step_s.evidence)

    output = rate * traffic.mean_output
    gpus, price, tdp = replicas * option.ranks, option.price, option.deployment.hardware.profile.tdp_w
    usd = cost.usd_per_hour(price, gpus) if price else None
    share = float(load.prefill_share[at])
    decode, mixed = ({k: float(v[at]) for k, v in shares.items()} for shares in option.replica.bounds)
    added = {k: mixed[k] - decode[k] for k in mixed}
    prompt = added if max(added.values()) > 0 else mixed  # a prompt of one token is a step like any other
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
        prefill_bound=max(prompt, key=lambda k: prompt[k]),
    )
