"""The life of a request: its timeline, the latency of each token as the context grows, and the same tokens without a cache."""

from __future__ import annotations

from calc.report.estimate import title
from calc.report.pictures.picture import Axis, Band, Chart, Mark, Picture, Rule, Series, Share, Stack, time_unit
from calc.serving.chunking import ChunkedPrefill
from calc.serving.deployment import Deployment
from calc.serving.life import Life
from calc.serving.request import Workload
from calc.serving.speculation import Speculation
from calc.units import format_count, format_number, format_percent, format_seconds

#: Points of a line, and chunks of a prompt that have a part of the timeline of their own.
_POINTS, _CHUNKS = 97, 4


def picture(
    deployment: Deployment, workload: Workload, life: Life, chunked: ChunkedPrefill | None, speculation: Speculation | None
) -> Picture:
    """The timeline, and where there are steps beyond the first token the latency of each, with and without a cache."""
    timeline = _timeline(deployment, workload, life, chunked)
    if len(life.token) < 2:
        return Picture((timeline,))
    return Picture((timeline, _latency(life, chunked, speculation), _without_cache(life)))


def _timeline(deployment: Deployment, workload: Workload, life: Life, chunked: ChunkedPrefill | None) -> Stack:
    """Prefill (or the steps that carry its chunks) and decode on one axis of time."""
    new = workload.input_len - min(workload.cached_len, workload.input_len - 1)
    parts = [(f"prefill, {new:,} tokens", life.prefill_s)]
    if chunked:
        parts = [(f"chunk {i}, {c.new:,} tokens", float(c.time_s.expected or 0.0)) for i, c in enumerate(chunked.chunks, 1)]
        if len(parts) > _CHUNKS:
            rest = parts[_CHUNKS - 1 :]
            parts = [*parts[: _CHUNKS - 1], (f"{len(rest):,} more chunks", sum(s for _, s in rest))]
    first = sum(s for _, s in parts)
    if workload.output_len > 1:
        parts.append((f"decode, {workload.output_len - 1:,} tokens", life.decode_s))
    whole = sum(s for _, s in parts)
    unit, scale = time_unit(whole)
    hit = workload.input_len - new
    caption = (
        f"{title(deployment)}. Batch {workload.batch_size:,}, prompt {workload.input_len:,} tokens"
        + (f" of which {hit:,} are found in the prefix cache" if hit else "")
        + f", output {workload.output_len:,}. Expected times; decode takes {format_percent(1 - first / whole)}."
        + (f" The prompt's steps carry {chunked.decodes:,} other requests that decode." if chunked and chunked.decodes else "")
    )
    return Stack(
        f"A request: first token after {format_seconds(first)}, last after {format_seconds(first + life.decode_s)}",
        caption,
        Axis(f"time since the prompt arrived ({unit})"),
        tuple(Share(name, seconds * scale, format_seconds(seconds)) for name, seconds in parts),
        (Rule("x", first * scale, "first token"),),
    )


def _picked(life: Life) -> list[int]:
    """Indices of the output tokens that are drawn: all where they are few, else evenly spread; the first token is prefill's."""
    last = len(life.token) - 1
    count = min(last, _POINTS)
    return sorted({1 + round(i * (last - 1) / max(1, count - 1)) for i in range(count)})


def _tokens(life: Life) -> Axis:
    """Output tokens, with room for the names of the lines."""
    return Axis("output token (number)", low=0.0, high=1.32 * life.token[-1])


def _line(name: str, life: Life, values: list[float], scale: float) -> Series:
    picks = _picked(life)
    marks = [
        Mark(
            float(life.token[i]), values[i] * scale, "",
            f"token {life.token[i]:,} sees {life.context[i]:,} keys: {format_seconds(values[i])}",
        )
        for i in picks
    ]  # fmt: skip
    marks[-1] = Mark(marks[-1].x, marks[-1].y, f"{name} {format_seconds(values[picks[-1]])}", marks[-1].note)
    return Series(name, tuple(marks), line=True, points=False)


def _latency(life: Life, chunked: ChunkedPrefill | None, speculation: Speculation | None) -> Chart:
    """Time between tokens with its range; what chunks of other prompts and drafts make of it."""
    unit, scale = time_unit(max(life.latency_s[1:]))
    picks = _picked(life)
    x = tuple(float(life.token[i]) for i in picks)
    low, high = (tuple(values[i] * scale for i in picks) for values in (life.floor_s, life.high_s))
    rules = []
    if chunked and chunked.mixed_s.expected is not None:
        seconds = float(chunked.mixed_s.expected)
        rules.append(Rule("y", seconds * scale, f"a step that carries a chunk of another prompt: {format_seconds(seconds)}"))
    if speculation and speculation.tpot_s.expected is not None:
        seconds, drafts = float(speculation.tpot_s.expected), speculation.draft.tokens
        rules.append(Rule("y", seconds * scale, f"mean with {format_count(drafts, 'draft')} a round: {format_seconds(seconds)}"))
    first, last = life.latency_s[picks[0]], life.latency_s[picks[-1]]
    return Chart(
        f"Time between tokens: {format_seconds(first)} at the first, {format_seconds(last)} at the last",
        f"Keys seen grow from {life.context[picks[0]]:,} to {life.context[picks[-1]]:,}. Line: expected. Area: from the floor, which "
        "nothing beats, to the high end of the range.",
        _tokens(life),
        Axis(f"time since the token before ({unit})"),
        (_line("expected", life, life.latency_s, scale),),
        tuple(rules),
        (Band("floor to high end of the range", x, low, high),),
    )


def _without_cache(life: Life) -> Chart:
    """Each token with the cache, and by a pass over all tokens so far."""
    unit, scale = time_unit(min(life.latency_s[1:]))
    pays = (
        f"the cache is ahead from token {life.pays_from:,} on" if life.pays_from else "the cache is never ahead within this output"
    )
    return Chart(
        f"Without a KV cache: {format_seconds(life.uncached_s)}, {format_number(life.speedup, 3)} x as long",
        f"Every token by a pass over all tokens so far: {format_number(life.uncached_flops / life.flops, 3)} x the work; {pays}. Expected "
        "times.",
        _tokens(life),
        Axis(f"time of the token ({unit})", log=True),
        (
            _line("with the cache", life, life.latency_s, scale),
            _line("without a cache", life, life.uncached_latency_s, scale),
        ),
    )
