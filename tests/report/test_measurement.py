"""The page of ``measure``: who watched, what disturbed, and each advice once."""

from __future__ import annotations

from dataclasses import asdict

from calc.measure.cases.operators import workload
from calc.report import measurement, table
from tests.measure.simulated_device import Device, session, tiny_model


def page(device: Device) -> str:
    work = workload(tiny_model(), "bf16", input_len=256, only="gemm:*")
    result = session(device, work=work).run(0, 8)
    made = measurement.page("Tiny", asdict(result))
    return " ".join([*table.plain(made).split(), *(f"[{code}] {message}" for code, message in made.warnings)])


def test_what_watched_and_what_nobody_watched():
    assert "Watched by simulated; unmonitored: temperature, power." in page(Device())
    assert "unmonitored: temperature." in page(Device(power_w=300.0))


def test_power_limited_cases_are_named():
    text = page(Device(reasons=0x04))
    assert "Power limited: gemm:qkv_proj/prefill/" in text
    assert "Power limited" not in page(Device())


def test_each_advice_once_with_the_number_of_cases():
    text = page(Device(noise=0.12))
    assert text.count("[W_NOISY]") == 1
    assert "more)" in text
    assert "--only" in text


def test_what_is_said_of_the_run_is_not_said_of_each_case():
    text = page(Device(tells_waiting=True, neighbours=(0.0, 1e9)))
    assert text.count("other processes had the processor") == 1
    assert "noisy: other processes had the processor throughout" in text
