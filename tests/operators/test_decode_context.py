"""Decode context parallelism: cached tokens shared out, sums kept, queries and partial outputs sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import UsageError
from calc.operators import decode_context, work
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import decode, prefill
from calc.profiles.model import DenseFeedForward, FullAttention, LatentAttention
from tests.operators.builders import BF16, uniform

LATENT = LatentAttention(
    num_attention_heads=16, q_lora_rank=64, kv_lora_rank=128, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32
)
GROUPED = FullAttention(num_attention_heads=16, num_key_value_heads=2, head_dim=32)
MODELS = {name: uniform(256, 1000, 3, [m], [DenseFeedForward(intermediate_size=512)]) for name, m in
          (("latent", LATENT), ("grouped", GROUPED))}  # fmt: skip
MESSAGES = ("query_all_gather", "log_sum_exp_all_gather", "output_reduce_scatter")


def step(name, shared, done, tensor=8):
    return step_operators(MODELS[name], Sharding(tensor, decode_context=shared), BF16, done)


def total(operators, figure):
    return sum(getattr(o, figure) * o.count * o.ranks for o in operators)


@given(st.sampled_from(["latent", "grouped"]), st.integers(1, 64), st.integers(1, 50_000), st.sampled_from([2, 4]))
def test_each_rank_reads_and_writes_its_part_of_the_cache_and_computes_as_much(name, batch, context, shared):
    whole, cut = step(name, 1, decode(batch, context)), step(name, shared, decode(batch, context))
    for figure in ("kv_read_bytes", "kv_write_bytes"):
        assert total(cut, figure) * shared == pytest.approx(total(whole, figure))
    for figure in ("flops", "vector_flops", "weight_bytes"):
        assert total(cut, figure) == total(whole, figure)


@pytest.mark.parametrize("name", ["latent", "grouped"])
def test_as_many_ranks_as_copies_read_the_cache_once(name):
    copies = {"latent": 8, "grouped": 4}[name]
    alone = step(name, 1, decode(5, 4000), tensor=1)
    assert total(step(name, copies, decode(5, 4000)), "kv_read_bytes") == total(alone, "kv_read_bytes")


def test_messages_are_those_of_the_groups_queries_and_partial_outputs():
    found = {o.name: o for o in step("latent", 4, decode(5, 4000))}
    heads, rows = 16 // 8 * 4, 5  # two heads a rank, four ranks
    expected = {
        "query_all_gather": rows * heads * (128 + 16) * 2,
        "log_sum_exp_all_gather": rows * heads * 4 * 4,
        "output_reduce_scatter": rows * heads * 128 * 4,
    }
    assert {n: found[n].collective.message_bytes for n in MESSAGES} == expected
    assert {found[n].collective.ranks for n in MESSAGES} == {4}
    assert found["attention"].shape["heads"] == heads
    assert found["attention"].shape["keys"] == 5 * 4000 // 4


@pytest.mark.parametrize("name", ["latent", "grouped"])
def test_a_prompt_keeps_its_part_and_gathers_what_was_cached(name):
    fresh, hit = (step(name, 4, prefill(2, 1000, cached)) for cached in (0, 600))
    assert not any(o.name in (*MESSAGES, "cache_all_gather") for o in fresh)
    gathered = [o for o in hit if o.name == "cache_all_gather"]
    own = total(step(name, 1, prefill(2, 1000, 600)), "kv_read_bytes") - total(
        step(name, 1, prefill(2, 1000, 600)), "new_kv_read_bytes"
    )
    assert sum(o.collective.message_bytes * o.count * o.ranks for o in gathered) == pytest.approx(own)
    assert total(fresh, "kv_write_bytes") * 4 == total(step(name, 1, prefill(2, 1000)), "kv_write_bytes")


def test_a_mixed_step_shares_out_its_decodes_alone():
    both = step("grouped", 4, work.mixed(prefill(1, 300), decode(6, 2000)))
    cores = [o for o in both if o.name == "attention"]
    assert sorted(o.shape["heads"] for o in cores) == [2, 8]
    assert sum(o.name == "query_all_gather" for o in both) == 1


@pytest.mark.parametrize(("tensor", "shared", "fits"), [(8, 4, True), (8, 2, True), (8, 8, False), (2, 2, False), (16, 8, True)])
def test_key_value_heads_limit_the_ranks_that_share(tensor, shared, fits):
    sharding = Sharding(tensor, decode_context=shared)
    if fits:
        decode_context.check(MODELS["grouped"], sharding)
    else:
        with pytest.raises(UsageError, match="copies") as refused:
            decode_context.check(MODELS["grouped"], sharding)
        assert f"{2 * shared} tensor-parallel ranks" in (refused.value.hint or "")
    decode_context.check(MODELS["latent"], sharding)
