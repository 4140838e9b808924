"""Questions beyond what an efficiency file was fitted on are answered and said to be."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from calc.operators.operator import Operator
from calc.profiles.efficiency import EfficiencyProfile, Factor, Fit, Latency, RunOrigin, Spread
from calc.timing.efficiency import Efficiency, load_efficiency
from calc.timing.extrapolation import outside, warnings
from calc.timing.roofline import Ceilings
from calc.timing.sizes import kernel, single, sizes
from calc.timing.step_time import operator_range


def spread(value: float) -> Spread:
    return Spread(low=value, expected=value, high=value, n=9)


def factor(*classes: str, operations=(), box=None, share=0.5, dtypes=("bf16",)) -> Factor:
    return Factor(
        operator_classes=list(classes), operations=list(operations), compute_dtypes=list(dtypes) if classes else [],
        compute=spread(share), bandwidth=spread(share), link=spread(0.5), launch_s=Latency(low=0, expected=0, high=0, n=0), box=box or {},
    )  # fmt: skip


def efficiency(*factors: Factor) -> Efficiency:
    fit = Fit(
        date="2026-01-01",
        runs=[RunOrigin(sha256="0", model="m", device="d", started="")],
        against="datasheet",
        ceilings={"bf16": 1e15},
    )
    profile = EfficiencyProfile(id="own", evidence="measured here", origin="runs", factors=[*factors, factor()], fit=fit)
    return Efficiency(profile)


def gemm(m: int, dtype: str = "bf16", name: str = "o_proj") -> Operator:
    return Operator(name, "gemm", "", 1, 1, {"m": m, "n": 4096, "k": 4096}, dtype)


def attention(tokens: int, sequences: int, keys: int) -> Operator:
    shape = {"tokens": tokens, "sequences": sequences, "pairs": tokens * keys, "keys": keys, "heads": 32, "kv_heads": 8}
    return Operator("attention", "attention", "", 1, 1, shape, "bf16")


BOX = {"m": (1.0, 512.0), "n": (1024.0, 8192.0), "k": (1024.0, 8192.0)}


@pytest.mark.parametrize("m", [1, 17, 512])
def test_inside_of_the_box_nothing_is_said(m):
    assert warnings([gemm(m)], efficiency(factor("gemm", box=BOX))) == ()


def test_outside_class_dimension_and_box_are_named():
    ((code, text),) = warnings([gemm(512), gemm(513), gemm(8192)], efficiency(factor("gemm", box=BOX)))
    assert code == "extrapolated"
    assert text.startswith("gemm: m 513 to 8,192 lies outside of 1 to 512")
    assert outside(factor("gemm", box=BOX), gemm(8192).shape) == {"m": 8192}


def test_what_the_file_does_not_hold_keeps_the_default_factors():
    own = efficiency(factor("gemm", box=BOX))
    ((code, text),) = warnings([gemm(1), gemm(1, "fp8"), attention(1, 1, 100)], own)
    assert code == "default_efficiency"
    assert "attention in bf16" in text
    assert "gemm in fp8" in text
    assert "gemm in bf16" not in text


@pytest.mark.parametrize(
    ("operator", "sure"),
    [(gemm(8), "measured here n=18"), (gemm(513), "measured here n=18, extrapolated"), (attention(1, 1, 100), "default")],
)
def test_the_evidence_of_an_operator_says_so_too(operator, sure):
    ceilings = Ceilings("x", {"bf16": 1e15}, 1e12)
    assert operator_range(operator, ceilings, efficiency(factor("gemm", box=BOX))).time_s.evidence == sure


def test_sizes_in_arrays_are_answered():
    import numpy as np

    operator = gemm(np.array([1, 4096]))
    assert (
        operator_range(operator, Ceilings("x", {"bf16": 1e15}, 1e12), efficiency(factor("gemm", box=BOX))).time_s.expected
        is not None
    )


def test_weights_in_a_format_that_was_not_measured_keep_the_default_factors():
    own = efficiency(msgspec.structs.replace(factor("gemm", box=BOX), formats=["bf16"]))
    plain, packed = (dataclasses.replace(gemm(1), weight_format=name) for name in ("bf16", "awq"))
    assert warnings([plain], own) == ()
    ((code, text),) = warnings([packed], own)
    assert code == "default_efficiency"
    assert "gemm in bf16 with awq weights" in text


def test_the_documented_default_has_no_box():
    assert warnings([gemm(1 << 20)], load_efficiency()) == ()


def test_a_kernel_with_factors_of_its_own_is_told_from_its_class():
    own = efficiency(factor("norm", operations=["rms_norm"], share=0.9), factor("norm", share=0.3))
    assert own.factor("norm", "", "bf16", "rms_norm").compute.expected == 0.9
    assert own.factor("norm", "", "bf16", "layer_norm").compute.expected == 0.3
    assert own.factor("norm", "", "fp32", "rms_norm").operator_classes == []


def test_the_order_of_factors_does_not_matter():
    rope, norm = factor("norm", operations=["rms_norm"], share=0.9), factor("norm", share=0.3)
    assert efficiency(norm, rope).factor("norm", "", "bf16", "rms_norm").compute.expected == 0.9


def test_sizes_of_operators_and_of_measured_cases_have_one_name():
    assert sizes(attention(8, 8, 800).shape) == {"batch": 8, "queries": 1, "context": 100}
    assert sizes({"b": 8, "q": 1, "kv": 100, "h": 32}) == {"batch": 8, "queries": 1, "context": 100}
    assert sizes({"rows": 64, "active": 8, "n": 512, "k": 256}) == {"m": 8, "n": 512, "k": 256}


def test_one_row_and_one_query_are_kernels_of_their_own():
    assert single("attention", attention(8, 8, 800).shape) is True
    assert single("attention", attention(9, 8, 800).shape) is False
    assert single("attention", {"b": 2, "q": 1, "kv": 7}) is True
    assert single("gemm", {"m": 1, "n": 2, "k": 3}) is True
    assert single("norm", {"m": 1}) is False
    assert kernel("attention", "attention", single=True) == "attention, one query"
    assert kernel("gemm", "o_proj", single=False) == kernel("gemm", "down_proj", single=False)
    assert kernel("norm", "rms_norm", single=False) == "rms_norm"


def test_arrays_take_each_element_from_its_own_kernel():
    import numpy as np

    own = efficiency(factor("gemm", operations=["one row"], share=0.9), factor("gemm", share=0.3))
    ceilings, rows = Ceilings("x", {"bf16": 1e15}, 1e12), [1, 2, 1, 512]

    def product(m):
        return Operator(
            "o_proj", "gemm", "", 1, 1, {"m": m, "n": 4096, "k": 4096}, "bf16", flops=2 * m * 4096**2, weight_bytes=2 * 4096**2
        )

    together = operator_range(product(np.array(rows)), ceilings, own).time_s
    for i, m in enumerate(rows):
        alone = operator_range(product(m), ceilings, own).time_s
        for part in ("floor", "low", "expected", "high"):
            value = np.broadcast_to(getattr(together, part), (len(rows),))[i]
            assert value == pytest.approx(getattr(alone, part))


def test_a_factor_of_operations_needs_their_class():
    from calc.profiles.efficiency import faults

    profile = efficiency(factor("gemm")).profile
    wrong = msgspec.structs.replace(profile, factors=[msgspec.structs.replace(factor(), operations=["rope"])])
    assert any(place[-1] == "operations" for place, _ in faults(wrong))
