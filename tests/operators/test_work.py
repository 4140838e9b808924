"""Visible pairs and keys, counted by writing the mask out, and the shapes of each kind of step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators import work
from tests.support.profiles import attention, decoder, named, operators

small = st.integers(0, 40)
some = st.integers(1, 40)
bound = st.integers(1, 50)


def full(query: int, key: int) -> bool:
    return key <= query


def windowed(window: int):
    return lambda query, key: 0 <= query - key < window


def chunked(chunk: int):
    return lambda query, key: key <= query and key // chunk == query // chunk


def mask(new: int, cached: int, visible) -> list[list[bool]]:
    """Row by row: which of the ``cached + new`` keys each new position sees."""
    return [[visible(cached + i, key) for key in range(cached + new)] for i in range(new)]


def pairs(new: int, cached: int, visible) -> int:
    return sum(map(sum, mask(new, cached, visible)))


def keys(new: int, cached: int, visible) -> int:
    return sum(any(column) for column in zip(*mask(new, cached, visible), strict=True))


# --- the counting functions -----------------------------------------------------------------------------------------------


@given(some, small)
def test_causal_pairs_equal_the_mask(new, cached):
    assert work.causal_pairs(new, cached) == pairs(new, cached, full)


@given(some, small)
def test_bidirectional_pairs_equal_the_full_rectangle(new, cached):
    assert work.bidirectional_pairs(new, cached) == pairs(new, cached, lambda query, key: True)


@given(some, small, bound)
def test_window_pairs_equal_the_mask(new, cached, window):
    assert work.window_pairs(new, cached, window) == pairs(new, cached, windowed(window))


@given(some, small, bound)
def test_window_keys_equal_the_columns_seen(new, cached, window):
    assert work.window_keys(new, cached, window) == keys(new, cached, windowed(window))


@given(some, small, bound)
def test_chunk_pairs_equal_the_mask(new, cached, chunk):
    assert work.chunk_pairs(new, cached, chunk) == pairs(new, cached, chunked(chunk))


@given(some, small, bound)
def test_chunk_keys_equal_the_columns_seen(new, cached, chunk):
    assert work.chunk_keys(new, cached, chunk) == keys(new, cached, chunked(chunk))


@given(st.lists(some, min_size=1, max_size=5), small, bound)
def test_pairs_of_a_prompt_are_the_sum_over_its_chunks(chunks, cached, size):
    laws = (
        work.causal_pairs,
        lambda s, p: work.window_pairs(s, p, size),
        lambda s, p: work.chunk_pairs(s, p, size),
    )
    for law in laws:
        done, parts = cached, 0
        for new in chunks:
            parts += law(new, done)
            done += new
        assert parts == law(sum(chunks), cached)


@given(st.integers(1, 60), small)
def test_decode_steps_sum_to_the_pairs_of_one_prefill(new, cached):
    assert sum(work.causal_pairs(1, cached + i) for i in range(new)) == work.causal_pairs(new, cached)


@given(some, small)
def test_a_window_longer_than_the_context_is_full_attention(new, cached):
    longer = cached + new
    assert work.window_pairs(new, cached, longer) == work.causal_pairs(new, cached)
    assert work.window_keys(new, cached, longer) == cached + new


@given(st.integers(1 << 30, 1 << 32), st.integers(1 << 30, 1 << 32))
def test_pairs_stay_exact_integers_at_any_length(new, cached):
    found = work.causal_pairs(new, cached)
    assert isinstance(found, int)
    assert found == new * cached + new * (new + 1) // 2


@given(st.lists(st.tuples(some, small, bound), min_size=1, max_size=8))
def test_arrays_count_as_numbers_do(cases):
    new, cached, size = (np.array(column) for column in zip(*cases, strict=True))
    for law in (work.window_pairs, work.chunk_pairs, work.window_keys, work.chunk_keys):
        assert law(new, cached, size).tolist() == [law(*case) for case in cases]
    for law in (work.causal_pairs, work.bidirectional_pairs):
        assert law(new, cached).tolist() == [law(s, p) for s, p, _ in cases]


# --- the kinds of step ------------------------------------------------------------------------------------------------------


def test_prefill_brings_the_whole_prompt_and_one_row_of_logits_a_sequence():
    step = work.prefill(3, 17)
    (group,) = step.groups
    assert (group.count, group.new, group.cached) == (3, 17, 0)
    assert (step.tokens, step.sequences, step.logit_rows, step.phase) == (51, 3, 3, "prefill")


@pytest.mark.parametrize(("hit", "new"), [(0, 17), (1, 16), (16, 1), (17, 1), (40, 1)])
def test_a_prefix_hit_leaves_at_least_the_last_token_to_compute(hit, new):
    (group,) = work.prefill(2, 17, hit).groups
    assert (group.new, group.cached) == (new, 17 - new)


def test_decode_context_counts_the_new_token_itself():
    step = work.decode(5, 100)
    (group,) = step.groups
    assert (group.new, group.cached, step.tokens, step.logit_rows) == (1, 99, 5, 5)


def test_verification_has_a_row_of_logits_for_every_draft_and_one_more():
    drafts = 4
    step = work.decode(5, 100, new_tokens=1 + drafts)
    (group,) = step.groups
    assert (group.new, group.cached, step.tokens, step.logit_rows) == (5, 95, 25, 25)


def test_verifying_no_draft_is_a_decode_step():
    assert work.decode(5, 100, new_tokens=1) == work.decode(5, 100)


def test_a_mixed_step_holds_both_kinds_of_request():
    step = work.mixed(work.prefill(1, 30, 10), work.decode(4, 50))
    assert (step.tokens, step.sequences, step.logit_rows) == (20 + 4, 5, 5)


# --- the attention operator does exactly that work ---------------------------------------------------------------------------

HEADS, KV_HEADS, DQ, DV, WINDOW, CHUNK = 6, 2, 8, 12, 5, 7
MASKS = {"kind0": full, "kind1": windowed(WINDOW), "kind2": chunked(CHUNK)}
MODEL = decoder(
    hidden=40,
    layers=3,
    mixers=[
        attention(HEADS, KV_HEADS, DQ, v_head_dim=DV),
        attention(HEADS, KV_HEADS, DQ, "sliding", v_head_dim=DV, window=WINDOW),
        attention(HEADS, KV_HEADS, DQ, "chunked", v_head_dim=DV, chunk=CHUNK),
    ],
    width=56,
    vocab=100,
)


@pytest.mark.parametrize("layers", MASKS)
@pytest.mark.parametrize(
    ("step", "requests"),
    [
        (work.prefill(2, 13), [(13, 0)] * 2),
        (work.prefill(2, 13, 9), [(4, 9)] * 2),
        (work.prefill(2, 13, 13), [(1, 12)] * 2),
        (work.decode(3, 16), [(1, 15)] * 3),
        (work.decode(3, 3), [(1, 2)] * 3),
        (work.decode(3, 16, new_tokens=4), [(4, 12)] * 3),
        (work.mixed(work.prefill(1, 11, 4), work.decode(2, 9)), [(7, 4), (1, 8), (1, 8)]),
    ],
    ids=["prefill", "prefix hit", "full prefix hit", "decode", "decode of a short context", "verification", "mixed"],
)
def test_attention_flop_and_kv_reads_follow_the_mask(layers, step, requests):
    found = [o for o in operators(MODEL, step) if o.layers == layers and o.op_class == "attention"]
    expected_pairs = sum(pairs(s, p, MASKS[layers]) for s, p in requests)
    expected_keys = sum(keys(s, p, MASKS[layers]) for s, p in requests)
    assert sum(o.count * o.flops for o in found) == 2 * HEADS * (DQ + DV) * expected_pairs
    assert sum(o.count * o.kv_read_bytes for o in found) == 2 * KV_HEADS * (DQ + DV) * expected_keys


def test_a_layer_that_is_not_causal_computes_the_rectangle():
    model = decoder(hidden=32, layers=1, mixers=attention(4, 2, 8, causal=False), width=32, vocab=None)
    found = named(operators(model, work.prefill(3, 9)), "attention")
    assert found.flops == 2 * 4 * 16 * 3 * 9 * 9


@given(
    heads=st.sampled_from([1, 2, 4, 8]),
    groups=st.sampled_from([1, 2, 4]),
    batch=st.integers(1, 64),
    context=st.integers(1, 5000),
    new=st.integers(1, 5),
)
def test_attention_intensity_depends_on_grouping_and_new_tokens_but_not_on_batch(heads, groups, batch, context, new):
    """Every new token of a group's ``g`` query heads shares one read of the keys: at most ``2 g s / b`` FLOP per byte."""
    model = decoder(hidden=32, layers=1, mixers=attention(heads * groups, heads, 8), width=32, vocab=None)
    context = max(context, new)
    found = named(operators(model, work.decode(batch, context, new)), "attention")
    intensity = found.flops / found.kv_read_bytes
    alone = named(operators(model, work.decode(1, context, new)), "attention")
    assert intensity == pytest.approx(alone.flops / alone.kv_read_bytes, rel=1e-12)
    assert intensity <= 2 * groups * new / 2 * (1 + 1e-12)
    if new == 1:
        assert intensity == pytest.approx(2 * groups / 2, rel=1e-12)
