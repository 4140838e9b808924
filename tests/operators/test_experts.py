"""Mixtures of experts: distinct experts, grouped products, traffic, variants, and expert parallelism."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators import work
from calc.operators.experts import active_experts
from calc.operators.operator import Operator
from calc.operators.routing import distinct_experts, inclusion_probabilities
from calc.operators.sharding import Sharding
from calc.profiles.model import Experts, SharedExperts
from tests.operators import brute
from tests.operators.builders import BF16, operator, part_operators, total

SMALL = Experts(num_experts=16, num_experts_per_token=2, intermediate_size=32)
GROUPED = ("experts_gate_up_proj", "experts_down_proj")


@pytest.mark.parametrize(("experts", "per_token", "tokens"), [(4, 1, 3), (4, 2, 2), (5, 2, 3), (6, 3, 2), (3, 3, 2)])
def test_distinct_experts_by_enumeration(experts: int, per_token: int, tokens: int) -> None:
    expected = brute.mean_distinct(experts, per_token, tokens)
    assert distinct_experts(experts, per_token, tokens) == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 512), st.data())
def test_distinct_experts_bounds(experts: int, data: st.DataObject) -> None:
    """One token reads its k experts, many read all, more tokens never read fewer, and never as many as min(E, kT) suggests."""
    per_token = data.draw(st.integers(1, experts))
    tokens = data.draw(st.integers(1, 5000))
    found = distinct_experts(experts, per_token, tokens)
    assert distinct_experts(experts, per_token, 1) == pytest.approx(per_token, rel=1e-9)
    assert distinct_experts(experts, per_token, 10**7) == pytest.approx(experts, rel=1e-9)
    assert per_token * (1 - 1e-9) <= found <= min(experts, per_token * tokens) * (1 + 1e-9)
    assert found <= distinct_experts(experts, per_token, tokens + 1) * (1 + 1e-12)


@given(st.integers(2, 256), st.floats(0.05, 3), st.data())
def test_skew_lowers_the_count(experts: int, skew: float, data: st.DataObject) -> None:
    per_token = data.draw(st.integers(1, experts))
    tokens = data.draw(st.integers(1, 500))
    shares = inclusion_probabilities(experts, per_token, skew)
    assert sum(shares) == pytest.approx(per_token, rel=1e-9)
    assert all(0 < a <= 1 for a in shares)
    assert all(a >= b for a, b in pairwise(shares))
    uniform = distinct_experts(experts, per_token, tokens)
    skewed = distinct_experts(experts, per_token, tokens, skew)
    assert skewed <= uniform * (1 + 1e-9)
    assert skewed >= per_token * (1 - 1e-9)
    assert distinct_experts(experts, per_token, 1, skew) == pytest.approx(per_token, rel=1e-9)


def test_distinct_experts_of_arrays() -> None:
    tokens = np.array([1.0, 8.0, 300.0])
    for skew in (0.0, 0.8):
        together = distinct_experts(64, 6, tokens, skew)
        alone = [distinct_experts(64, 6, int(t), skew) for t in tokens]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


def grouped(part: Experts, tokens: int, **rest: object) -> list[Operator]:
    return [o for o in part_operators(part, work.decode(tokens, 10), **rest) if o.op_class == "experts"]


def test_one_token_reads_k_experts_and_many_read_all() -> None:
    matrices = 3 * 64 * 32 * 2  # bytes of one expert
    assert total(grouped(SMALL, 1), "weight_bytes") == pytest.approx(2 * matrices, rel=1e-12)
    assert total(grouped(SMALL, 10_000), "weight_bytes") == pytest.approx(16 * matrices, rel=1e-9)


@given(st.integers(1, 400))
def test_flops_count_k_experts_per_token(tokens: int) -> None:
    assert total(grouped(SMALL, tokens), "flops") == pytest.approx(2 * tokens * 2 * 3 * 64 * 32, rel=1e-12)


@given(st.integers(1, 400))
def test_grouped_shape_rebuilds_the_operator(tokens: int) -> None:
    """active x m rows through an n x k matrix each: what a measurement would run."""
    for found in grouped(SMALL, tokens):
        shape = found.shape
        assert found.flops == pytest.approx(2 * shape["active"] * shape["m"] * shape["n"] * shape["k"], rel=1e-9)
        assert found.weight_bytes == pytest.approx(shape["active"] * shape["n"] * shape["k"] * 2, rel=1e-12)
        assert shape["active"] <= shape["experts"] == 16
        assert shape["m"] >= 1 - 1e-9


def test_router_reads_all_scores_and_keeps_its_format() -> None:
    from calc.operators.numbers import plan

    numbers = plan("bf16", {}, compute="bf16", quantization="awq")
    found = part_operators(SMALL, work.decode(5, 10), numbers=numbers)
    router = operator(found, "router")
    assert (router.flops, router.weight_bytes, router.weight_format) == (2 * 5 * 64 * 16, 2 * 64 * 16, "bf16")
    assert all(o.weight_format == "awq" for o in found if o.op_class == "experts")


def test_permute_and_combine_traffic() -> None:
    """T d in and T k d out before the products, the reverse after them."""
    found = part_operators(SMALL, work.decode(5, 10))
    for name in ("moe_permute", "moe_combine"):
        assert operator(found, name).activation_bytes == (5 * 64 + 5 * 2 * 64) * 2
    up, down = (operator(found, name) for name in GROUPED)
    assert up.activation_bytes == 10 * (64 + 64) * 2
    assert down.activation_bytes == 10 * (32 + 64) * 2


def test_shared_experts_see_every_token() -> None:
    part = Experts(
        num_experts=16,
        num_experts_per_token=2,
        intermediate_size=32,
        shared=SharedExperts(intermediate_size=48, gate=True),
    )
    found = part_operators(part, work.decode(5, 10))
    assert operator(found, "shared_gate_up_proj").flops == 2 * 5 * 64 * 96
    assert operator(found, "shared_down_proj").flops == 2 * 5 * 64 * 48
    assert operator(found, "shared_gate").flops == 2 * 5 * 64
    routed = [o for o in part_operators(SMALL, work.decode(5, 10)) if o.op_class == "experts"]
    assert [o for o in found if o.op_class == "experts"] == routed


def test_latent_experts_work_on_the_projection() -> None:
    part = Experts(num_experts=16, num_experts_per_token=2, intermediate_size=32, latent_size=24, gated=False)
    found = part_operators(part, work.decode(5, 10))
    assert operator(found, "latent_down_proj").flops == operator(found, "latent_up_proj").flops == 2 * 5 * 64 * 24
    assert operator(found, "experts_up_proj").flops == 2 * 10 * 24 * 32
    assert operator(found, "router").shape["k"] == 64  # the router still sees the hidden state


def test_zero_computation_experts_take_their_share_of_the_choices() -> None:
    part = Experts(num_experts=16, num_experts_per_token=3, intermediate_size=32, zero_experts=8)
    found = part_operators(part, work.decode(6, 10))
    assert operator(found, "router").flops == 2 * 6 * 64 * 24
    assert total(found, "flops", *GROUPED) == pytest.approx(2 * 6 * (3 * 16 / 24) * 3 * 64 * 32, rel=1e-12)
    # Computing experts are hit as often as any other of the 24 scored ones.
    assert active_experts(part, 6) == pytest.approx(distinct_experts(24, 3, 6) * 16 / 24, rel=1e-12)


@pytest.mark.parametrize("tensor", [2, 4, 8])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_both_ways_of_splitting_sum_to_the_whole(tensor: int, tokens: int) -> None:
    """Slices of every expert, or whole experts: over the ranks the same FLOP and the same bytes."""
    alone = grouped(SMALL, tokens)
    sliced = grouped(SMALL, tokens, tensor=tensor)
    whole = grouped(SMALL, tokens, sharding=Sharding(tensor=tensor, expert_parallel=True))
    for figure in ("flops", "weight_bytes"):
        expected = total(alone, figure)
        assert tensor * total(sliced, figure) == pytest.approx(expected, rel=1e-12)
        assert tensor * total(whole, figure) == pytest.approx(expected, rel=1e-12)
    assert whole[0].shape["experts"] == 16 // tensor
    assert whole[0].shape["n"] == alone[0].shape["n"] == tensor * sliced[0].shape["n"]
    # A rank with whole experts moves only its share of the copies; slices move all of them.
    assert whole[1].activation_bytes * tensor == pytest.approx(alone[1].activation_bytes, rel=1e-12)
    assert sliced[1].activation_bytes > whole[1].activation_bytes


def test_skewed_routing_reads_fewer_experts() -> None:
    flat = total(part_operators(SMALL, work.decode(8, 10)), "weight_bytes", *GROUPED)
    skewed = total(part_operators(SMALL, work.decode(8, 10), routing_skew=1.0), "weight_bytes", *GROUPED)
    assert skewed < flat


def test_biases_are_read_with_their_experts() -> None:
    part = Experts(num_experts=16, num_experts_per_token=2, intermediate_size=32, bias=True)
    more = total(grouped(part, 1), "weight_bytes") - total(grouped(SMALL, 1), "weight_bytes")
    assert more == pytest.approx(2 * (64 + 64) * 2, rel=1e-9)
    assert BF16.weight("experts").name == "bf16"
