"""Attention on data-parallel ranks, whole experts on all of them: what sums to the whole, what one rank does, and the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import UsageError
from calc.operators import work
from calc.operators.numbers import plan
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.token_copies import destinations
from calc.operators.work import Work, decode, prefill, share
from calc.profiles.model import Block, DenseFeedForward, Experts, FullAttention, LayerKind, SharedExperts
from tests.operators.builders import BF16, model

MIXTURE = Experts(num_experts=16, num_experts_per_token=3, intermediate_size=96, shared=SharedExperts(intermediate_size=64))
HEADS = FullAttention(num_attention_heads=8, num_key_value_heads=4, head_dim=16)
MODEL = model(
    64,
    1000,
    {
        "dense": LayerKind(mixers=[HEADS], feed_forwards=[DenseFeedForward(intermediate_size=256)]),
        "experts": LayerKind(mixers=[HEADS], feed_forwards=[MIXTURE]),
    },
    [Block(layers=["dense"]), Block(repeat=3, layers=["experts"])],
)
SUMS = ("flops", "vector_flops", "exponentials", "kv_read_bytes", "kv_write_bytes", "state_bytes")
steps = st.one_of(
    st.builds(decode, st.integers(1, 300), st.integers(1, 5000)),
    st.builds(prefill, st.integers(1, 60), st.integers(1, 3000)),
    st.builds(lambda a, b, c, d: work.mixed(prefill(a, b), decode(c, d)), *[st.integers(1, 60)] * 4),
)


def wide(data: int, tensor: int = 1) -> Sharding:
    return Sharding(tensor, data=data, expert_parallel=True)


def total(operators, figure, *, without=()):
    return sum(getattr(o, figure) * o.count * o.ranks for o in operators if o.name not in without)


def named(operators, name, layers="experts"):
    return [o for o in operators if o.name == name and o.layers == layers]


@given(steps, st.sampled_from([2, 4, 16]))
def test_ranks_sum_to_the_step_of_one_device(step, data):
    alone, dealt = (step_operators(MODEL, s, BF16, step, evenly=True) for s in (Sharding(), wide(data)))
    for figure in SUMS:
        assert total(dealt, figure) == pytest.approx(total(alone, figure), rel=1e-12), figure


@given(steps, st.sampled_from([2, 4, 16]))
def test_experts_are_read_once_and_everything_else_on_every_rank_with_requests(step, data):
    alone, dealt = (step_operators(MODEL, s, BF16, step, evenly=True) for s in (Sharding(), wide(data)))
    busy = min(data, step.sequences)
    for one, many in ((c, [o for o in dealt if o.name == c.name and o.layers == c.layers]) for c in alone):
        held = sum(o.weight_bytes * o.ranks for o in many)
        copies = 1 if one.op_class == "experts" else busy
        assert held == pytest.approx(copies * one.weight_bytes, rel=1e-12), one.name


@given(steps, st.sampled_from([1, 2, 4]), st.sampled_from([2, 4]))
def test_the_fullest_rank_does_no_less_than_the_mean(step, tensor, data):
    mean, fullest = (step_operators(MODEL, wide(data, tensor), BF16, step, evenly=e) for e in (True, False))
    assert [o.name for o in mean] == [o.name for o in fullest]
    for one, most in zip(mean, fullest, strict=True):
        for figure in (*SUMS, "weight_bytes", "activation_bytes", "network_bytes"):
            assert getattr(one, figure) <= getattr(most, figure) * (1 + 1e-12), (one.name, figure)


@given(st.integers(1, 40), st.integers(1, 3000), st.sampled_from([2, 4, 8]))
def test_a_batch_that_divides_makes_the_fullest_rank_the_mean_one(each, context, data):
    step = decode(each * data, context)
    mean, fullest = (step_operators(MODEL, wide(data), BF16, step, evenly=e) for e in (True, False))
    assert mean == fullest


@given(steps, st.sampled_from([1, 2, 4]))
def test_one_data_rank_is_tensor_parallelism_to_the_digit(step, tensor):
    plain, one = (step_operators(MODEL, Sharding(tensor, expert_parallel=e), BF16, step) for e in (False, True))
    assert not any(o.name in ("dispatch", "combine", "all_gather") for o in one)
    assert one == step_operators(MODEL, wide(1, tensor), BF16, step, evenly=True)
    if tensor == 1:
        assert one == plain


@given(st.integers(1, 200), st.sampled_from([1, 2]), st.sampled_from([2, 4, 8]))
def test_messages_are_copies_of_a_ranks_own_tokens(batch, tensor, data):
    operators = step_operators(MODEL, wide(data, tensor), BF16, decode(batch * tensor * data, 100))
    (there,), (back,) = named(operators, "dispatch"), named(operators, "combine")
    ranks = tensor * data
    copies = batch * destinations(16, 3, ranks)
    assert there.collective.message_bytes == pytest.approx(copies * 128)  # 64 elements in 16 bit, as the experts are
    assert back.collective == there.collective
    assert there.network_bytes == pytest.approx(copies * 128 * (ranks - 1) / ranks)
    reduced = {o.layers: o.count for o in operators if o.name == "all_reduce"}
    assert reduced == ({} if tensor == 1 else {"model": 1, "dense": 2, "experts": 3})
    assert len(named(operators, "all_gather")) == (tensor > 1)


def test_fp8_experts_are_sent_fp8_with_scales_and_answer_in_16_bit():
    fp8 = plan("bf16", {"experts": "fp8"}, compute="bf16", low_precision=frozenset({"fp8"}))
    without_units = plan("bf16", {"experts": "fp8"}, compute="bf16")
    for numbers, there in ((fp8, 64 + 4), (without_units, 128)):
        operators = step_operators(MODEL, wide(4), numbers, decode(8, 100))
        assert named(operators, "dispatch")[0].shape["bytes_per_copy"] == there
        assert named(operators, "combine")[0].shape["bytes_per_copy"] == 128


@pytest.mark.parametrize(("step", "relayed"), [(decode(8, 10), False), (prefill(8, 10), True)])
def test_prompts_are_relayed_inside_hosts_and_decode_goes_straight(step, relayed):
    (there,) = named(step_operators(MODEL, wide(4), BF16, step), "dispatch")
    assert there.collective.copies.relayed is relayed


@given(st.integers(1, 300))
def test_more_ranks_hold_and_read_less_of_the_experts(batch):
    read = []
    for data in (1, 2, 4, 8, 16):
        operators = step_operators(MODEL, wide(data), BF16, decode(batch, 10))
        read.append(sum(o.weight_bytes for o in operators if o.op_class == "experts"))
    assert read == sorted(read, reverse=True)
    assert read[0] == pytest.approx(16 * read[-1])


def test_shared_experts_are_whole_where_tokens_travel():
    (split,), (whole,) = (
        named(step_operators(MODEL, s, BF16, decode(8, 10)), "shared_down_proj") for s in (Sharding(2), wide(2, 2))
    )
    assert whole.weight_bytes == 2 * split.weight_bytes
    assert whole.shape["m"] == 2  # eight tokens on two groups of two ranks
    assert split.shape["m"] == 8


@pytest.mark.parametrize(("tensor", "data"), [(1, 3), (2, 5), (4, 8), (1, 32)])
def test_experts_that_cannot_be_dealt_out_say_what_could(tensor, data):
    with pytest.raises(UsageError, match="16 experts") as refused:
        step_operators(MODEL, wide(data, tensor), BF16, decode(8, 10))
    assert "1, 2, 4, 8, 16" in (refused.value.hint or "")


def test_arrays_are_points():
    batches = np.array([1.0, 5.0, 64.0, 99.0])
    for evenly in (False, True):
        many = step_operators(MODEL, wide(4), BF16, decode(batches, 77.0), evenly=evenly)
        for i, batch in enumerate((1, 5, 64, 99)):
            one = step_operators(MODEL, wide(4), BF16, decode(batch, 77), evenly=evenly)
            for a, b in zip(many, one, strict=True):
                for figure in ("flops", "weight_bytes", "activation_bytes", "kv_read_bytes", "network_bytes"):
                    value = np.broadcast_to(getattr(a, figure), batches.shape)[i]
                    assert value == pytest.approx(getattr(b, figure), rel=1e-12), (a.name, figure)


@given(st.integers(1, 1000), st.integers(1, 64))
def test_shares_of_requests(count, parts):
    step = Work("decode", (work.Requests(count, 1, 9),))
    assert share(step, parts).sequences == -(-count // parts)
    assert share(step, parts, evenly=True).sequences * parts == pytest.approx(count)
    assert share(step, 1) is step
