"""A server that batches continuously, step by step: what the closed forms of a steady state are held against."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache

from calc.operators import work
from calc.serving.deployment import Deployment
from calc.serving.phase import evaluate


@dataclass(frozen=True)
class Seen:
    """Means over the second half of a run: requests/s, and seconds between tokens and to the first one."""

    rate: float
    tpot_s: float
    ttft_s: float


def serve(deployment: Deployment, users: int, prompt: int, output: int, budget: int, steps: int = 4000) -> Seen:
    """``users`` who ask again as soon as they are answered, at the floor of each step. Users start one after another; a waiting prompt
    takes what a step has room for beside the tokens of those that decode."""

    @cache
    def step_s(tokens: int, decoding: int) -> float:
        parts = [work.Work("prefill", (work.Requests(tokens / prompt, prompt, 0, writes_source=True),))] if tokens else []
        parts += [work.decode(decoding, prompt + output // 2)] if decoding else []
        return float(evaluate(deployment, work.mixed(*parts) if len(parts) > 1 else parts[0]).time_s.floor or 0.0)

    now, starts = 0.0, deque(range(users))
    waiting: deque[list[float]] = deque()  # [prompt tokens left, asked at]
    decoding: list[list[float]] = []  # [tokens left, first token at]
    done: list[tuple[float, float, float]] = []  # (finished at, mean gap, time to first token)
    for _ in range(steps):
        if starts:
            starts.popleft()
            waiting.append([prompt, now])
        room, made = budget - len(decoding), []
        running = len(decoding)
        taken = 0
        while waiting and room > 0:
            chunk = int(min(room, waiting[0][0]))
            waiting[0][0] -= chunk
            room, taken = room - chunk, taken + chunk
            if waiting[0][0] == 0:
                made.append(waiting.popleft()[1])
        if not taken and not running:
            continue
        now += step_s(taken, running)
        for one in decoding:
            one[0] -= 1
        ended = [one for one in decoding if one[0] == 0]
        decoding = [one for one in decoding if one[0] > 0]
        for _, first, asked in ended:
            done.append((now, (now - first) / (output - 1), first - asked))
        again = len(ended)
        for asked in made:
            if output == 1:
                done.append((now, 0.0, now - asked))
                again += 1
            else:
                decoding.append([output - 1, now, asked])
        waiting.extend([prompt, now] for _ in range(again))
    late = [d for d in done if d[0] > now / 2]
    return Seen(len(late) / (now / 2), sum(d[1] for d in late) / len(late), sum(d[2] for d in late) / len(late))
