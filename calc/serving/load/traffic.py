"""The requests that a deployment serves: lengths of prompts and outputs, what of a prompt is cached, how unevenly they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist, fmean, pvariance

from calc.errors import UsageError
from calc.operators.work import mean_context

#: Classes that a spread of lengths is cut into, each an equal share of the requests.
CLASSES = 8
#: Share of the requests whose latency holds an objective when lengths are spread.
TAIL = 0.95


@dataclass(frozen=True, slots=True)
class Request:
    """Tokens of one request; ``cached_len`` of the prompt are found in the prefix cache: at most all but the last one, which engines
    compute for its logits."""

    input_len: int
    output_len: int
    cached_len: int = 0

    def __post_init__(self) -> None:
        if self.cached_len >= self.input_len:
            object.__setattr__(self, "cached_len", self.input_len - 1)

    @property
    def new_tokens(self) -> int:
        """Prompt tokens that prefill computes."""
        return self.input_len - self.cached_len

    @property
    def decode_steps(self) -> int:
        """Steps after its prompt's, which makes the first token."""
        return self.output_len - 1

    @property
    def mean_context(self) -> int:
        """Keys that its decode steps see on average, the new token included."""
        return int(mean_context(self.input_len, self.output_len))


@dataclass(frozen=True)
class Traffic:
    """Equally frequent ``requests``. ``tail`` is the one whose latency holds the objectives, ``longest`` the most tokens of any.

    ``prefix`` tokens of the prompts are common to all requests: their cache is held once. ``arrival_cv2`` is the squared coefficient
    of variation of the times between arrivals: 1 for independent users (Poisson). ``request_rate`` (requests/s) is known of a recorded
    trace only.
    """

    requests: tuple[Request, ...]
    tail: Request
    longest: int
    prefix: int = 0
    arrival_cv2: float = 1.0
    request_rate: float | None = None

    @property
    def mean_output(self) -> float:
        """Mean output tokens."""
        return fmean(r.output_len for r in self.requests)

    @property
    def mean_decode_steps(self) -> float:
        """Mean decode steps of a request, 0 where all of them stop at their first token."""
        return fmean(r.decode_steps for r in self.requests)

    @property
    def mean_input(self) -> float:
        """Mean prompt tokens, cached ones included."""
        return fmean(r.input_len for r in self.requests)

    @property
    def mean_new_tokens(self) -> float:
        """Mean prompt tokens that prefill computes."""
        return fmean(r.new_tokens for r in self.requests)

    @property
    def mean_context(self) -> float:
        """Keys that a decode step sees, averaged over all decode steps: long outputs are in flight for longer."""
        steps = [r.decode_steps for r in self.requests] if self.mean_decode_steps else [1] * len(self.requests)
        return sum(n * r.mean_context for n, r in zip(steps, self.requests, strict=True)) / sum(steps)

    @property
    def prompt_cv2(self) -> float:
        """Squared coefficient of variation of the prompt tokens to compute."""
        return pvariance(r.new_tokens for r in self.requests) / self.mean_new_tokens**2

    @property
    def in_flight(self) -> list[tuple[float, int]]:
        """(share, mean context) of the requests in flight at any moment, the step of their prompt included."""
        steps = sum(r.output_len for r in self.requests)
        return [(r.output_len / steps, r.mean_context) for r in self.requests]

    @property
    def at_full_length(self) -> list[tuple[float, int]]:
        """(share, tokens) of the same requests if all were at their last token."""
        return [(share, r.input_len + r.output_len) for (share, _), r in zip(self.in_flight, self.requests, strict=True)]

    def cached_in_blocks(self, block: int) -> Traffic:
        """Prefix hits rounded down to whole blocks, as engines match them."""

        def whole(request: Request) -> Request:
            return replace(request, cached_len=request.cached_len // block * block)

        return replace(self, requests=tuple(map(whole, self.requests)), tail=whole(self.tail))


def uniform(input_len: int, output_len: int, cached_len: int = 0) -> Traffic:
    """All requests alike."""
    request = Request(input_len, output_len, cached_len)
    return Traffic((request,), request, input_len + output_len, cached_len)


def quantile(percentiles: dict[float, int], share: float) -> int:
    """The length below which ``share`` of the requests lie. Logarithms of lengths are taken as piecewise linear in the normal score:
    two percentiles make a log-normal distribution, one a constant; none exceeds p100 where it is given."""
    import math

    normal = NormalDist()
    top = percentiles.get(1.0)
    known = sorted((normal.inv_cdf(p), math.log(v)) for p, v in percentiles.items() if 0.0 < p < 1.0)
    if not known:
        return int(percentiles[1.0])
    score = normal.inv_cdf(share)
    if len(known) == 1:
        value = known[0][1]
    else:
        at = next((i for i, (z, _) in enumerate(known[1:-1], 1) if score < z), len(known) - 1)
        (z0, v0), (z1, v1) = known[at - 1], known[at]
        value = v0 + (v1 - v0) * (score - z0) / (z1 - z0)
    found = max(1, round(math.exp(value)))
    return min(found, top) if top else found


def spread(inputs: dict[float, int], outputs: dict[float, int], cached_len: int = 0) -> Traffic:
    """Lengths from percentiles (share below → tokens); prompts and outputs independent of each other. ``longest`` takes of each
    list the 99th percentile, or the largest one given."""
    shares = [(i + 0.5) / CLASSES for i in range(CLASSES)]
    requests = tuple(
        Request(quantile(inputs, share), quantile(outputs, shares[partner]), cached_len)
        for share, partner in zip(shares, _UNRELATED, strict=True)
    )
    longest = _longest(inputs) + _longest(outputs)
    return Traffic(requests, Request(quantile(inputs, TAIL), quantile(outputs, TAIL), cached_len), longest, cached_len)


def _longest(percentiles: dict[float, int]) -> int:
    """The 99th percentile, or the largest one given; a plain number is its own largest."""
    last = max(0.99, *percentiles)
    return percentiles[1.0] if last == 1.0 else max(quantile(percentiles, last), *percentiles.values())


#: An order of the classes without correlation to 0..7, by rank and for log-normal lengths: prompts and outputs are independent.
_UNRELATED = (1, 6, 2, 5, 4, 3, 7, 0)


def trace(requests: Sequence[Request], arrivals: Sequence[float] | None = None) -> Traffic:
    """What a recorded trace says: requests sorted by prompt and cut into classes of equal share; arrival times (s) give the rate and
    how uneven it is."""
    if not requests:
        raise UsageError("the trace holds no requests", "one row a request")
    rate, cv2 = None, 1.0
    if arrivals is not None and len(arrivals) > 1:
        times = sorted(arrivals)
        gaps = [b - a for a, b in pairwise(times)]
        span = times[-1] - times[0]
        if span <= 0:
            raise UsageError(
                "all requests of the trace arrive at one moment", "arrivals are seconds; leave the column out if unknown"
            )
        rate, cv2 = len(gaps) / span, pvariance(gaps) / fmean(gaps) ** 2
    ordered = sorted(requests, key=lambda r: (r.input_len, r.output_len))
    count = min(CLASSES, len(ordered))
    classes = [ordered[len(ordered) * i // count : len(ordered) * (i + 1) // count] for i in range(count)]
    means = tuple(
        Request(*(round(fmean(getattr(r, name) for r in part)) for name in ("input_len", "output_len", "cached_len")))
        for part in classes
    )
    longest = max(r.input_len + r.output_len for r in ordered)
    return Traffic(means, _tail(ordered), longest, min(r.cached_len for r in ordered), cv2, rate)


def _tail(requests: Sequence[Request]) -> Request:
    def at(name: str) -> int:
        values = sorted(getattr(r, name) for r in requests)
        return int(values[min(len(values) - 1, int(TAIL * len(values)))])

    return Request(at("input_len"), at("output_len"), sorted(r.cached_len for r in requests)[int((1 - TAIL) * len(requests))])
