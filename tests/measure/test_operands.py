"""Arenas: as large as their largest operand asks for, within their part of memory, and no copy of a state among the weights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calc.measure.cases.formats import asked_formats
from calc.measure.cases.operators import workload
from calc.measure.ceilings import candidates, working_sets
from calc.measure.device.device import DeviceFacts
from calc.measure.kernels.operand_sizes import PLAIN, largest_operands, operand_bytes
from calc.measure.kernels.workspace import Workspace
from calc.measure.runner import OutOfMemory
from calc.measure.torch_runner import TorchRunner
from tests.measure.many_kinds import many_kinds
from tests.measure.simulated_device import PLAN, tiny_model

torch = pytest.importorskip("torch")

FACTS = DeviceFacts("cpu", 0, "CPU", 1 << 34, 1 << 26, 1 << 18, True, 1)


@pytest.mark.parametrize("quantization", ["none", "fp8", "int8"])
def test_what_is_planned_is_what_kernels_ask_for(quantization):
    """No kernel rotates over more than its arena was sized for."""
    work = workload(many_kinds(), "bf16", batch_size=2, input_len=20, context_len=40, formats=asked_formats(quantization))
    runner = TorchRunner(torch, FACTS, "bf16", largest=largest_operands(work.cases), deviation=0.1)
    for case in work.cases:
        rotated = runner.prepare(case).kernel.operand_bytes
        indexed = case.kernel in ("embedding", "kv_cache_write")  # rows of the whole arena
        assert indexed or rotated <= operand_bytes(case), case.id
    runner.close()


def test_each_arena_has_its_own_largest():
    work = workload(many_kinds(), "bf16", formats=asked_formats("fp8"))
    found = largest_operands(work.cases)
    assert set(found) == {PLAIN, "fp32", "fp8"}
    groups = candidates(replace(PLAN, host_bytes=1 << 20), "bf16", ()) | working_sets((1 << 30,), "bf16")
    sizes = largest_operands(c for g in groups.values() for c in g)
    # Working sets, writes and host copies have buffers of their own.
    assert sizes == {PLAIN: max(2 * PLAN.copy_bytes, 2 * max(PLAN.matmul_sizes) ** 2)}
    assert largest_operands([]) == {PLAIN: 1 << 20}


def test_side_arenas_stay_within_an_eighth_of_free_memory():
    space = Workspace(torch, FACTS, "bf16", {PLAIN: 1 << 20, "fp32": 1 << 40}, 0.1, 0)
    views = space.states(1 << 10)
    assert sum(v.numel() * 4 for v in views) <= FACTS.free_bytes // 8
    with pytest.raises(OutOfMemory, match="an eighth of the free memory"):
        space.states(FACTS.free_bytes // 32 + 1)
    with pytest.raises(OutOfMemory, match="an eighth"):
        space.quantised("fp8", FACTS.free_bytes // 8 + 1)
    with pytest.raises(OutOfMemory, match="activations"):
        space.filled(FACTS.free_bytes)


def test_states_are_no_weights():
    space = Workspace(torch, FACTS, "bf16", {PLAIN: 1 << 20}, 0.1, 0)
    before = space.arena.clone()
    for view in space.states(64, 64):
        view.fill_(float("nan"))
    assert torch.equal(space.arena, before)


def test_a_run_in_fp8_needs_little_of_the_plain_type():
    plain, quantised = (largest_operands(workload(tiny_model(), "bf16", formats=asked_formats(q)).cases) for q in ("none", "fp8"))
    assert set(plain) == {PLAIN}
    assert quantised["fp8"] <= max(1 << 20, plain[PLAIN])
