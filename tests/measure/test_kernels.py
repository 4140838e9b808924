"""Every kernel against float32 at tiny shapes, through the very check that a run makes, and a planted wrong one that it must catch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calc.measure.cases.grid import Grid
from calc.measure.cases.operators import Case, workload
from calc.measure.ceilings import candidates, working_sets
from calc.measure.device.device import DeviceFacts
from calc.measure.kernels import attention as attention_kernels
from calc.measure.kernels import kernel as kernels
from calc.measure.runner import NotAvailable, OutOfMemory
from calc.measure.torch_runner import TorchRunner
from calc.profiles.model import Norm
from tests.measure.many_kinds import many_kinds
from tests.measure.simulated_device import PLAN, tiny_model

torch = pytest.importorskip("torch")

FACTS = DeviceFacts("cpu", 0, "CPU", 1 << 34, 1 << 28, 1 << 18, True, 1)
SIZES = {"batch_size": 2, "input_len": 80, "context_len": 40}


def a_case(kernel: str, sizes: dict, dtype: str, op_class: str = "gemm", **parameters: object) -> Case:
    return Case(f"{op_class}:{kernel}", kernel, op_class, "decode", kernel, sizes, dtype, 1, 1, parameters=parameters)


def all_cases(dtype: str) -> list[Case]:
    """Of every kernel but those that a CPU lacks."""
    grid = Grid(chunks=((16, 33),), composites=True, skews=(1.0,), sampling=True)
    found = [
        c
        for model in (tiny_model(norm=Norm(kind="layer", bias=True)), many_kinds())
        for c in workload(model, dtype, grid=grid, **SIZES).cases
    ]
    found += [
        c for c in workload(many_kinds(), dtype, batch_size=2, input_len=20, context_len=40).cases if c.op_class == "recurrent"
    ]
    found += [c for group in candidates(PLAN, dtype, found).values() for c in group if "missing" not in c.parameters]
    return found + [c for group in working_sets((1 << 16,), dtype).values() for c in group]


@pytest.fixture(scope="module", params=["bf16", "fp16", "fp32"])
def runner(request):
    made = TorchRunner(torch, FACTS, request.param, largest={"plain": 8 << 20}, deviation=1 / 16, seed=5)
    yield made
    made.close()


def test_every_kernel_agrees_with_float32(runner):
    cases = all_cases(runner.space.dtype)
    lacking = {"host_copy", "scaled_gemm", "scaled_experts"}  # on a CPU; in a file of their own
    assert {c.kernel for c in cases} == set(kernels.BUILDERS) - lacking
    for case in {(c.kernel, c.phase, str(c.parameters), str(c.shape)): c for c in cases}.values():
        timed = runner.prepare(case)
        assert timed.check() <= 1, case.id
        timed.begin()
        samples = timed.sample(1, 2)
        timed.end()
        timed.close()
        assert len(samples) == 2
        assert all(s > 0 for s in samples)
        assert timed.setup.kernel
        assert timed.setup.copies == (len(timed.kernel.calls) if timed.kernel.operand_bytes else 0)


def test_the_masks_are_the_ones_asked_for(runner):
    attention = [c for c in all_cases(runner.space.dtype) if c.kernel == "attention"]
    assert {c.parameters["mask"] for c in attention} == {"none", "causal", "window", "chunk", "compressed"}
    for case in attention:
        seen = attention_kernels.visible(case, runner.space, range(case.shape["q"]))
        pairs = case.shape["q"] * case.shape["kv"] if case.parameters["mask"] == "none" else int(seen.sum())
        assert 4 * case.shape["b"] * case.shape["h"] * pairs * (case.shape["d"] + case.shape["dv"]) == 2 * case.flops, case.id
    windowed = next(c for c in attention if c.parameters["mask"] == "window")
    kernel = runner.prepare(windowed).kernel
    unmasked = replace(windowed, parameters={"mask": "none"})
    other = runner.prepare(unmasked).kernel
    wrong = kernels.Kernel(other.calls, lambda: (other.compare()[0], kernel.compare()[1]), "")
    assert kernels.deviation(wrong, runner.space.dtype) > 1


def test_a_wrong_kernel_is_caught(runner):
    case = next(c for c in all_cases(runner.space.dtype) if c.kernel == "gemm")
    timed = runner.prepare(case)
    right = timed.kernel.compare
    timed.kernel.compare = lambda: (right()[0] * 1.2, right()[1])
    assert timed.check() > 1


def test_a_composite_holds_the_activations_of_all_its_parts(runner):
    whole = next(c for c in all_cases(runner.space.dtype) if c.kernel == "chain")
    parts = [runner.prepare(part).setup.held_bytes for part, _ in whole.parts]
    assert runner.prepare(whole).setup.held_bytes == sum(parts) > max(parts)


def test_operands_stay_within_a_quarter_of_free_memory(runner):
    assert runner.space.arena.numel() * runner.space.element_bytes <= FACTS.free_bytes // 4
    case = a_case("gemm", {"m": 1, "n": 1 << 14, "k": 1 << 14}, runner.space.dtype)
    with pytest.raises(OutOfMemory, match="quarter of the free memory"):
        runner.prepare(case)
    with pytest.raises(OutOfMemory, match="activations"):
        runner.prepare(replace(case, shape={"m": 1 << 20, "n": 64, "k": 64}))
    with pytest.raises(NotAvailable):
        runner.prepare(replace(case, kernel="nonsense"))


def test_rotation_goes_on_where_the_last_case_stopped(runner):
    case = next(c for c in all_cases(runner.space.dtype) if c.operation == "gate_up_proj")
    timed = runner.prepare(case)
    operands = len(timed.kernel.calls)
    assert operands * timed.kernel.operand_bytes >= 3 * FACTS.cache_bytes
    assert timed.setup.cache == "cold"
    taken = list(timed.rotation.take(operands + 1))
    assert taken[0] is taken[-1]
    assert len({id(c) for c in taken}) == operands
    timed.rotation.stop()
    other = runner.prepare(case)
    other.rotation.resume()
    assert other.rotation.position == timed.rotation.position == 1


def test_the_thread_count_is_put_back():
    before = torch.get_num_threads()
    made = TorchRunner(torch, replace(FACTS, threads=1), "fp32", largest={"plain": 1 << 20}, deviation=1.0)
    assert torch.get_num_threads() == 1
    made.close()
    assert torch.get_num_threads() == before
