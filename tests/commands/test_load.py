"""``roofcast estimate`` under a stated load, and with weights or layers on the host."""

from __future__ import annotations

import pytest

from tests.commands.test_failures import refused
from tests.support.cli import answered, run, run_inside

PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")
LOAD = ("estimate", *PAIR, "--concurrency", "16")


def test_the_load_is_on_the_page_in_json_and_explained():
    document = answered(*LOAD, "--json").json
    found = document["results"]["load"]
    assert (found["carried"], found["concurrency"], found["in_flight_per_replica"]) == (True, 16, 16)
    assert document["inputs"]["concurrency"] == 16
    assert found["ttft_s"]["expected"] >= document["results"]["request"]["ttft_s"]["expected"]
    shown = answered(*LOAD).stdout
    assert "under 16 users" in shown
    assert "load" not in answered("estimate", *PAIR, "--json").json["results"]
    assert "serving.loaded" in answered(*LOAD, "--explain").stdout


def test_a_load_that_is_not_carried_says_why():
    outcome = run("estimate", *PAIR, "--request-rate", "9999", "--json")
    assert outcome.code == 1
    found = outcome.json["results"]["load"]
    assert found["carried"] is False
    assert found["fails"][0]["what"] == "request_rate"
    assert set(found["tpot_s"].values()) == {None}
    assert "not carried" in run("estimate", *PAIR, "--request-rate", "9999").stdout


def test_capacity_and_times_agree_on_what_the_host_holds():
    big = ("llama-3.1-70b", "h100-sxm5-80gb")
    assert run("estimate", *big, "--json").code == 1
    document = answered("estimate", *big, "--cpu-offload-gb", "80", "--json").json
    assert document["inputs"]["cpu_offload_bytes"] == 80 * 2**30
    short = ("--cpu-offload-gb", "80GiB", "--max-model-len", "8k", "--require-fit", "--json")
    assert answered("capacity", *big, *short).json["results"]["fits"] is True
    lines = answered("roofline", *big, "--cpu-offload-gb", "80", "--json").json["results"]["decode"]
    assert lines["operators"][-1]["name"] == "host_weights"
    assert lines["bound"] == "network"
    layers = ("--engine", "llama.cpp", "-q", "q4_k_m", "-ngl", "40", "--host-memory-bandwidth", "70")
    shown = answered("estimate", "llama-3.1-70b", "rtx-4090", *layers, "-i", "512", "--explain").stdout
    assert "host_layers add" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("--concurrency", "4", "--request-rate", "1"),
        ("--concurrency", "0"),
        ("--request-rate", "0"),
        ("--request-rate=-2",),
        ("--request-rate", "nan"),
        ("--cpu-offload-gb", "200"),
        ("--cpu-offload-gb=-1",),
        ("--cpu-offload-gb", "much"),
        ("-ngl", "4"),
        ("--engine", "llama.cpp", "-ngl", "4"),
        ("--engine", "llama.cpp", "-ngl", "4", "--host-memory-bandwidth", "0"),
        ("--engine", "llama.cpp", "--cpu-offload-gb", "4"),
        ("--engine", "tensorrt-llm", "--cpu-offload-gb", "4"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(capsys, monkeypatch, arguments):
    outcome = run_inside(capsys, monkeypatch, "estimate", *PAIR, *arguments)
    refused(outcome, 2)
    assert "hint:" in outcome.stderr
