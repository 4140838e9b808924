"""A device without a profile gets one from what it reaches: planted rates come back, and the file passes the lint."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from calc.errors import MeasurementError
from calc.measure.device.detect import LocalDevice
from calc.measure.fitting.own_profile import profile_of, rates
from calc.measure.progress import silent
from calc.profiles import hardware, reader, writer
from tests.measure.simulated_device import FACTS, PLAN, Device
from tests.support.cli import run

LOCAL = LocalDevice("cpu", "AMD EPYC 9999 Test", 25_276_502_016, 1, "system")
OTHER = LocalDevice("cuda", "Testchip X1", 150_754_820_096, 2, "torch", "570.1")


class Types(Device):
    """Products of each type at a rate of its own; fp16 has none."""

    def prepare(self, case):
        self.peak = {"bf16": 2e12, "fp32": 1e12}.get(case.dtype, 1.0)
        self.no_memory = ("*fp16",)
        return super().prepare(case)


def measured(device=None):
    device = device or Types()
    return rates(lambda dtype, tried: device, device, device, PLAN, ("bf16", "fp16", "fp32"), silent, budget_s=5)


def profile(local=LOCAL, facts=FACTS, found=None, identifier=None):
    return profile_of(local, facts, found or measured(), identifier=identifier, date="2026-01-31", software="torch 9")


def test_planted_rates_come_back():
    made = profile()
    assert made.peak_dense_tflops.bf16 == pytest.approx(2.0, rel=0.05)
    assert made.peak_dense_tflops.fp32 == pytest.approx(1.0, rel=0.05)
    assert made.peak_dense_tflops.fp16 is None
    assert made.memory_bandwidth_gb_per_s == pytest.approx(50, rel=0.1)
    assert made.memory_capacity_gb == 24
    assert made.memory_reported_bytes == LOCAL.memory_bytes
    assert (made.vendor, made.device_class, made.aliases) == ("AMD", "cpu", [LOCAL.name])
    assert {s.access for s in made.sources} == {"measured", "arithmetic"}
    assert made.sources[0].date == "2026-01-31"
    assert "measured here" in made.sources[0].note


@pytest.mark.parametrize(
    ("local", "facts"),
    [(LOCAL, FACTS), (OTHER, replace(FACTS, kind="cuda", details={"sm_count": 132, "compute_capability": "9.0"}))],
)
def test_the_file_passes_the_lint_and_describes_the_device(tmp_path, local, facts):
    made = profile(local, facts, identifier="my-device")
    path = tmp_path / "my-device.yaml"
    path.write_text(writer.hardware_yaml(made))
    assert reader.convert(reader.parse_yaml(path.read_bytes(), "x"), hardware.HardwareProfile, hardware.faults) == made
    checked = run("check", str(path))
    assert checked.code == 0, checked.stdout
    estimated = run("estimate", "llama-3.2-1b", local.name, "--profiles-dir", str(tmp_path), "--json")
    assert estimated.code == 0, estimated.stderr


def test_a_noisy_rate_is_doubted():
    found = [replace(c, status="unreliable") if c.dtype == "fp32" else c for c in measured()]
    assert any("fp32" in d for d in profile(found=found).doubts)
    assert not any("not quiet" in d for d in profile().doubts)


@pytest.mark.parametrize("missing", ["matmul", "read"])
def test_without_a_rate_there_is_no_profile(missing):
    found = [c for c in measured() if not c.name.startswith(missing)]
    with pytest.raises(MeasurementError, match="no rate"):
        profile(found=found)


def test_a_device_that_tells_no_memory_has_no_profile():
    with pytest.raises(MeasurementError, match="memory"):
        profile(replace(LOCAL, memory_bytes=None), replace(FACTS, memory_bytes=None))


def test_files_are_not_overwritten_and_named_as_profiles_are(tmp_path):
    (tmp_path / "there.yaml").write_text("x")
    refused = run("hardware", "detect", "--measure", "-o", str(tmp_path / "there.yaml"))
    assert refused.code == 2
    assert "--force" in refused.stderr
    assert (tmp_path / "there.yaml").read_text() == "x"
    for name in ("Big.yaml", "x.json"):
        assert run("hardware", "detect", "--measure", "-o", str(tmp_path / name)).code == 2


def test_without_torch_it_says_how_to_get_it(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from calc.commands import main; main()"
    command = [sys.executable, "-c", code, "hardware", "detect", "--measure", "-o", str(tmp_path / "mine.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert "pip install 'roofcast[measure]'" in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
