"""Explanations: every headline number, its values where they say they stand, and nothing that does not add up."""

from __future__ import annotations

import re

import pytest

import calc
from calc.memory.options import MemoryOptions
from calc.report import explain
from calc.report.explain.step import Step, Value, total
from calc.serving.deployment import DeploymentOptions
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.traffic import uniform
from calc.serving.plan.search import Question, plan
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
    assert steps["Memory of a GPU", "weights"].result == result.capacity.weights_bytes_per_gpu
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


def weights_of(*words: str) -> dict[str, float]:
    steps = answered("capacity", *words, "--explain", "--json").json["results"]["explanation"]
    return {t["term"]: t["value"] for step in steps if step["name"] == "weights" for t in step["terms"]}


def test_weights_name_what_makes_them():
    pair = ("deepseek-v3", "h200-sxm-141gb", "-tp", "8")
    plain, drafting = weights_of(*pair), weights_of(*pair, "--speculative-tokens", "1")
    assert not any("next token" in name for name in plain)
    assert sum(v for name, v in drafting.items() if "next token" in name) > 2**30
    assert weights_of(*pair, "--weights-memory", "70GiB") == {"given": 70 * 2**30}
    assert weights_of(*pair, "--cpu-offload-gb", "5")["left in host memory"] == -5 * 2**30
    for found in (plain, drafting):
        assert all(v > 0 for v in found.values())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "ideal"])
@pytest.mark.parametrize("share", [0.05, 0.55])
def test_the_rank_that_rules_is_the_one_explained_by_its_engines_own_formula(engine, share):
    options = DeploymentOptions(engine=engine, pipeline_parallel_size=3, memory=MemoryOptions(gpu_memory_utilization=share))
    deployment = calc.deploy("gemma-3n-e4b-it", "h100-sxm5-80gb", options)
    held = calc.capacity_deployment(deployment)
    steps = {step.name: step for step in explain.capacity(deployment, held)[0].steps}
    assert steps["weights"].result == held.weights_bytes_per_gpu
    assert steps["left for the KV cache"].result == held.kv_cache_bytes_per_gpu
    assert steps["KV cache per token"].result == held.kv_bytes_per_token_per_gpu


def test_a_stated_figure_has_no_line_of_a_profile():
    steps = answered("capacity", "llama-3.1-8b", "l40s", "--gpu-memory", "40GiB", "--explain", "--json").json["results"][
        "explanation"
    ]
    (memory,) = (v for step in steps for v in step["values"] if v["symbol"] == "gpu_memory")
    assert memory["source"] == "given"
    words = ("capacity", "llama-3.1-8b", "l40s", "--kv-cache-memory", "8GiB", "--explain", "--json")
    assert "left for the KV cache" not in {s["name"] for s in answered(*words).json["results"]["explanation"]}


def test_the_line_is_that_of_the_figure_that_the_engine_uses():
    for engine, symbol in (("vllm", "memory_framework_total_mib"), ("llama.cpp", "memory_reported")):
        words = ("capacity", "llama-3.1-8b", "l40s", "--engine", engine, "--explain", "--json")
        steps = answered(*words).json["results"]["explanation"]
        (source,) = (v["source"] for s in steps for v in s["values"] if v["symbol"] == "gpu_memory")
        name, line = re.search(r"(\S+\.yaml):(\d+)", source).groups()
        assert symbol in (ROOT / name).read_text(encoding="utf-8").splitlines()[int(line) - 1]


WIDE = ("estimate", "deepseek-v3", "h200-sxm-141gb", "-tp", "1", "-dp", "8", "--enable-expert-parallel")


def test_a_load_on_data_parallel_ranks_is_explained():
    found = answered(*WIDE, "--concurrency", "64", "--explain", "--json").json["results"]
    steps = {e["name"]: e for e in found["explanation"]}
    assert steps["prefill alone carries"]["value"] > 0
    assert steps["TTFT"]["value"] == found["load"]["ttft_s"]["expected"]


def test_every_explanation_can_be_asked_for_twice():
    deployment = calc.deploy("llama-3.1-8b", "l40s")
    question = Question(deployment.model, (deployment.hardware,), uniform(512, 64), Objectives(), Demand(1.0))
    work = Workload(1, 512, 64)
    for _ in range(2):
        assert explain.plan(plan(question))
        assert explain.estimate(deployment, calc.estimate_deployment(deployment, work))
        assert explain.roofline(deployment, calc.roofline_deployment(deployment, work, ("decode",)))
        assert explain.capacity(deployment, calc.capacity_deployment(deployment))


@pytest.mark.parametrize("words", [("--format", "csv"), ("-o", "memory.svg"), ("-o", "memory.html")], ids=str)
def test_an_explanation_is_not_dropped_silently(words, tmp_path):
    outcome = run("capacity", "llama-3.1-8b", "l40s", "--explain", *words, cwd=tmp_path)
    assert outcome.code == 2
    assert "--explain" in outcome.stderr
    assert not list(tmp_path.iterdir())
