"""How close the memory laws come to what engines printed at start-up.

    python -m benchmarks.memory [--records FILE] [--write-docs]

Each record is predicted from its configuration alone (``config``) and with the printed KV bytes given (``budget``); reported values
are only compared with. Prints JSON: scores by record, by group and overall. ``--write-docs`` renews the memory part of
docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory_model import predictions
from benchmarks.memory_model.configuration import Configuration, configuration
from benchmarks.memory_model.questions import Asked, NotAnswerableError, ask
from benchmarks.memory_model.spellings import RECORDS
from benchmarks.statistics import summary
from calc.errors import RoofcastError
from calc.units import GIB

DEFAULT_RECORDS = RECORDS / "memory_logs.yaml"
#: Quantity → key under ``reported`` and its unit.
_REPORTED = {
    "weights": ("weights_gib_per_gpu", GIB),
    "activation": ("activation_peak_gib", GIB),
    "kv_bytes": ("kv_cache_gib_per_gpu", GIB),
    "kv_tokens": ("kv_tokens", 1),
    "blocks": ("gpu_blocks", 1),
    "max_concurrency": ("max_concurrency", 1),
}
_LLAMA_CPP = (
    "kv_mib_total", "kv_k_mib", "kv_v_mib", "swa_mib", "non_swa_mib", "swa_cells", "recurrent_mib", "recurrent_r_mib", "recurrent_s_mib",
    "compute_buffer_mib",
)  # fmt: skip
#: Why a mode of a record has nothing to compare.
_UNSCORED_MODE = {
    "config": "total memory, its fraction or the model's parameters are not stated, or nothing they give was printed",
    "budget": "the log does not print KV bytes together with tokens, blocks or concurrency",
}
#: Records that explain nothing are predicted and listed, but not judged.
_JUDGED = ("ok", "explained")


def reported_value(record: Mapping[str, Any], quantity: str) -> float | None:
    """What the log printed, in bytes, tokens or MiB."""
    reported = record.get("reported") or {}
    if quantity == "kv_bytes_per_token":
        value = (record.get("derived") or {}).get("kv_bytes_per_token_per_gpu")
        return None if value is None else float(value)
    key, unit = _REPORTED.get(quantity, (quantity, 1))
    value = reported.get(key)
    return None if value is None else float(value) * unit


def not_comparable(config: Configuration, asked: Asked, quantity: str, mode: str) -> str | None:
    """Why a printed figure of this configuration says something else than the prediction; None where they can be held together."""
    ranks = (config.tensor or 1) * config.pipeline
    if config.engine == "vllm" and config.engine_generation == "v0" and ranks > 1 and quantity in ("activation", "kv_bytes"):
        return "V0 prints the figure of a worker; the driver, which alone samples, rules"
    return None


def scores(record: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Scores of one record, and the reasons for what was not scored."""
    config = configuration(record)
    try:
        asked = ask(config)
        found = [
            *predictions.config_predictions(config, asked),
            *predictions.budget_predictions(config, asked, record.get("reported") or {}),
        ]
    except (NotAnswerableError, RoofcastError) as error:
        return [], [str(error)]
    result, reasons = [], []
    for item in found:
        value = reported_value(record, item.quantity)
        if not value:
            continue
        reason = not_comparable(config, asked, item.quantity, item.mode)
        if reason:
            reasons.append(f"{item.quantity}: {reason}")
            continue
        result.append(_score(record, config, asked, item, value))
    if not result and not reasons:
        reasons.append("the log prints nothing that is predicted")
    elif result:
        modes = {s["mode"] for s in result}
        reasons += [f"{mode}: {why}" for mode, why in _UNSCORED_MODE.items() if mode not in modes]
    return result, reasons


def _score(
    record: Mapping[str, Any], config: Configuration, asked: Asked, item: predictions.Prediction, value: float
) -> dict[str, Any]:
    score: dict[str, Any] = {
        "id": record["id"],
        "quantity": item.quantity,
        "mode": item.mode,
        "engine": config.engine,
        "predicted": item.predicted,
        "low": item.low,
        "high": item.high,
        "reported": value,
        "error": (item.predicted - value) / value,
        "judged": record.get("check") in _JUDGED,
        "fraction_stated": config.fraction_is_stated,
        "seqs_stated": config.seqs_are_stated,
        "version_known": asked.version_known,
        "model_listed": asked.listed,
    }
    if item.quantity == "kv_bytes" and config.fraction and config.gpu_memory_gib:
        score["share_of_budget"] = (item.predicted - value) / (config.gpu_memory_gib * GIB * config.fraction)
    return score


def groups(found: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Summaries by mode, kind of engine and quantity."""
    keys = sorted({(s["mode"], s["engine"], s["quantity"]) for s in found})
    for mode, engine, quantity in keys:
        rows = [s for s in found if (s["mode"], s["engine"], s["quantity"]) == (mode, engine, quantity)]
        yield {"mode": mode, "engine": engine, "quantity": quantity} | summary([dict(s) for s in rows])


def bars(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures that the project holds itself to."""
    judged = [dict(s) for s in found if s["judged"]]
    budget = [s for s in judged if s["mode"] == "budget" and s["quantity"] in ("kv_tokens", "blocks", "max_concurrency")]
    config = [s for s in judged if s["mode"] == "config" and s["engine"] in ("vllm", "sglang")]
    stated = [s for s in config if s["fraction_stated"]]
    mib = [s for s in judged if s["mode"] == "budget" and "mib" in str(s["quantity"])]
    shares = [abs(s["share_of_budget"]) for s in stated if "share_of_budget" in s]
    from benchmarks.statistics import median, quantile

    return {
        "budget": summary([s for s in budget if s["version_known"]]),
        "buffers_within_0.1_percent": sum(abs(s["error"]) <= 0.001 for s in mib) / len(mib) if mib else None,
        "weights": summary([s for s in config if s["quantity"] == "weights"]),
        "activation": summary([s for s in config if s["quantity"] == "activation" and s["seqs_stated"]]),
        "kv_share_of_budget": {"n": len(shares), "median": median(shares), "p90": quantile(shares, 0.9)},
        **{q: summary([s for s in stated if s["quantity"] == q]) for q in ("kv_bytes", "kv_tokens", "max_concurrency")},
        "config_ranges": summary([s for s in stated if s["quantity"] in ("kv_bytes", "kv_tokens", "max_concurrency")]),
    }


def scoreboard(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The whole answer."""
    found: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for record in records:
        result, reasons = scores(record)
        found += result
        if not result:
            skipped.append({"id": record["id"], "why": "; ".join(reasons)})
        else:
            skipped += [{"id": record["id"], "why": reason, "partly": True} for reason in dict.fromkeys(reasons)]
    judged = [s for s in found if s["judged"]]
    return {
        "n": len(records),
        "scored": len({s["id"] for s in found}),
        "scored_by_mode": {mode: len({s["id"] for s in found if s["mode"] == mode}) for mode in ("config", "budget")},
        "skipped": skipped,
        "by_group": list(groups(judged)),
        "overall": summary([s for s in judged if s["quantity"] != "compute_buffer_mib"]),
        "bars": bars(found),
        "records": found,
    }


def load(path: Path) -> list[dict[str, Any]]:
    """The records of a file."""
    import yaml

    loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if not isinstance(loaded, list):
        raise SystemExit(f"{path}: not a list of records")
    return loaded


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scoreboard, or renew the page of the documentation."""
    parser = argparse.ArgumentParser(description="Memory laws against start-up logs.")
    parser.add_argument("--records", type=Path, default=DEFAULT_RECORDS, help="records in the format of records/memory_logs.yaml")
    parser.add_argument("--write-docs", action="store_true", help="renew the memory part of docs/accuracy.md")
    chosen = parser.parse_args(arguments)
    board = scoreboard(load(chosen.records))
    if chosen.write_docs:
        from benchmarks.memory_model.page import write

        write(board)
        return 0
    json.dump(board, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
