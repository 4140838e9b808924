"""Evidence and width of ranges: what was never measured falls back to its neighbours and says so."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from calc.operators import work
from calc.profiles import catalog
from calc.serving.deployment import DeploymentOptions, resolve
from calc.serving.phase import evaluate
from calc.timing import efficiency
from calc.timing.calibrated import DEVICE_UNSEEN, ENGINE_UNSEEN, KNOWN, Calibrated
from calc.timing.efficiency import Efficiency, effects, for_setting
from calc.timing.setting import device_class
from tests.timing_model.test_steps import deployed

STEPS = {"decode": work.decode(1, 512), "prefill": work.prefill(1, 512)}


def _as_engine(deployment, name):
    setting = replace(deployment.efficiency.setting, engine=name)
    return replace(deployment, efficiency=for_setting(None, setting))


def _on_unseen(deployment):
    """The same device under a name that nobody measured."""
    profile = msgspec.structs.replace(deployment.hardware.profile, id="never-measured")
    hardware = replace(deployment.hardware, profile=profile)
    return resolve(deployment.model, hardware, DeploymentOptions(engine=deployment.engine.NAME, quantization="q4_0"))


def _width(deployment, step):
    time = evaluate(deployment, step).time_s
    return time.high / time.low


@pytest.mark.parametrize("kind", STEPS)
def test_ranges_widen_for_an_unseen_device_and_again_for_an_unseen_engine(kind):
    known = deployed("llama-2-7b", "rtx-4090", engine="llama.cpp", quantization="q4_0")
    device, engine = _on_unseen(known), _as_engine(known, "made-up")
    assert known.efficiency.level(kind) == KNOWN
    assert device.efficiency.level(kind) == DEVICE_UNSEEN
    assert engine.efficiency.level(kind) == ENGINE_UNSEEN
    widths = [_width(d, STEPS[kind]) for d in (known, device, engine)]
    assert widths == sorted(widths)
    assert widths[0] < widths[1] < widths[2]


def test_evidence_says_level_and_number_of_observations():
    known = deployed("llama-2-7b", "rtx-4090", engine="llama.cpp", quantization="q4_0")
    phase = evaluate(known, STEPS["decode"])
    word, n = phase.time_s.evidence.split("=")
    assert word == "fitted n"
    assert int(n) >= 20
    assert evaluate(_on_unseen(known), STEPS["decode"]).time_s.evidence.endswith("(device unseen)")
    assert evaluate(_as_engine(known, "made-up"), STEPS["decode"]).time_s.evidence.endswith("(engine unseen)")


def test_an_engine_on_a_class_of_devices_that_it_was_never_seen_on_counts_as_unseen():
    found = deployed("llama-3.1-8b", "trainium2", engine="vllm")
    assert found.efficiency.level("decode") == ENGINE_UNSEEN
    assert "engine_unseen" in {code for code, _ in found.warnings}


def test_an_unseen_device_lies_near_its_class():
    """An unseen name changes the expected time by no more than the device's own effects."""
    known = deployed("llama-2-7b", "rtx-4090", engine="llama.cpp", quantization="q4_0")
    for step in STEPS.values():
        here, there = evaluate(known, step).time_s, evaluate(_on_unseen(known), step).time_s
        assert there.floor == here.floor
        assert there.expected == pytest.approx(here.expected, rel=0.3)


def test_a_users_own_efficiency_file_takes_precedence(tmp_path):
    path = tmp_path / "own.yaml"
    own = (efficiency.effects_folder() / "default.yaml").read_text().replace("evidence: default", "evidence: measured here")
    path.write_text(own)
    found = deployed("llama-3.1-8b", "h100-sxm5-80gb", efficiency=str(path))
    assert isinstance(found.efficiency, Efficiency)
    assert evaluate(found, STEPS["decode"]).time_s.evidence.startswith("measured here")


def test_without_the_fitted_effects_the_documented_default_answers(tmp_path, monkeypatch):
    setting = deployed("llama-3.1-8b", "h100-sxm5-80gb").efficiency.setting
    (tmp_path / "shared.json").write_text("{ damaged")
    monkeypatch.setattr(efficiency, "effects_folder", lambda: tmp_path)
    found = for_setting(None, setting)
    assert isinstance(found, Efficiency)
    assert found.evidence == "default"


def test_every_shipped_device_and_engine_gives_effects_and_a_class():
    for name in (entry.id for entry in catalog.entries("hardware")):
        assert device_class(catalog.load(name, "hardware").profile)
    for engine in ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "made-up"):
        assert effects(engine) is not None


def test_a_term_can_be_scaled_to_ask_what_if():
    found = deployed("smollm2-360m-instruct", "h100-sxm5-80gb")
    half = replace(found, efficiency=Calibrated(found.efficiency.effects, found.efficiency.setting, {"decode.fixed": 0.5}))
    before, after = (evaluate(d, STEPS["decode"]).timed for d in (found, half))
    assert after.terms_s["decode.fixed"] == pytest.approx(before.terms_s["decode.fixed"] / 2)
    assert after.time_s.expected < before.time_s.expected


@pytest.mark.parametrize(
    ("model", "device", "options"),
    [
        ("llama-3.1-8b", "h200-sxm-141gb", {}),
        ("llama-3.1-8b", "h200-sxm-141gb", {"quantization": "fp8"}),
        ("llama-3.1-8b", "rtx-4090", {"engine": "llama.cpp", "quantization": "q4_k_m"}),
        ("deepseek-v3", "h200-sxm-141gb", {"tensor_parallel_size": 8}),
    ],
)
def test_a_higher_peak_of_any_type_slows_nothing(model, device, options):
    """Effects of power per operation look at the type that multiplies, so that other peaks of the part do not matter."""
    found, part = catalog.load(model, "model"), catalog.load(device, "hardware")
    before = resolve(found, part, DeploymentOptions(**options))
    for name, tflops in part.profile.dense_peaks().items():
        peaks = msgspec.structs.replace(part.profile.peak_dense_tflops, **{name: 1.5 * tflops})
        faster = replace(part, profile=msgspec.structs.replace(part.profile, peak_dense_tflops=peaks))
        after = resolve(found, faster, DeploymentOptions(**options))
        for step in (work.prefill(2, 900), work.decode(32, 900)):
            for end in ("floor", "low", "expected", "high"):
                assert getattr(evaluate(after, step).time_s, end) <= getattr(evaluate(before, step).time_s, end) * (1 + 1e-9)
