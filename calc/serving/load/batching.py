"""Continuous batching in steady state: how prompts mix into decode steps, what a replica then carries, and how long requests wait.

Closed forms on plain numbers or arrays alike. Sources: Little 1961 (L = lambda W); Agrawal et al. 2024, Sarathi-Serve (chunked
prefill); Kingman 1961 (waiting under general arrivals; exact for Poisson arrivals, Pollaczek-Khinchine); Schweitzer 1979 and Bard
1979 (a closed set of users as mean values).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from calc.arrays import Number, ceil_div, divide, maximum, minimum
from calc.formula import formula
from calc.timing.pipeline import even_stages


@dataclass(frozen=True, slots=True)
class Chunks:
    """How prompts enter the steps: ``tokens`` of prompt in a step that carries any, the ``share`` of the steps that do, and the steps
    ``per_prompt`` that a prompt is cut into. ``room`` is the most prompt tokens that a step has room for."""

    tokens: Number
    share: Number
    per_prompt: Number
    room: Number


def chunks(decoding: Number, arriving: Number, prompt: float, budget: int) -> Chunks:
    """Prompts of ``prompt`` tokens, ``arriving`` prompt tokens per step on average, beside ``decoding`` requests, with at most
    ``budget`` tokens in a step.

    A waiting prompt is taken whole where the budget has room, so most steps carry none and some carry one; from one prompt per step on,
    every step carries the same: T = B (1 + input / output) tokens.
    """
    room = maximum(budget - decoding, 1)
    per_prompt = ceil_div(prompt, room)
    tokens = minimum(maximum(prompt / per_prompt, arriving), room)
    return Chunks(tokens, minimum(divide(arriving, tokens), 1.0), per_prompt, room)


@formula("decode_s + share * (mixed_s - decode_s)")
def mean_step_s(decode_s: Number, mixed_s: Number, share: Number) -> Number:
    """Mean time of a step, that is TPOT, when ``share`` of the steps also carry a chunk of prompt."""
    return decode_s + share * (mixed_s - decode_s)


@formula("max(alone_s, effect * mean_s, least_s)")
def served_step_s(mean_s: Number, effect: float, alone_s: Number, least_s: Number) -> Number:
    """Mean time of a step of a loaded server: what published loads take as a multiple of the sum of their steps (``effect``), but
    never less than that step with one request alone, nor than ``least_s``."""
    return maximum(maximum(alone_s, effect * mean_s), least_s)


@formula("min(floor_s / best, mean_s)")
def least_s(mean_s: Number, floor_s: Number, best: float) -> Number:
    """What the effect of a load never brings a step below: its floor over the largest share of it that any load came to (``best``)."""
    return minimum(floor_s / best, mean_s)


@formula("in_flight / (steps * step_s)")
def request_rate(in_flight: Number, steps: Number, step_s: Number) -> Number:
    """Requests per second that leave with ``in_flight`` of them in their ``steps`` (Little's law: in flight = rate x time in them)."""
    return in_flight / (steps * step_s)


@formula("rate * steps * step_s")
def in_flight(rate: Number, steps: Number, step_s: Number) -> Number:
    """Requests in their ``steps`` at any moment: Little's law the other way round."""
    return rate * steps * step_s


@formula("room / (prompt * full_s)")
def prefill_limit(room: Number, prompt: float, full_s: Number) -> Number:
    """Requests per second whose prompts can be computed when every step is filled to its ``room``."""
    return room / (prompt * full_s)


@formula("(per_prompt * mixed_s + (stages - 1) * largest_s) / stages")
def prompt_s(mixed_s: Number, largest_s: Number, per_prompt: Number, stages: int) -> Number:
    """Time of a prompt's own steps of ``mixed_s`` on average. With several pipeline stages its chunks follow each other through them, and
    the ``largest_s`` of them holds up the others in all but one."""
    return (per_prompt * mixed_s + (stages - 1) * largest_s) / stages


@formula("busy * ((1 - share) * decode_s**2 + share * mixed_s**2) / (2 * (decode_s + share * (mixed_s - decode_s)))")
def residual_s(decode_s: Number, mixed_s: Number, share: Number, busy: Number) -> Number:
    """What is left on average of the step that runs when a request arrives: E[t^2] / 2 E[t], if one runs."""
    second_moment = (1 - share) * decode_s**2 + share * mixed_s**2
    return busy * second_moment / (2 * mean_step_s(decode_s, mixed_s, share))


@formula("rate / limit / (1 - rate / limit) * (arrival_cv2 + prompt_cv2) / 2 / limit")
def queue_s(rate: Number, limit: Number, arrival_cv2: float, prompt_cv2: float) -> Number:
    """Mean wait for prefill of independent users who send ``rate`` requests per second to a server that prefills at most ``limit``:
    u / (1 - u) (ca2 + cs2) / 2 / limit; infinite from u = 1 on."""
    from calc.arrays import where

    used = rate / limit
    wait = divide(used, 1 - used) * ((arrival_cv2 + prompt_cv2) / 2) / limit
    return where(used < 1, wait, float("inf"))


@formula("(users / limit - think_s + sqrt((users / limit - think_s) ** 2 + 4 * think_s / limit)) / 2 - 1 / limit")
def closed_queue_s(users: Number, limit: Number, think_s: Number) -> Number:
    """Mean wait for prefill of a fixed number of ``users`` who ask again as soon as they are answered.

    Prefill is a queue with service 1 / limit, decoding a delay of ``think_s``; an arriving user sees the other users' mean (Bard and
    Schweitzer): R^2 + R (Z - S N) - S Z = 0. One user alone never waits.
    """
    service = 1 / limit
    free = service * users - think_s
    residence = (free + (free**2 + 4 * service * think_s) ** 0.5) / 2
    return maximum(residence - service, 0.0)


@formula("(users - 1) / (2 * limit)")
def together_s(users: Number, limit: Number) -> Number:
    """Mean wait for prefill of ``users`` who ask at the same moment: for half of the others' prompts."""
    return (users - 1) / (2 * limit)


@formula("ceil(layers / stages) * stages / layers")
def stage_pace(layers: int, stages: int) -> float:
    """How much the largest pipeline stage slows the pipe down: its layers over the mean."""
    return stages / even_stages(layers, stages)


def batch_ladder(limit: int) -> Iterator[int]:
    """Batch limits that are tried: every one to 32, then in steps of 8, 16 and 32 like the sizes that engines capture graphs for, then
    in steps of a sixteenth; and ``limit`` itself."""
    size = 1
    while size < limit:
        yield size
        size += 1 if size < 32 else 8 if size < 256 else 16 if size < 512 else 32 if size < 1024 else size // 16
    if limit >= 1:
        yield limit
