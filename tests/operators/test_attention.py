"""Softmax attention: shared caches, encoders without a causal mask, cross-attention, block selection."""

from __future__ import annotations

import pytest

from calc.operators import layer_kinds, work
from calc.profiles.model import BlockSparseAttention, CrossAttention, FullAttention, SlidingAttention
from tests.operators.builders import cache_bytes, laws, mixer_operators, operator, total

HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16}
TOKEN = 4 * 2 * 16 * 2  # bytes of the keys and values of one token


def prefill_with_source(count: int, new: int) -> work.Work:
    return work.prefill(count, new)


def continued(count: int, new: int, cached: int) -> work.Work:
    return work.Work("prefill", (work.Requests(count, new, cached),))


@pytest.mark.parametrize("kind", [FullAttention, SlidingAttention])
def test_layers_that_share_a_cache_store_nothing_and_still_read_it(kind: type) -> None:
    """Gemma 3n: no key and value projections, no write, but one read of the shared cache per layer and step."""
    rest = {"window": 40} if kind is SlidingAttention else {}
    own, shared = kind(**HEADS, **rest), kind(**HEADS, **rest, kv_source="shared")
    a, b = (mixer_operators(m, work.decode(3, 100)) for m in (own, shared))
    kernels = (operator(a, "attention"), operator(b, "attention"))
    for figure in ("flops", "kv_read_bytes", "compulsory_bytes", "activation_bytes"):
        assert getattr(kernels[0], figure) == getattr(kernels[1], figure), figure
    assert total(b, "kv_write_bytes") == 0
    assert not laws(shared)
    assert operator(b, "q_proj").flops == 2 * 3 * 64 * 128
    assert total(a, "flops") - total(b, "flops") == 2 * 3 * 64 * 128
    # The checkpoint may still hold the unused projections: held, never read.
    held = layer_kinds.mixer_module(shared).weights(shared, 64, 1)
    (idle,) = [w for w in held if w.use == "idle"]
    assert idle.elements == 64 * 128
    assert sum(o.weight_bytes for o in b) == sum(2 * w.elements for w in held if w.use == "own")
    absent = kind(**HEADS, **rest, kv_source="shared", kv_weights_stored=False)
    assert not [w for w in layer_kinds.mixer_module(absent).weights(absent, 64, 1) if w.use == "idle"]


def test_keys_as_values_drop_the_value_weights_and_keep_both_caches() -> None:
    apart, joint = FullAttention(**HEADS), FullAttention(**HEADS, k_eq_v=True)
    a, b = (mixer_operators(m, work.decode(1, 10)) for m in (apart, joint))
    assert total(a, "flops") - total(b, "flops") == 2 * 64 * 64
    assert cache_bytes(apart, 10) == cache_bytes(joint, 10)


def test_an_encoder_keeps_no_cache_and_moves_its_keys_as_activations() -> None:
    mixer = FullAttention(**HEADS, causal=False)
    found = mixer_operators(mixer, work.prefill(2, 50))
    core = operator(found, "attention")
    assert not laws(mixer)
    assert (core.kv_read_bytes, total(found, "kv_write_bytes")) == (0, 0)
    assert core.flops == 2 * 2 * 8 * 32 * 50 * 50
    assert core.activation_bytes == 100 * (8 + 4) * 32 * 2


CROSS = CrossAttention(**HEADS, source_tokens=30, source_size=48)


def test_cross_keys_are_made_once_per_request_from_the_source() -> None:
    first = mixer_operators(CROSS, prefill_with_source(2, 50))
    assert operator(first, "kv_proj").flops == 2 * 2 * 30 * 48 * 128
    assert operator(first, "q_proj").flops == 2 * 100 * 64 * 128
    assert total(first, "kv_write_bytes") == 2 * 30 * TOKEN
    for later in (continued(2, 50, 50), work.decode(2, 100)):
        found = mixer_operators(CROSS, later)
        assert not [o for o in found if o.name in ("kv_proj", "kv_cache_write")]
        assert total(found, "kv_write_bytes") == 0


def test_cross_attention_reads_the_source_every_step() -> None:
    for context in (1, 100, 5000):
        core = operator(mixer_operators(CROSS, work.decode(3, context)), "attention")
        assert core.kv_read_bytes == 3 * 30 * TOKEN
        assert core.flops == 2 * 3 * 8 * 32 * 30
    assert cache_bytes(CROSS, 1) == cache_bytes(CROSS, 5000) == 30 * TOKEN


def test_a_mixed_step_makes_keys_only_for_new_requests() -> None:
    done = work.mixed(work.prefill(2, 50), work.decode(7, 100))
    found = mixer_operators(CROSS, done)
    assert operator(found, "kv_proj").flops == 2 * 2 * 30 * 48 * 128
    assert operator(found, "attention").kv_read_bytes == 9 * 30 * TOKEN


SPARSE = BlockSparseAttention(**HEADS, block=8, topk_blocks=4, index_heads=2, index_head_dim=16)


def test_block_selection_bounds_reads_but_not_storage() -> None:
    """The index key of every token is scored; attention reads the selected blocks."""
    for context in (10, 32, 33, 4000):
        found = mixer_operators(SPARSE, work.decode(1, context))
        score, core = operator(found, "index_score"), operator(found, "attention")
        assert score.kv_read_bytes == context * 16 * 2
        assert score.flops == 2 * 2 * 16 * context
        assert core.kv_read_bytes == min(context, 32) * TOKEN
        assert total(found, "kv_write_bytes") == TOKEN + 16 * 2
        assert cache_bytes(SPARSE, context) == context * (TOKEN + 16 * 2)


def test_index_keys_are_whole_on_every_rank() -> None:
    assert cache_bytes(SPARSE, 10, tensor=4) == 10 * (TOKEN / 4 + 16 * 2)
