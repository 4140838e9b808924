"""Products of quantised operands: against float32, with scales and saturation that are what they say, and refused by name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from calc.errors import UsageError
from calc.measure.cases import formats
from calc.measure.cases.operators import Case, list_cases, workload
from calc.measure.device.device import DeviceFacts
from calc.measure.kernels import kernel as kernels
from calc.measure.kernels import quantised as quantised_kernels
from calc.measure.kernels import workspace
from calc.measure.preparation import first_notices, settle_formats
from calc.measure.runner import NotAvailable
from calc.measure.torch_runner import TorchRunner
from calc.profiles.hardware import HardwareProfile, PeakDenseTflops
from calc.profiles.model import Storage
from tests.measure.many_kinds import many_kinds
from tests.measure.simulated_device import Device, session, tiny_model

torch = pytest.importorskip("torch")

FACTS = DeviceFacts("cpu", 0, "CPU", 1 << 34, 1 << 28, 1 << 18, True, 1)
CUDA = replace(FACTS, kind="cuda")
BLOCKS = Storage(dtype="bf16", roles={"attention": "fp8-block", "feed_forward": "fp8-block", "experts": "mxfp4"})


def stored():
    return tiny_model(storage=BLOCKS)


@pytest.fixture
def runner():
    made = TorchRunner(torch, FACTS, "bf16", largest={"plain": 4 << 20}, deviation=1 / 16, seed=5)
    yield made
    made.close()


def scaled(quantization: str) -> list[Case]:
    work = workload(many_kinds(), "bf16", batch_size=2, input_len=20, context_len=40, formats=formats.asked_formats(quantization))
    return [c for c in work.cases if c.kernel.startswith("scaled_")]


@pytest.mark.parametrize("quantization", ["fp8", "fp8-channel", "fp8-block", "int8"])
def test_products_agree_with_float32(runner, quantization):
    cases = scaled(quantization)
    assert {c.kernel for c in cases} == {"scaled_gemm", "scaled_experts"}
    assert any("copies" in c.shape for c in cases)
    for case in {(c.kernel, c.phase, "copies" in c.shape): c for c in cases}.values():
        timed = runner.prepare(case)
        assert timed.check() <= 1, case.id
        assert "of values saturated" in timed.setup.kernel
        right = timed.kernel.compare
        timed.kernel.compare = lambda right=right: (right()[0].float() * 1.2, right()[1])
        assert timed.check() > 1, case.id


def test_scales_are_those_of_the_format_or_said(runner):
    words = {
        q: runner.prepare(next(c for c in scaled(q) if c.kernel == "scaled_gemm")).setup.kernel for q in ("fp8", "fp8-channel")
    }
    assert "scales by tensor" in words["fp8"]
    assert "scales by row" in words["fp8-channel"]
    block = runner.prepare(next(c for c in scaled("fp8-block") if c.kernel == "scaled_gemm")).setup.kernel
    assert "scales by block" in block or "instead of block" in block
    assert "instead" not in words["fp8"] + words["fp8-channel"]


def test_values_spread_over_the_range(runner):
    for kind, highest in workspace.RANGE.items():
        weights, unit = runner.space.quantised(kind, 256, 256)
        values = weights[0].float()
        assert values.abs().max() <= highest
        assert values.std() == pytest.approx(highest / workspace.DEVIATIONS_IN_RANGE, rel=0.1)
        assert float(values.std()) * unit == pytest.approx(runner.space.deviation, rel=0.1)
        assert runner.space.saturated_share(kind) < quantised_kernels.MOST_SATURATED


@pytest.mark.parametrize("quantization", ["fp8", "int8"])
def test_saturated_values_fail_the_case(runner, monkeypatch, quantization):
    monkeypatch.setattr(workspace, "DEVIATIONS_IN_RANGE", 1.0)
    with pytest.raises(NotAvailable, match="values are saturated"):
        runner.prepare(scaled(quantization)[0])


def test_a_torch_without_the_product_fails_the_case_by_name(runner, monkeypatch):
    monkeypatch.setattr(quantised_kernels, "scaled_product", lambda _: None)
    with pytest.raises(NotAvailable, match="has no scaled product"):
        runner.prepare(scaled("fp8")[0])
    assert "has no scaled product" in quantised_kernels.lacking(torch, FACTS, "fp8")
    old = SimpleNamespace(ones=torch.ones, int8=torch.int8, __version__="1.0")
    assert "_int_mm" in quantised_kernels.lacking(old, FACTS, "int8")
    monkeypatch.delattr(torch, "_int_mm")
    with pytest.raises(NotAvailable, match="_int_mm"):
        runner.prepare(scaled("int8")[0])


def test_the_private_name_serves_an_older_torch():
    old = SimpleNamespace(nn=torch.nn, _scaled_mm=torch._scaled_mm)
    old.nn = SimpleNamespace(functional=SimpleNamespace())
    product = quantised_kernels.scaled_product.__wrapped__(old)
    one = torch.ones(16, 64).to(torch.float8_e4m3fn)
    assert product(one, one.t(), torch.ones(()), torch.ones(()), "tensor", torch.bfloat16).float().eq(64).all()
    assert quantised_kernels.scaled_product.__wrapped__(SimpleNamespace(nn=old.nn)) is None


def test_what_is_stored_is_measured_on_an_accelerator():
    model = stored()
    on_cpu, on_cuda = (list_cases(model, kind=kind) for kind in ("cpu", "cuda"))
    assert {c.dtype for c in on_cpu.cases} == {"bf16"}
    quantised = {c.operation for c in on_cuda.cases if c.dtype == "fp8"}
    assert {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"} <= quantised
    assert "lm_head" not in quantised
    assert {c.parameters["format"] for c in on_cuda.cases if c.dtype == "fp8"} == {"fp8-block"}
    assert {c.dtype for c in list_cases(model, kind="cuda", quantization="none").cases} == {"bf16"}
    assert {c.dtype for c in list_cases(model, quantization="int8").cases} == {"bf16", "int8"}
    whole = tiny_model(storage=Storage(dtype="float8_e4m3fn"))
    assert set(formats.stored_formats(whole).values()) == {"fp8"}


@pytest.mark.parametrize("name", ["q4_k_m", "awq", "mxfp4", "fp64", "", "fp8; rm -rf"])
def test_formats_without_a_product_are_refused(name):
    with pytest.raises(UsageError, match="cannot be measured") as fault:
        list_cases(tiny_model(), quantization=name)
    assert "int8" in fault.value.hint


def test_a_stored_format_gives_way_where_the_device_lacks_it(monkeypatch):
    said = []
    monkeypatch.setattr("calc.measure.preparation.lacking", lambda *_: "needs compute capability 8.9")
    assert settle_formats(torch, stored(), CUDA, None, said.append) == {}
    assert "8.9" in str(said[0])
    # What was asked for stays, so that its cases say why they fail.
    assert set(settle_formats(torch, stored(), CUDA, "fp8", said.append).values()) == {"fp8"}


def test_what_is_not_measured_as_stored_is_said():
    notice = next(n for n in first_notices(stored(), FACTS, "bf16", {}) if n.code == "W_FORMAT_NOT_MEASURED")
    assert "fp8-block, mxfp4" in notice.message
    notices = first_notices(stored(), FACTS, "bf16", formats.stored_formats(stored()))
    assert "stores mxfp4;" in next(n for n in notices if n.code == "W_FORMAT_NOT_MEASURED").message
    assert "W_FORMAT_NOT_MEASURED" not in {n.code for n in first_notices(tiny_model(), FACTS, "bf16", {})}


def test_a_quantised_run_has_ceilings_of_both_types():
    work = workload(tiny_model(), "bf16", input_len=256, formats=formats.asked_formats("fp8"))
    sheet = HardwareProfile(
        id="planted", name="Planted", vendor="test", device_class="measured", unit_of_account="device", memory_capacity_gb=8,
        memory_bandwidth_gb_per_s=55, peak_dense_tflops=PeakDenseTflops(bf16=1.1, fp8=1.1),
    )  # fmt: skip
    result = session(Device(), work=work, hardware=sheet).run(0, 20)
    assert not [w for w in result.warnings if "DATASHEET" in w.code]
    names = {c.name: c for c in result.ceilings}
    assert names["matmul"].dtype == "bf16"
    assert names["matmul_fp8"].dtype == "fp8"
    quantised = [r for r in result.rows if r.compute_dtype == "fp8"]
    assert quantised
    assert all(r.predicted_s and r.measured_s for r in quantised)
    assert kernels.TOLERANCE["int8"] < kernels.TOLERANCE["fp8"]
