"""Every kernel on a CUDA device, captured and replayed, against float32; what the device lacks fails by name."""

from __future__ import annotations

import pytest

from calc.measure.cases.formats import asked_formats
from calc.measure.cases.grid import Grid
from calc.measure.cases.operators import workload
from calc.measure.ceilings import GPU_PLAN, candidates, working_sets
from calc.measure.device import device
from calc.measure.kernels.operand_sizes import largest_operands
from calc.measure.runner import NotAvailable
from calc.measure.torch_runner import TorchRunner
from tests.measure.many_kinds import many_kinds
from tests.measure.simulated_device import tiny_model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def checked(cases, dtype: str) -> dict[str, str]:
    """Reasons of cases that this device has no kernel for; all others must be right."""
    cases = list(cases)
    facts = device.describe(torch, "cuda", 0)
    runner = TorchRunner(torch, facts, dtype, largest=largest_operands(cases), deviation=1 / 16, seed=5)
    lacking = {}
    try:
        for case in {(c.kernel, c.phase, str(c.shape), str(c.parameters)): c for c in cases}.values():
            try:
                timed = runner.prepare(case)
            except NotAvailable as fault:
                lacking[case.id] = str(fault)
                continue
            assert timed.check() <= 1, case.id
            timed.begin()
            samples = timed.sample(2, 2)
            timed.end()
            timed.close()
            assert min(samples) > 0, case.id
    finally:
        runner.close()
    return lacking


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_plain_kernels(dtype):
    sizes = {"batch_size": 2, "input_len": 80, "context_len": 40}
    work = workload(many_kinds(), dtype, grid=Grid(chunks=((16, 33),), composites=True, skews=(1.0,), sampling=True), **sizes)
    assert checked(work.cases, dtype) == {}


def test_ceilings():
    groups = candidates(GPU_PLAN, "bf16", ()) | working_sets((1 << 20, 1 << 30), "bf16")
    assert checked((group[0] for group in groups.values()), "bf16") == {}


@pytest.mark.parametrize("quantization", ["fp8", "fp8-channel", "fp8-block", "int8"])
def test_quantised_products(quantization):
    model = tiny_model(hidden_size=1024)
    work = workload(model, "bf16", input_len=256, formats=asked_formats(quantization))
    scaled = [c for c in work.cases if c.kernel.startswith("scaled_")]
    lacking = checked(scaled, "bf16")
    assert not lacking or torch.cuda.get_device_capability() < (8, 9), lacking
