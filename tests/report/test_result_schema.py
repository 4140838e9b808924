"""Every key of an answer stands in the schema, with the type that the schema says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calc.report.result_schema import result_schema
from tests.support.cli import run

PAIR = ("llama-3.1-8b", "l40s")
WIDE = ("deepseek-v3", "h200-sxm-141gb", "-tp", "1", "-dp", "8", "--enable-expert-parallel")
ANSWERS = [
    ("estimate", *PAIR, "--concurrency", "4", "--speculative-tokens", "2", "--acceptance", "0.7", "--draft-model", "ngram"),
    ("estimate", *WIDE, "--concurrency", "64"),
    ("estimate", "llama-3.1-8b", "mi308x", "--concurrency", "4"),
    ("estimate", "llama-3.1-70b", "l40s"),
    ("roofline", *PAIR),
    ("roofline", "qwen3-30b-a3b", "h100-sxm5-80gb", "-tp", "2"),
    ("request", *PAIR, "--chunked", "--output-len", "16"),
    ("request", "llama-3.1-70b", "l40s"),
    ("capacity", *PAIR, "--concurrency", "4", "--input-len", "p50=1k,p95=8k"),
    ("capacity", "mamba-2.8b", "l40s", "--concurrency", "4"),
    ("capacity", *PAIR, "--engine", "llama.cpp"),
    ("compare", "llama-3.1-8b l40s", "llama-3.1-8b h100-sxm5-80gb"),
    ("models", "show", "deepseek-v3"),
]
TYPES: dict[str, Any] = {
    "number": (int, float), "integer": int, "string": str, "boolean": bool, "null": type(None), "object": dict, "array": list,
}  # fmt: skip


def faults(value: Any, schema: dict[str, Any], where: str) -> list[str]:
    """What of a value the schema does not hold; keys that it does not name are faults wherever it names any."""
    if "anyOf" in schema:
        return min((faults(value, choice, where) for choice in schema["anyOf"]), key=len)
    types = schema.get("type", [])
    wanted = [types] if isinstance(types, str) else types
    if wanted and not any(isinstance(value, TYPES[t]) and (isinstance(value, bool) <= (t == "boolean")) for t in wanted):
        return [f"{where}: {value!r} is not {types}"]
    found = []
    known = schema.get("properties")
    if isinstance(value, dict) and known is not None:
        for key, item in value.items():
            found += faults(item, known[key], f"{where}.{key}") if key in known else [f"{where}.{key} is not in the schema"]
    if isinstance(value, list) and "items" in schema:
        for item in value[:3]:
            found += faults(item, schema["items"], f"{where}[]")
    return found


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_answers_hold_their_schema(words):
    schema = result_schema()
    document = run(*words, "--json").json
    command = document["schema"].removeprefix("roofcast.").split("/")[0]
    assert faults(document["results"], schema["$defs"][command], command) == []
    assert faults(document, schema, "answer") == []


def test_a_log_against_its_prediction_holds_its_schema(tmp_path: Path):
    log = tmp_path / "start.log"
    log.write_text(
        "INFO Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B'\n"
        "INFO Model loading took 14.99 GiB\nINFO Available KV cache memory: 24.00 GiB\nINFO GPU KV cache size: 196,608 tokens\n",
        encoding="utf-8",
    )
    document = run("reconcile", str(log), *PAIR, "--json").json
    assert faults(document["results"], result_schema()["$defs"]["reconcile"], "reconcile") == []
    assert document["results"]["figures"]


def test_a_key_that_the_schema_lacks_is_found():
    schema = result_schema()["$defs"]["capacity"]
    assert faults({"fits": True, "blocks": 1}, schema, "") == []
    assert len(faults({"fits": "yes", "blocks": True, "invented": 1}, schema, "")) == 3
