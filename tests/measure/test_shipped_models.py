"""Every operator of every shipped model has a kernel, or a stated reason that is no excuse."""

from __future__ import annotations

import pytest

import calc
from calc.measure.cases.formats import model_dtype, stored_formats
from calc.measure.cases.operators import Workload, workload
from calc.measure.kernels import kernel as kernels
from calc.operators.step import is_encoder_only
from calc.profiles import catalog

#: The profile gives a number of weights without a shape; the step was not asked for on several devices.
REASONS = ("the profile gives the number of these weights, not their shape", "which keys a query sees in")


def shipped() -> list[str]:
    return [entry.id for entry in catalog.entries("model")]


def of(name: str, **sizes: int) -> Workload:
    model = calc.load_model(name).profile
    return workload(model, model_dtype(model), formats=stored_formats(model), **sizes)


@pytest.mark.parametrize("sizes", [{}, {"batch_size": 4, "input_len": 4096, "context_len": 8192}])
def test_every_operator_has_a_kernel_or_a_reason(sizes):
    reasons, kernels_seen, count = set(), set(), 0
    for name in shipped():
        if is_encoder_only(calc.load_model(name).profile):
            continue
        count += 1
        work = of(name, **sizes)
        kernels_seen |= {c.kernel for c in work.cases}
        for entry in work.entries:
            operator = entry.operator
            assert (entry.case_id is None) == (entry.reason is not None), (name, operator.name)
            if entry.reason is None:
                continue
            reasons.add(entry.reason)
            assert entry.reason.startswith(REASONS), (name, operator.name, entry.reason)
            assert "elements" in operator.shape or operator.op_class == "attention", (name, operator.name)
    assert count > 150
    assert kernels_seen <= set(kernels.BUILDERS)
    assert any(r.startswith(REASONS[0]) for r in reasons)


def test_short_prompts_leave_attention_no_choice():
    """While every key is still selected, sparse attention is attention: nothing but weights without a shape is left out."""
    for name in ("deepseek-v3.2", "minimax-m3", "deepseek-v4-flash"):
        assert not [e for e in of(name).entries if e.reason and e.reason != REASONS[0]], name


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("deepseek-v3", {"part_norms", "rope", "router_topk", "moe_permute", "moe_combine", "scaled_experts", "scaled_gemm"}),
        ("mixtral-8x7b", {"router_topk", "moe_permute", "moe_combine", "experts"}),
        ("qwen3-next-80b-a3b-instruct", {"delta_chunks", "delta_step", "gated_norm", "conv1d"}),
        ("gpt-oss-120b", {"experts", "kv_cache_write"}),
        ("ai21-jamba-1.5-mini", {"selective_scan", "part_norms", "experts"}),
    ],
)
def test_the_kernels_of_known_architectures(name, wanted):
    assert wanted <= {c.kernel for c in of(name).cases}
