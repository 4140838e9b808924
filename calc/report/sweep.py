"""Sweeps as rows: streamed CSV and JSON lines, a table or Markdown for small ones, parquet and arrow where pyarrow is installed."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from calc.errors import UsageError
from calc.report.table import Column, Page, Table, markdown, plain
from calc.units import format_number, format_seconds

#: Rows that a table shows; larger sweeps belong in a file.
MAX_TABLE_ROWS = 2_000
_WHOLE = {"batch_size", "input_len", "output_len", "context_len", "cached_len", "kv_tokens"}
_SHOWN = (
    "fits", "max_concurrency", "prefill_s_expected", "tpot_s_expected", "e2e_s_expected", "output_tokens_per_s", "decode_bound",
    "usd_per_million_output_tokens", "note",
)  # fmt: skip
_HEADERS = {
    "prefill_s_expected": "TTFT", "tpot_s_expected": "TPOT", "e2e_s_expected": "e2e", "output_tokens_per_s": "tok/s",
    "decode_bound": "bound", "usd_per_million_output_tokens": "USD/Mtok", "max_concurrency": "max conc.", "batch_size": "batch",
    "input_len": "input", "output_len": "output", "context_len": "context", "cached_len": "cached",
}  # fmt: skip


def rows(columns: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Records of a part of a sweep: Python values, None where not answered."""
    n = len(columns["fits"])
    lists: dict[str, list[Any]] = {}
    for name, values in columns.items():
        if isinstance(values, str):
            lists[name] = [values] * n
        elif values.dtype.kind == "f":
            whole = name in _WHOLE
            lists[name] = [None if v != v else int(v) if whole else v for v in values.tolist()]
        else:
            lists[name] = values.tolist()
    names = list(lists)
    for values in zip(*lists.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def write(parts: Iterable[dict[str, Any]], wanted: str, output: str | None, points: int) -> None:
    """Stream the parts in the wanted format to a file (through a temporary one) or to standard output."""
    if wanted in ("parquet", "arrow"):
        _binary(parts, wanted, str(output))
        return
    if wanted in ("table", "markdown") and points > MAX_TABLE_ROWS:
        raise UsageError(f"{points:,} rows are too many for a {wanted}", "write them to a file: -o sweep.csv")
    if output in (None, "-"):
        _text(parts, wanted, sys.stdout)
        sys.stdout.flush()
        return
    target = Path(str(output)).expanduser()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            _text(parts, wanted, stream)
        os.replace(temporary, target)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}", "choose a folder you can write to") from error
    finally:
        if temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)


def _text(parts: Iterable[dict[str, Any]], wanted: str, stream: IO[str]) -> None:
    if wanted == "jsonl":
        for part in parts:
            stream.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows(part))
        return
    if wanted == "csv":
        writer = None
        for part in parts:
            for row in rows(part):
                if writer is None:
                    names = list(row)
                    writer = csv.DictWriter(stream, _columns(names), restval="", lineterminator="\n", extrasaction="ignore")
                    writer.writeheader()
                writer.writerow({k: "" if v is None else v for k, v in row.items()})
        return
    records = [row for part in parts for row in rows(part)]
    page = _page(records)
    stream.write(markdown(page) if wanted == "markdown" else plain(page))


def _columns(names: list[str]) -> list[str]:
    """The columns of a CSV are those of an answered point even when the first one is not."""
    from calc.serving.sweep import WORK_AXES

    times = [f"{n}_{p}" for n in ("prefill_s", "decode_s", "tpot_s", "e2e_s") for p in ("floor", "low", "expected", "high")]
    every = [
        *(n for n in names if n not in WORK_AXES and n not in times), *WORK_AXES, "fits", "max_concurrency", "kv_tokens", *times,
        "decode_share", "prefill_bound", "decode_bound", "output_tokens_per_s", "usd_per_million_output_tokens", "note",
    ]  # fmt: skip
    heads = names[: names.index("batch_size")] if "batch_size" in names else []
    return list(dict.fromkeys([*heads, *(n for n in every if n not in heads and n != "note"), "note"]))


def _page(records: list[dict[str, Any]]) -> Page:
    from calc.serving.sweep import WORK_AXES

    names = list(dict.fromkeys(k for r in records for k in r))
    heads = names[: names.index("batch_size")] if "batch_size" in names else []
    varied = [n for n in WORK_AXES if len({r.get(n) for r in records}) > 1]
    shown = [*heads, *varied, *(n for n in _SHOWN if any(r.get(n) not in (None, "") for r in records))]
    columns = tuple(Column(_HEADERS.get(n, n.replace("_", " ")), right=n not in heads, priority=_priority(n)) for n in shown)
    lines = [[_cell(n, r.get(n)) for n in shown] for r in records]
    fixed = ", ".join(
        f"{_HEADERS[n]} {records[0].get(n):,}" for n in WORK_AXES if n not in varied and records[0].get(n) is not None
    )
    return Page([f"{len(records)} points" + (f"; {fixed}" if fixed else "")], [Table(columns, lines)])


def _priority(name: str) -> int:
    return {"note": 1, "usd_per_million_output_tokens": 4, "decode_bound": 3, "max_concurrency": 2}.get(name, 0)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if "_s_" in name:
        return format_seconds(value)
    return format_number(value, 4) if isinstance(value, (int, float)) else str(value)


def _binary(parts: Iterable[dict[str, Any]], wanted: str, output: str) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(f"{wanted} needs pyarrow", "pip install pyarrow, or write .csv or .jsonl") from None
    target = Path(output).expanduser()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    writer = None
    try:
        for part in parts:
            table = pa.Table.from_pylist(list(rows(part)))
            if writer is None:
                writer = (
                    pq.ParquetWriter(temporary, table.schema)
                    if wanted == "parquet"
                    else pa.ipc.new_file(str(temporary), table.schema)
                )
            writer.write_table(table.cast(writer.schema) if wanted == "parquet" else table)
        if writer is not None:
            writer.close()
            os.replace(temporary, target)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}", "choose a folder you can write to") from error
    finally:
        if temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)
