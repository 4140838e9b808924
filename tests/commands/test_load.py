"""``roofcast estimate`` under a stated load, and with weights or layers on the host."""

from __future__ import annotations

import hashlib

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


def test_users_that_do_not_divide_by_the_replicas_are_counted_once():
    one = answered("estimate", *PAIR, "--concurrency", "1", "--json").json["results"]["load"]
    two = answered("estimate", *PAIR, "--concurrency", "1", "-dp", "2", "--json").json["results"]["load"]
    assert two["request_rate"] == one["request_rate"]
    assert two["output_tokens_per_s"] == one["output_tokens_per_s"]
    page = answered("estimate", *PAIR, "--concurrency", "1", "-dp", "2").stdout
    assert "under 1 user on 2 replicas" in page
    assert "1 in flight on the busiest replica" in page
    three = answered("estimate", *PAIR, "--concurrency", "3", "-dp", "2", "--json").json["results"]["load"]
    busiest = answered("estimate", *PAIR, "--concurrency", "2", "--json").json["results"]["load"]
    assert three["output_tokens_per_s"] == pytest.approx(3 / 2 * busiest["output_tokens_per_s"])


def test_one_request_a_second_is_one():
    assert "under 1 request/s " in answered("estimate", *PAIR, "--request-rate", "1").stdout


def test_a_load_is_echoed_as_it_was_asked_for():
    asked = answered("estimate", *PAIR, "--concurrency", "4", "--json").json
    assert asked["inputs"]["concurrency"] == 4
    assert asked["inputs"]["request_rate"] is None
    assert asked["results"]["load"]["request_rate"] > 0
    rate = answered("estimate", *PAIR, "--request-rate", "0.5", "--json").json["inputs"]
    assert (rate["request_rate"], rate["concurrency"]) == (0.5, None)


def test_a_load_without_rates_is_null_and_no_failure():
    found = answered("estimate", "llama-3.1-8b", "mi308x", "--concurrency", "4", "--json").json["results"]["load"]
    assert found["carried"] is None
    assert found["concurrency"] == 4
    assert found["request_rate"] is None
    assert set(found["ttft_s"].values()) == {None}
    assert "not answered" in answered("estimate", "llama-3.1-8b", "mi308x", "--concurrency", "4").stdout


def test_an_efficiency_file_is_an_input_and_a_profile(tmp_path):
    share = "{low: 0.5, expected: 0.6, high: 0.7, n: 3}"
    launch = "{low: 1.0e-5, expected: 1.0e-5, high: 1.0e-5, n: 3}"
    factor = f"{{compute: {share}, bandwidth: {share}, link: {share}, launch_s: {launch}}}"
    path = tmp_path / "own.yaml"
    path.write_text(f"id: own\nevidence: measured here\norigin: a test\nfactors:\n  - {factor}\n", encoding="utf-8")
    document = answered("estimate", *PAIR, "--efficiency", str(path), "--json").json
    assert document["inputs"]["efficiency"] == str(path)
    (profile,) = (p for p in document["profiles"] if p["kind"] == "efficiency")
    assert profile["name"] == "own"
    assert profile["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "efficiency" not in answered("estimate", *PAIR, "--json").json["inputs"]


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


def test_what_helps_is_told_by_the_model_not_by_what_the_host_adds_last():
    words = ("estimate", "llama-3.1-8b", "h100-sxm5-80gb", "-q", "fp8", "-i", "16k")
    lines = [
        next(line.split("  ")[:2] for line in answered(*words, *more).stdout.splitlines() if line.startswith("what helps"))
        for more in ((), ("--cpu-offload-gb", "0.01"))
    ]
    assert lines[0] == lines[1]
