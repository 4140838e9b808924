"""How close computed parameters and caches come to the published ones.

    python -m benchmarks.models [--configs DIR] [--table FILE]

Each config of DIR that FILE names is imported and counted. FILE is models.yaml or JSON lines of ``hf_id, config_file, total,
architecture_total``. A row is right when ``parameters`` is within 0.5 % of the published or of the architecture's total, exact when it
equals one of them to the digit. Cache figures are compared where FILE has them. Prints JSON; ``--check`` exits 1 below the bars.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.statistics import summary
from calc.errors import RoofcastError
from calc.numerics import cache_format
from calc.operators.cache_law import CacheLaw
from calc.operators.layer_kinds import cache_laws
from calc.operators.parameters import count_parameters
from calc.profiles.importers.hf_config import import_folder_or_file
from calc.profiles.model import CompressedAttention, LatentAttention, Mamba1, Mamba2, ModelProfile, ShortConvolution

ROOT = Path(__file__).resolve().parent
CONFIGS = ROOT.parent / "tests" / "data" / "model_configs"
TABLE = ROOT / "records" / "models.yaml"
TOLERANCE = 0.005
BARS = {"right": 0.98, "exact": 0.95}
PARAMETERS = "parameters"


def read_table(path: Path) -> list[dict[str, Any]]:
    """Rows with hf_id, config_file, published and architecture total, and cache figures where the file has them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".jsonl", ".ndjson") or text.lstrip().startswith("{"):
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        return [{**row, "published": row.get("total"), "attention": {}, "active": None} for row in rows]
    import yaml

    return [
        {
            "hf_id": row["hf_id"],
            "config_file": row["config_file"],
            "published": row["parameters"].get("exact_total"),
            "architecture_total": row["parameters"]["computed_total"],
            "attention": row.get("attention") or {},
            "active": (row.get("active_parameters") or {}).get("computed"),
        }
        for row in yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["models"]
    ]


def laws(model: ModelProfile) -> Iterator[tuple[int, CacheLaw]]:
    """(number of layers, cache law) of every layer kind."""
    for name, count in model.layer_counts().items():
        for law in cache_laws(model.layer_kinds[name], 1, model.hidden_size):
            yield count, law


def cache_figures(model: ModelProfile) -> dict[str, float]:
    """Cache of one whole model in the counting of the table."""
    sixteen = cache_format("bf16")
    slope = state = columns = 0.0
    inside: dict[int, float] = {}
    for count, law in laws(model):
        if law.grows:
            slope += count * law.token_bytes(sixteen, sixteen) / law.tokens_per_entry
        elif law.limit:
            inside[law.limit] = inside.get(law.limit, 0) + count * law.token_bytes(sixteen, sixteen)
        state += count * law.state_elements
        columns += count * law.convolution_elements
    figures = {"kv_bytes_per_token": slope + _index_keys_in_16_bit(model), "state_elements": state, "convolution_elements": columns}
    return figures | {f"window_{limit}_bytes_per_token": bytes_ for limit, bytes_ in inside.items()}


def _index_keys_in_16_bit(model: ModelProfile) -> float:
    """The laws count index keys of sparse attention as they are stored, in fp8 with a scale; the table counts 16 bit."""
    more = 0.0
    for name, count in model.layer_counts().items():
        for mixer in model.layer_kinds[name].mixers:
            if isinstance(mixer, (LatentAttention, CompressedAttention)) and mixer.indexer and mixer.indexer.role == "full":
                width = mixer.indexer.head_dim
                stored = width + 4 * -(-width // 128)
                more += count * (2 * width - stored) / max(1, getattr(mixer, "ratio", 1))
    return more


def reported_figures(row: Mapping[str, Any], model: ModelProfile) -> dict[str, float]:
    """What the table says, with convolution columns and the windows of compressed layers brought to our counting."""
    a = row["attention"]
    if not a:
        return {}
    found = {"kv_bytes_per_token": float(a["kv_bytes_per_token_unbounded_bf16"])}
    windows = {w["window"]: float(w["kv_bytes_per_token_inside_window_bf16"]) for w in a.get("windowed") or []}
    state, columns = a.get("state_elements_per_sequence", 0), a.get("conv_state_elements_per_sequence", 0)
    mixers = [m for kind in model.layer_kinds.values() for m in kind.mixers]
    kernels = {m.conv_kernel for m in mixers if isinstance(m, (Mamba1, Mamba2, ShortConvolution))}
    for kernel in kernels:
        columns = columns * (kernel - 1) / kernel
    compressed = next((m for m in mixers if isinstance(m, CompressedAttention)), None)
    if compressed:  # the table counts the window of a compressed layer as state
        windows[compressed.window] = windows.get(compressed.window, 0) + 2 * state / compressed.window
        state = 0
    found |= {"state_elements": state, "convolution_elements": columns}
    return found | {f"window_{limit}_bytes_per_token": bytes_ for limit, bytes_ in windows.items()}


def _score(row: Mapping[str, Any], quantity: str, predicted: float, reported: float, **rest: Any) -> dict[str, Any]:
    error = (predicted - reported) / reported if reported else float(predicted != reported)
    return {
        "id": row["hf_id"],
        "quantity": quantity,
        "predicted": predicted,
        "low": None,
        "high": None,
        "reported": reported,
        "error": error,
        **rest,
    }


def score(row: Mapping[str, Any], model: ModelProfile) -> Iterator[dict[str, Any]]:
    """Parameters against the nearer total, then active parameters and cache figures."""
    counted = count_parameters(model)
    totals = [t for t in (row["published"], row["architecture_total"]) if t]
    nearest = min(totals, key=lambda total: abs(counted.total - total))
    exact = counted.total in totals
    right = abs(counted.total - nearest) <= TOLERANCE * nearest
    totals_of_row = {"published": row["published"], "architecture_total": row["architecture_total"]}
    yield _score(row, PARAMETERS, counted.total, nearest, **totals_of_row, right=right, exact=exact)
    if row["active"]:
        yield _score(row, "active_parameters", counted.active, row["active"])
    ours, theirs = cache_figures(model), reported_figures(row, model)
    for quantity, value in theirs.items():
        yield _score(row, quantity, ours.get(quantity, 0.0), value)


def scoreboard(configs: Path, table: Path) -> dict[str, Any]:
    """Scores of every row that can be imported."""
    rows = read_table(table)
    records: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for row in rows:
        try:
            model, _ = import_folder_or_file(configs / Path(row["config_file"]).name)
            records += score(row, model)
        except RoofcastError as error:
            skipped.append({"id": row["hf_id"], "why": error.message})
    totals = [r for r in records if r["quantity"] == PARAMETERS]
    shares = {key: sum(r[key] for r in totals) / len(rows) if rows else None for key in BARS}
    quantities = dict.fromkeys(r["quantity"] for r in records)
    return {
        "n": len(rows),
        "scored": len(totals),
        "skipped": skipped,
        "by_group": [{"quantity": q, **summary([r for r in records if r["quantity"] == q])} for q in quantities],
        "overall": {
            **summary(totals),
            **shares,
            "right_rows": sum(r["right"] for r in totals),
            "exact_rows": sum(r["exact"] for r in totals),
        },
        "records": records,
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the scoreboard."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=Path, default=CONFIGS, metavar="DIR", help="folder of config files")
    parser.add_argument("--table", type=Path, default=TABLE, metavar="FILE", help="published totals")
    parser.add_argument("--check", action="store_true", help="exit 1 below the bars")
    given = parser.parse_args(arguments)
    board = scoreboard(given.configs, given.table)
    json.dump(board, sys.stdout, indent=2, allow_nan=False)
    print()
    overall = board["overall"]
    missed = any(overall[key] is None or overall[key] < bar for key, bar in BARS.items())
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
