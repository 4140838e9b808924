"""Explanations: every headline number, its values where they say they stand, and nothing that does not add up."""

from __future__ import annotations

import re

import pytest

import calc
from calc.errors import UsageError
from calc.report import explain
from calc.report.explain.step import Step, Value, total
from calc.serving.deployment import DeploymentOptions
from calc.serving.request import Workload
from tests.support.cli import ROOT, answered, run

CASES = [
    ("llama-3.1-70b", "h100-sxm5-80gb", {"tensor_parallel_size": 4}),
    ("deepseek-v3", "h200-sxm-141gb", {"tensor_parallel_size": 8}),
    ("gpt-oss-20b", "l40s", {}),
    ("qwen3-next-80b-a3b-instruct", "mi300x", {"tensor_parallel_size": 2}),
    ("llama-3.1-8b", "rtx-4090", {"engine": "llama.cpp", "quantization": "q4_k_m", "kv_cache_dtype": "q8_0"}),
    ("gemma-3-27b-it", "h100-sxm5-80gb", {"engine": "sglang"}),
    ("llama-3.1-8b", "a100-sxm4-80gb", {"engine": "tensorrt-llm", "kv_cache_dtype": "int8"}),
    ("mixtral-8x7b-v0.1", "h100-sxm5-80gb", {"engine": "ideal", "tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
]


@pytest.mark.parametrize(("model", "device", "options"), CASES, ids=lambda c: str(c)[:30])
def test_everything_is_explained_and_adds_up(model, device, options):
    deployment = calc.deploy(model, device, DeploymentOptions(**options))
    result = calc.estimate_deployment(deployment, Workload(2, 512, 64))
    sections = explain.estimate(deployment, result)  # each step checks itself as it is made
    steps = {(s.title.split(",")[0], step.name): step for s in sections for step in s.steps}
    for name in ("work", "traffic", "arithmetic intensity", "ridge point", "floor time", "expected time"):
        assert ("Decode", name) in steps, name
    assert steps["Prefill", "expected time"].result == result.prefill.time_s.expected
    assert steps["Request", "end to end"].result == result.request.e2e_s.expected
    for name in ("weights", "left for the KV cache"):
        assert ("Memory of a GPU", name) in steps, name
    assert steps["Memory of a GPU", "left for the KV cache"].result == result.capacity.kv_cache_bytes_per_gpu


def test_sources_stand_where_they_say():
    for step in answered("estimate", "llama-3.1-70b", "h100-sxm5-80gb", "-tp", "4", "--explain", "--json").json["results"][
        "explanation"
    ]:
        for value in step["values"]:
            found = re.search(r"(\S+\.yaml):(\d+)", value["source"] or "")
            if not found:
                continue
            line = (ROOT / found[1]).read_text(encoding="utf-8").splitlines()[int(found[2]) - 1]
            if value["symbol"] == "peak":
                assert float(line.split(":")[1]) * 1e12 == value["value"]
            elif value["symbol"] == "bandwidth":
                assert float(line.split(":")[1]) * 1e9 == value["value"]
            elif value["symbol"] == "gpu_memory":
                assert int(float(line.split(":")[1]) * 2**20) == value["value"]
            else:
                assert line.strip().endswith(":")  # a layer kind


def test_a_step_that_does_not_add_up_is_never_made():
    values = (Value("a", 2.0), Value("b", 3.0))
    assert Step("sum", "a + b", values, 5.0).result == 5.0
    with pytest.raises(AssertionError, match="does not give"):
        Step("sum", "a + b", values, 5.1)
    with pytest.raises(AssertionError, match="does not give"):
        total("sum", [("a", 1.0), ("b", 2.0)], 4.0, "s")


def test_sums_name_their_largest_terms():
    step = total("sum", [(str(i), float(i)) for i in range(10)], 45.0, "s", most=3)
    assert step.terms == (("9", 9.0), ("8", 8.0), ("7", 7.0), ("7 others", 21.0))


@pytest.mark.parametrize(
    "words", [("estimate", "llama-3.1-8b", "l40s"), ("roofline", "llama-3.1-8b", "l40s"), ("capacity", "llama-3.1-8b", "l40s")]
)
def test_commands_explain_in_table_and_json(words):
    shown = answered(*words, "--explain").stdout
    plain = answered(*words).stdout
    assert len(shown) > len(plain)
    assert "hardware_profiles/nvidia/l40s.yaml:" in shown
    assert "explanation" not in answered(*words, "--json").json["results"]
    explained = answered(*words, "--explain", "--json").json["results"]["explanation"]
    assert all(e["formula"] and e["value"] is not None for e in explained)


def test_a_plan_explains_its_best_answer():
    words = ("plan", "llama-3.1-8b", "--hardware", "l40s", "--request-rate", "2", "--explain")
    found = answered(*words, "--json").json["results"]
    steps = {e["name"]: e for e in found["explanation"]}
    best = found["answers"][0]
    assert steps["TPOT"]["value"] == best["tpot_s"]["expected"]
    assert steps["TTFT"]["value"] == best["ttft_s"]["expected"]
    assert steps["bill"]["value"] == best["usd_per_hour"]
    assert steps["replicas"]["value"] == best["replicas"]
    assert "Little's law" in run(*words).stdout


def test_what_has_no_times_is_explained_without_them():
    deployment = calc.deploy("llama-3.1-70b", "l40s")
    result = calc.estimate_deployment(deployment, Workload(1, 512, 64))
    names = [step.name for s in explain.estimate(deployment, result) for step in s.steps]
    assert "expected time" not in names
    assert "work" in names
    with pytest.raises(UsageError):
        calc.deploy("llama-3.1-70b", "l40s", DeploymentOptions(tensor_parallel_size=3)).question().caches()
