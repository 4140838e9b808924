"""The page of an estimate: its heading, what would help, and a load before the batch that runs alone."""

from __future__ import annotations

import pytest

import calc
from calc.report.estimate import page
from calc.report.table import Page
from calc.serving.load.objectives import Demand
from calc.serving.request import Workload
from tests.support.memory import deploy

PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")


def shown(model: str, hardware: str, batch: int = 1, **options: object) -> Page:
    deployment = deploy(model, hardware, **options)
    return page(deployment, calc.estimate_deployment(deployment, Workload(batch_size=batch)))


def row(answer: Page, name: str, table: int = 0) -> list[str]:
    return next(cells for cells in answer.tables[table].rows if cells[0] == name)


@pytest.mark.parametrize(
    ("hardware", "options", "words"),
    [
        ("h100-sxm5-80gb", {"quantization": "fp8"}, "fp8 compute, weights fp8"),
        ("a100-sxm4-80gb", {"quantization": "fp8"}, "bf16 compute, weights fp8"),
        ("rtx-4090", {"engine": "llama.cpp", "quantization": "q4_k_m"}, "int8 compute, weights q4_k_m"),
        ("rtx-4090", {"engine": "llama.cpp"}, "fp16 compute, weights as stored"),
    ],
)
def test_the_heading_names_the_type_that_the_main_products_run_in(hardware, options, words):
    assert words in shown("llama-3.1-8b", hardware, **options).headline[0]


@pytest.mark.parametrize(
    ("hardware", "options", "offered"),
    [
        ("h100-sxm5-80gb", {}, True),
        ("h100-sxm5-80gb", {"quantization": "fp8"}, False),
        ("a100-sxm4-80gb", {"quantization": "fp8"}, False),
        ("a100-sxm4-80gb", {}, False),
        ("rtx-4090", {"engine": "llama.cpp"}, False),
    ],
)
def test_fp8_helps_where_the_device_has_it_and_it_is_not_used(hardware, options, offered):
    answer = shown("llama-3.1-8b", hardware, batch=4, **options)
    assert row(answer, "bottleneck")[1] == "compute"
    assert ("fp8" in row(answer, "what helps")[1]) is offered


def test_what_helps_against_overhead():
    answer = shown("gpt-oss-20b", "h100-sxm5-80gb")
    assert row(answer, "bottleneck")[2] == "overhead"
    assert row(answer, "what helps")[2] == "fewer launches (graphs), more batch"


def test_a_load_comes_before_the_batch_that_runs_alone():
    deployment = deploy(*PAIR)
    answer = page(deployment, calc.estimate_deployment(deployment, Workload(), demand=Demand(concurrency=7)))
    assert answer.tables[0].rows[0][0] == "under 7 users"
    assert "batch" not in answer.headline[1]
    assert answer.tables[1].title.startswith("without that load: batch 1")
    assert not any(cells[0].startswith("under") for table in answer.tables[1:] for cells in table.rows)
    assert len(shown(*PAIR).tables) == 2


def test_a_limit_of_the_engine_below_memory_is_named_with_it():
    assert "memory holds" not in row(shown(*PAIR), "capacity", 1)[1]
    capacity = row(shown(*PAIR, max_num_seqs=8), "capacity", 1)[1]
    assert capacity.startswith("memory holds 360.6 ")
    assert "the engine runs at most 8;" in capacity
