"""Lengths of requests as people state them: a number, percentiles (``p50=1k,p95=8k``) or a recorded trace."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from calc.errors import ProfileError, UsageError, did_you_mean
from calc.units import MAX_TOKENS

if TYPE_CHECKING:
    from calc.serving.load.traffic import Request, Traffic

#: Column names of a trace and what other traces call them.
_COLUMNS = {
    "input": ("input_len", "prompt_tokens", "input_tokens", "contexttokens"),
    "output": ("output_len", "completion_tokens", "output_tokens", "generatedtokens"),
    "arrival": ("arrived_at", "arrival_s", "timestamp"),
    "cached": ("cached_len", "cached_tokens"),
}
MAX_TRACE_ROWS = 5_000_000
MAX_TRACE_BYTES = 1 << 30
MAX_MOMENT_S = 1e12  # 30,000 years; milliseconds since 1970 are below, larger ones are typing errors
_SAMPLE = "a sample of the trace says the same"
_ROWS = "a CSV with one row a request, under a header like input,output,arrival,cached"
_CACHED = "cached counts the tokens of the prompt that were found in the cache"
_TIMES = "like 12.5, or 2024-05-10 00:00:01.5; leave the column out if unknown"


def percentiles(text: str, what: str) -> dict[float, int]:
    """(share below → tokens) of ``1k`` or ``p50=1k,p95=8k``; tokens must grow with the share."""
    from calc import units

    if "=" not in text:
        return {1.0: units.parse_count(text, what, maximum=MAX_TOKENS)}
    found: dict[float, int] = {}
    for item in text.split(","):
        name, _, amount = (t.strip() for t in item.partition("="))
        try:
            share = float(name.lower().removeprefix("p")) / 100
        except ValueError:
            share = -1.0
        if not name.lower().startswith("p") or not 0 < share <= 1 or not amount:
            raise UsageError(f"{what} has no percentile in {item.strip()!r}", "write it like p50=1k,p95=8k")
        if share in found:
            raise UsageError(f"{what}: percentile {name} stands twice in {text}", "say each percentile once")
        found[share] = units.parse_count(amount, what, maximum=MAX_TOKENS)
    ordered = [found[s] for s in sorted(found)]
    if ordered != sorted(ordered):
        raise UsageError(
            f"{what}: a higher percentile is shorter than a lower one: {text}", "lengths grow with the percentile: p50=1k,p95=8k"
        )
    return found


def traffic(input_len: str | None, output_len: str | None, cached_len: str | None, trace: str | None) -> Traffic:
    """The requests that the options describe. Lengths that are not given are those of a ``Workload``."""
    from calc import units
    from calc.serving.load import traffic as serving
    from calc.serving.request import Workload

    if trace is not None:
        if input_len is not None or output_len is not None:
            raise UsageError("--trace and --input-len or --output-len contradict each other", "the trace gives the lengths")
        cached = 0 if cached_len is None else units.parse_count(cached_len, "--cached-len", minimum=0, maximum=MAX_TOKENS)
        return read_trace(trace, cached)
    inputs = percentiles(input_len or str(Workload.input_len), "--input-len")
    outputs = percentiles(output_len or str(Workload.output_len), "--output-len")
    cached = 0 if cached_len is None else units.parse_count(cached_len, "--cached-len", minimum=0, maximum=MAX_TOKENS)
    if len(inputs) == len(outputs) == 1:
        (prompt,), (answer,) = inputs.values(), outputs.values()
        return serving.uniform(prompt, answer, cached)
    return serving.spread(inputs, outputs, cached)


def read_trace(name: str, cached: int) -> Traffic:
    """A CSV with columns input, output and, where known, arrival (seconds or a date and time) and cached."""
    from calc.profiles import reader
    from calc.serving.load import traffic as serving

    try:
        with (
            reader.open_file(Path(name).expanduser(), MAX_TRACE_BYTES, _SAMPLE) as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as stream,
        ):
            rows = csv.DictReader(stream)
            columns = _columns(name, list(rows.fieldnames or []))
            requests: list[Request] = []
            arrivals: list[float] = []
            for number, row in enumerate(rows, 2):
                if number > MAX_TRACE_ROWS:
                    raise ProfileError(f"{name}: more than {MAX_TRACE_ROWS:,} rows", _SAMPLE)
                length = {k: _whole(row.get(column), f"{name}:{number}", column) for k, column in columns.items() if k != "arrival"}
                if length.get("cached", 0) > length["input"]:
                    at, prompt = f"{name}:{number}", length["input"]
                    raise ProfileError(
                        f"{at}: {columns['cached']} {length['cached']:,} is more than the {prompt:,} tokens of the prompt", _CACHED
                    )
                requests.append(serving.Request(length["input"], length["output"], length.get("cached", cached)))
                if "arrival" in columns:
                    arrivals.append(_moment(row.get(columns["arrival"]), f"{name}:{number}", columns["arrival"]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}", _ROWS) from error
    if not requests:
        raise ProfileError(f"{name}: holds no requests", _ROWS)
    return serving.trace(requests, arrivals if "arrival" in columns else None)


def _columns(name: str, header: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for wanted, others in _COLUMNS.items():
        hit = next((h for h in header if h.strip().lower() in (wanted, *others)), None)
        if hit is not None:
            found[wanted] = hit
        elif wanted in ("input", "output"):
            near = did_you_mean(wanted, header) or _ROWS
            raise ProfileError(f"{name}:1: no column {wanted!r} in {', '.join(header) or 'an empty file'}", near)
    return found


def _whole(value: str | None, place: str, column: str) -> int:
    try:
        number = float(value or "")
    except ValueError:
        number = -1.0
    least = 0 if column.lower().startswith("cached") else 1
    if not least <= number <= MAX_TOKENS or number != int(number):
        raise ProfileError(f"{place}: {column} must be a whole number of tokens of at least {least}, not {_shown(value)}", _ROWS)
    return int(number)


def _shown(value: str | None) -> str:
    return repr(value if value is None or len(value) <= 60 else value[:60] + "...")


def _moment(value: str | None, place: str, column: str) -> float:
    from datetime import datetime

    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        head, dot, fraction = text.partition(".")  # datetime takes six digits of a second
        try:
            seconds = datetime.fromisoformat(head + dot + fraction[:6] if fraction.isdigit() else text).timestamp()
        except (ValueError, OverflowError):
            seconds = float("nan")
    if not abs(seconds) <= MAX_MOMENT_S:
        raise ProfileError(f"{place}: {column} must be seconds or a date and time, not {_shown(value)}", _TIMES)
    return seconds
