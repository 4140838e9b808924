"""Which test file holds which golden value; a value that none holds fails."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from tests.support.golden import values

TESTS = Path(__file__).parents[1]

#: Test file → ids (or patterns of ids) that it compares with the program.
COVERED = {
    "golden/test_kv_arithmetic.py": (
        "kv.mha32x4096.*",
        "kv.llama3_70b.*",
        "kv.llama31_405b.token",
        "kv.llama31_8b.8192.*",
        "kv.qwen25_72b.token",
        "kv.hunyuan_large_cla2.token",
        "kv.gemma3_27b.*",
        "kv.gpt_oss_120b.*",
        "kv.gemma3n_e4b.*",
        "kv.llama4_scout.*",
        "kv.nvfp4.head128",
    ),
    "golden/test_dense_models.py": (
        "toy.*",
        "params.llama31_*",
        "params.gemma3_27b.text",
        "weights.llama_70b.awq_g128",
        "pairs.*",
        "time.prefill.llama_70b.8192.*",
    ),
    "golden/test_rooflines.py": (
        "ridge.*",
        "crit.batch.*.h100",
        "crit.batch.bf16.h100.exact_ffn70b",
        "crit.ctx.*",
        "crit.ctx_inf.llama_70b.h100",
        "time.decode.*",
        "time.mixed.llama_8b.h100",
        "comm.allreduce.*",
    ),
    "golden/test_serving.py": ("comm.ep.*", "pd.*", "spec.*", "cost.*", "energy.*"),
    "operators/test_golden_cache.py": ("kv.deepseek_v3*", "state.*"),
    "operators/test_golden_compute.py": (
        "params.mixtral_8x7b*",
        "params.deepseek_v3*",
        "params.gpt_oss_120b",
        "params.qwen3_next_80b",
        "weights.gpt_oss_*",
        "moe.*",
        "crit.batch.mixtral.bf16",
        "crit.batch.deepseek_v3.fp8",
        "mla.*",
        "dsa.*",
    ),
    "operators/test_native_sparse.py": ("nsa.*",),
}

#: Figures of engines' logs: held by whichever test of the memory laws quotes their id.
ENGINES = ("vllm.*", "sglang.*", "llamacpp.*", "trtllm.*")


@cache
def engine_tests() -> dict[str, str]:
    return {f"memory/{path.name}": path.read_text(encoding="utf-8") for path in (TESTS / "memory").glob("test_*.py")}


def holders(identifier: str) -> list[str]:
    found = [file for file, patterns in COVERED.items() if any(fnmatchcase(identifier, p) for p in patterns)]
    if any(fnmatchcase(identifier, p) for p in ENGINES):
        found += [file for file, text in engine_tests().items() if identifier in text]
    return found


def test_every_golden_value_is_covered():
    assert [i for i in values() if not holders(i)] == []


@pytest.mark.parametrize("file", COVERED)
def test_a_file_that_is_said_to_hold_values_names_them(file):
    text = (TESTS / file).read_text(encoding="utf-8")
    for pattern in COVERED[file]:
        assert any(fnmatchcase(identifier, pattern) for identifier in values()), f"{pattern} fits no value"
        family = pattern.partition("*")[0].rpartition(".")[0] or pattern
        assert family.split(".")[0] + "." in text, f"{file} does not mention {family}"


def test_golden_values_have_an_id_once_and_a_tolerance():
    import json

    from tests.support.golden import FILE

    entries = json.loads(FILE.read_text(encoding="utf-8"))["values"]
    assert len({e["id"] for e in entries}) == len(entries) == len(values())
    for entry in entries:
        assert 0 <= entry["rel_tol"] <= 0.02
        assert isinstance(entry["expected"], (int, float))
        if isinstance(entry["expected"], int):
            assert entry["rel_tol"] <= 0.0005
