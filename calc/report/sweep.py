"""Sweeps as rows: streamed CSV and JSON lines, a table or Markdown for small ones, parquet and arrow where pyarrow is installed."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, BinaryIO

from calc import files
from calc.errors import UsageError
from calc.report.table import Column, Page, Table, markdown, plain
from calc.serving.sweep.grid import LOAD_AXES, WORK_AXES
from calc.timing.step_time import Range
from calc.units import format_count, format_number, format_seconds

#: Rows that a table shows; larger sweeps belong in a file.
MAX_TABLE_ROWS = 2_000
_WHOLE = {*WORK_AXES, "kv_tokens", "concurrency"}
_MORE_TIMES = {f"{n}_s_expected" for n in ("speculative_tpot", "load_ttft", "load_tpot")}
_TIMES = tuple(f"{n}_{p}" for n in ("prefill_s", "decode_s", "tpot_s", "e2e_s") for p in Range.PARTS)
#: Columns of every answered point, in order; those of its deployment come before, a note after.
COLUMNS = (
    *WORK_AXES, "fits", "max_concurrency", "kv_tokens", *_TIMES, "decode_share", "prefill_bound", "decode_bound",
    "output_tokens_per_s", "usd_per_million_output_tokens",
)  # fmt: skip
#: Further columns where loads, or drafts, are asked about.
LOAD_COLUMNS = (
    *LOAD_AXES, "carried", *(f"load_{n}_{p}" for n in ("ttft_s", "tpot_s", "e2e_s") for p in Range.PARTS),
    "load_requests_per_s", "load_output_tokens_per_s",
)  # fmt: skip
DRAFT_COLUMNS = (
    "tokens_per_round", *(f"speculative_{n}_{p}" for n in ("tpot_s", "e2e_s") for p in Range.PARTS),
    "speculative_speedup",
)  # fmt: skip
_SHOWN = (
    "fits", "max_concurrency", "prefill_s_expected", "decode_s_expected", "tpot_s_expected", "e2e_s_expected", "output_tokens_per_s",
    "speculative_tpot_s_expected", "speculative_speedup", "concurrency", "request_rate", "load_ttft_s_expected", "load_tpot_s_expected",
    "load_requests_per_s", "load_output_tokens_per_s", "decode_bound", "usd_per_million_output_tokens", "note",
)  # fmt: skip
_HEADERS = {
    "prefill_s_expected": "TTFT", "decode_s_expected": "step", "tpot_s_expected": "TPOT", "e2e_s_expected": "e2e",
    "output_tokens_per_s": "tok/s", "decode_bound": "bound", "usd_per_million_output_tokens": "USD/Mtok",
    "max_concurrency": "max conc.", "batch_size": "batch",
    "speculative_tpot_s_expected": "TPOT drafted", "speculative_speedup": "x", "concurrency": "users", "request_rate": "req/s",
    "load_ttft_s_expected": "TTFT loaded", "load_tpot_s_expected": "TPOT loaded", "load_requests_per_s": "served/s",
    "load_output_tokens_per_s": "tok/s loaded",
    "input_len": "input", "output_len": "output", "context_len": "context", "cached_len": "cached",
}  # fmt: skip
Part = dict[str, Any]


def header(heads: list[str], further: tuple[str, ...] = ()) -> list[str]:
    """All columns of a sweep, those of its deployments in front, those that were asked for beyond the usual behind."""
    return [*heads, *COLUMNS, *further, "note"]


def _values(part: Part, name: str, points: int) -> list[Any]:
    """A column of a part as Python values, None where not answered."""
    found = part.get(name)
    if found is None or isinstance(found, str):
        return [found] * points
    if found.dtype.kind != "f":
        return [v or None for v in found.tolist()] if found.dtype.kind == "U" else list(found.tolist())
    if name in _WHOLE:
        return [None if v != v else int(v) for v in found.tolist()]
    return [None if v != v else v for v in found.tolist()]


def rows(part: Part, names: list[str]) -> Iterator[tuple[Any, ...]]:
    """Rows of a part in the order of ``names``."""
    points = len(part["fits"])
    return zip(*(_values(part, name, points) for name in names), strict=True)


def write(
    parts: Iterable[Part], heads: list[str], wanted: str, output: str | None, points: int, further: tuple[str, ...] = ()
) -> None:
    """Stream the parts in the wanted format to a file or to standard output."""
    if wanted in ("table", "markdown") and points > MAX_TABLE_ROWS:
        raise UsageError(f"{points:,} rows are too many for a {wanted}", "write them to a file: -o sweep.csv")
    names = header(heads, further)
    if output in (None, "-"):
        _text(parts, names, wanted, sys.stdout)
        sys.stdout.flush()
        return
    with files.replacing(str(output)) as stream:
        if wanted in ("parquet", "arrow"):
            _binary(parts, names, wanted, stream)
            return
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        try:
            _text(parts, names, wanted, text)
        finally:
            text.detach()  # flushes; the file is closed by who opened it


def _text(parts: Iterable[Part], names: list[str], wanted: str, stream: IO[str]) -> None:
    if wanted == "jsonl":
        for part in parts:
            stream.writelines(json.dumps(dict(zip(names, row, strict=True)), allow_nan=False) + "\n" for row in rows(part, names))
    elif wanted == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        for part in parts:
            writer.writerows(rows(part, names))
    else:
        records = [dict(zip(names, row, strict=True)) for part in parts for row in rows(part, names)]
        page = _page(records, names[: names.index(COLUMNS[0])])
        stream.write(markdown(page) if wanted == "markdown" else plain(page))


def _page(records: list[dict[str, Any]], heads: list[str]) -> Page:
    varied = [n for n in WORK_AXES if len({r[n] for r in records}) > 1]
    hidden = () if "context_len" in varied else ("decode_s_expected",)  # the mean step says the same
    answered = (n for n in _SHOWN if n not in hidden and any(r.get(n) not in (None, "") for r in records))
    shown = [*heads, *varied, *answered]
    columns = tuple(Column(_HEADERS.get(n, n.replace("_", " ")), right=n not in heads, priority=_priority(n)) for n in shown)
    lines = [[_cell(n, r[n]) for n in shown] for r in records]
    fixed = ", ".join(f"{_HEADERS[n]} {records[0][n]:,}" for n in WORK_AXES if n not in varied and records[0][n] is not None)
    return Page([format_count(len(records), "point") + (f"; {fixed}" if fixed else "")], [Table(columns, lines)])


def _priority(name: str) -> int:
    return {"note": 1, "usd_per_million_output_tokens": 4, "decode_bound": 3, "max_concurrency": 2}.get(name, 0)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _TIMES or name in _MORE_TIMES:
        return format_seconds(value)
    return format_number(value, 4) if isinstance(value, (int, float)) else str(value)


def _binary(parts: Iterable[Part], names: list[str], wanted: str, stream: BinaryIO) -> None:
    """Column by column, without a Python value a cell."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(f"{wanted} needs pyarrow", "pip install pyarrow, or write .csv or .jsonl") from None
    schema = pa.schema([(name, _arrow_type(name, pa)) for name in names])
    writer = pq.ParquetWriter(stream, schema) if wanted == "parquet" else pa.ipc.new_file(stream, schema)
    with writer:
        for part in parts:
            points = len(part["fits"])
            arrays = [_arrow_column(part.get(name), field.type, points, pa) for name, field in zip(names, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _arrow_type(name: str, pa: Any) -> Any:
    if name in _WHOLE:
        return pa.int64()
    if name in ("fits", "carried"):
        return pa.bool_()
    return pa.float64() if name in (*COLUMNS, *LOAD_COLUMNS, *DRAFT_COLUMNS) and not name.endswith("bound") else pa.string()


def _arrow_column(found: Any, kind: Any, points: int, pa: Any) -> Any:
    if found is None:
        return pa.nulls(points, kind)
    if isinstance(found, str):
        return pa.array([found or None] * points, kind)
    if found.dtype.kind == "U":
        return pa.array([v or None for v in found.tolist()], kind)
    return pa.array(found, mask=found != found if found.dtype.kind == "f" else None).cast(kind)
