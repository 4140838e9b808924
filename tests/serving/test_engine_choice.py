"""Engines of which only speeds are published: times with their own effects, memory as the ideal engine, refused where they do not run."""

from __future__ import annotations

import msgspec
import pytest

import calc
from calc.commands.options import DEPLOYMENT
from calc.errors import UnknownNameError, UsageError
from calc.memory.engines import WITHOUT_LAW, all_engines, engine
from calc.serving.deployment import DeploymentOptions
from tests.support.cli import answered
from tests.support.memory import GIB, held
from tests.support.profiles import device

#: Engine → model, device and weight format near its decode records, and how many there are.
MEASURED = {
    "gpt-fast": ("llama-2-7b", "a100-sxm4-80gb", "none", 17),
    "mlx": ("llama-3.1-8b", "apple-m4-max", "mlx-4bit", 5),
    "exllamav2": ("llama-2-7b", "rtx-4090", "gptq", 11),
}


@pytest.mark.parametrize("name", MEASURED)
def test_times_rest_on_the_records_of_the_engine(name):
    model, hardware, stored, records = MEASURED[name]
    asked = ("estimate", model, hardware, "-q", stored, "--json", "--engine")
    found = answered(*asked, name).json
    time = found["results"]["decode"]["time_s"]
    assert time["evidence"] == f"fitted n={records}"
    assert 0 < time["floor"] <= time["low"] <= time["expected"] <= time["high"]
    assert found["inputs"]["engine"] == name
    codes = [w["code"] for w in found["warnings"]]
    assert "no_memory_law" in codes
    assert "engine_unseen" not in codes
    other = answered(*asked, "ideal").json["results"]["decode"]["time_s"]
    assert time["expected"] != other["expected"]
    assert time["high"] / time["low"] < other["high"] / other["low"]


def test_an_engine_without_any_record_says_that_its_times_are_those_of_others():
    found = answered("estimate", "llama-2-7b", "a100-sxm4-80gb", "--engine", "transformers", "--json").json
    assert found["results"]["decode"]["time_s"]["evidence"].endswith("(engine unseen)")
    assert {"engine_unseen", "no_memory_law"} <= {w["code"] for w in found["warnings"]}


@pytest.mark.parametrize("name", WITHOUT_LAW)
def test_memory_is_that_of_the_ideal_engine(name):
    one, ideal = (held("llama-3.1-8b", "rtx-4090", n, gpu_memory_bytes=40 * GIB) for n in (name, "ideal"))
    assert (one.engine, ideal.engine) == (name, "ideal")
    assert name in dict(one.warnings)["no_memory_law"]
    for figure in ("terms", "kv_tokens", "max_concurrency", "max_context_tokens", "kv_bytes_per_sequence", "fits"):
        assert getattr(one, figure) == getattr(ideal, figure)


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("mlx", "mi300x"), ("mlx", "tpu-v5e"), ("mlx", "v100-sxm2-32gb"),
        ("exllamav2", "apple-m4-max"), ("exllamav2", "desktop-ddr5-5600-2ch"), ("gpt-fast", "apple-m4-max"), ("gpt-fast", "trainium2"),
    ],
)  # fmt: skip
def test_a_device_that_the_engine_does_not_run_on_is_refused_with_those_it_runs_on(name, hardware):
    with pytest.raises(UsageError, match=f"{name} does not run on {hardware}") as refusal:
        calc.deploy("llama-2-7b", hardware, DeploymentOptions(engine=name))
    assert "it runs on" in (refusal.value.hint or "")


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("mlx", "rtx-4090"),
        ("mlx", "desktop-ddr5-5600-2ch"),
        ("exllamav2", "rx-7900-xtx"),
        ("gpt-fast", "mi300x"),
        ("transformers", "tpu-v5e"),
    ],
)
def test_devices_that_the_documentation_names_are_answered(name, hardware):
    assert name == calc.deploy("llama-2-7b", hardware, DeploymentOptions(engine=name)).engine.NAME


@pytest.mark.parametrize(
    ("typed", "meant"), [("gptfast", "gpt-fast"), ("exllama", "exllamav2"), ("mlxx", "mlx"), ("transformer", "transformers")]
)
def test_a_name_that_is_nearly_one_is_suggested(typed, meant):
    with pytest.raises(UnknownNameError) as refusal:
        engine(typed)
    assert meant in (refusal.value.hint or "")


def test_help_and_completion_name_every_engine():
    option = next(p for p in DEPLOYMENT if p.name == "engine").annotation.__metadata__[0]
    assert all(name in option.help for name in all_engines())
    assert option.autocompletion("") == all_engines()
    assert option.autocompletion("ex") == ["exllamav2"]


@pytest.mark.parametrize("word", ["sm_90", "nan", "9", "-1.0", ""])
def test_a_compute_capability_that_is_none_is_a_fault_of_the_profile(word):
    with pytest.raises(msgspec.ValidationError, match="compute_capability"):
        device(compute_capability=word)
