"""Visible pairs and distinct keys against counts position by position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators import compressed_attention, work
from calc.profiles.model import (
    BlockSparseAttention,
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Mixer,
    SlidingAttention,
)
from tests.operators import brute
from tests.operators.builders import check_golden, mixer_operators, operator

NEW, CACHED, WIDTH = st.integers(1, 40), st.integers(0, 60), st.integers(1, 50)
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
LATENT = {
    "num_attention_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}


def shape(mixer: Mixer, new: int, cached: int, name: str = "attention") -> tuple[float, float]:
    """(pairs, keys) of the attention kernel for one request."""
    one = work.Work("decode", (work.Requests(1, new, cached),))
    found = operator(mixer_operators(mixer, one), name).shape
    return found["pairs"], found["keys"]


@given(NEW, CACHED)
def test_full_causal(new: int, cached: int) -> None:
    seen = [brute.causal(i) for i in brute.positions(new, cached)]
    assert shape(FullAttention(**HEADS), new, cached) == (brute.pairs(seen), brute.distinct(seen))
    assert shape(LatentAttention(**LATENT), new, cached) == (brute.pairs(seen), brute.distinct(seen))


@given(NEW, CACHED)
def test_bidirectional(new: int, cached: int) -> None:
    assert shape(FullAttention(**HEADS, causal=False), new, cached) == (new * (new + cached), new + cached)


@given(NEW, CACHED, WIDTH)
def test_window(new: int, cached: int, width: int) -> None:
    seen = [brute.window(i, width) for i in brute.positions(new, cached)]
    expected = (brute.pairs(seen), brute.distinct(seen))
    assert shape(SlidingAttention(**HEADS, window=width), new, cached) == expected
    assert shape(LatentAttention(**LATENT, window=width), new, cached) == expected


@given(NEW, CACHED, WIDTH)
def test_chunks(new: int, cached: int, width: int) -> None:
    seen = [brute.chunk(i, width) for i in brute.positions(new, cached)]
    assert shape(ChunkedAttention(**HEADS, chunk=width), new, cached) == (brute.pairs(seen), brute.read_span(seen))


@given(NEW, CACHED, WIDTH)
def test_selection_by_an_indexer(new: int, cached: int, topk: int) -> None:
    """Each query attends to min(visible, topk) keys, while the indexer scores all visible ones."""
    mixer = LatentAttention(**LATENT, indexer=Indexer(num_heads=2, head_dim=128, topk=topk))
    seen = [brute.causal(i) for i in brute.positions(new, cached)]
    pairs, keys = shape(mixer, new, cached)
    assert pairs == sum(min(len(s), topk) for s in seen)
    assert min(topk, cached + 1) <= keys <= cached + new
    assert shape(mixer, new, cached, "index_score") == (brute.pairs(seen), brute.distinct(seen))


@given(NEW, CACHED, st.integers(1, 6), st.integers(1, 6))
def test_selection_of_blocks(new: int, cached: int, block: int, topk: int) -> None:
    mixer = BlockSparseAttention(**HEADS, block=block, topk_blocks=topk, index_heads=2, index_head_dim=8)
    seen = [brute.causal(i) for i in brute.positions(new, cached)]
    assert shape(mixer, new, cached)[0] == sum(min(len(s), block * topk) for s in seen)
    assert shape(mixer, new, cached, "index_score") == (brute.pairs(seen), brute.distinct(seen))


def compressed(ratio: int, window: int, topk: int | None) -> CompressedAttention:
    return CompressedAttention(
        num_attention_heads=4,
        head_dim=16,
        rotary_dim=8,
        query_rank=16,
        output_rank=8,
        output_groups=2,
        window=window,
        ratio=ratio,
        indexer=Indexer(num_heads=2, head_dim=128, topk=topk) if topk else None,
    )


@given(NEW, CACHED, st.integers(2, 9), WIDTH, st.none() | st.integers(1, 8))
def test_compressed_entries(new: int, cached: int, ratio: int, window: int, topk: int | None) -> None:
    """A window of tokens plus every complete entry, or the best of them."""
    mixer = compressed(ratio, window, topk)
    near = [brute.window(i, window) for i in brute.positions(new, cached)]
    entries = [brute.complete_entries(i, ratio) for i in brute.positions(new, cached)]
    pairs, keys = shape(mixer, new, cached)
    most = topk or 10**9
    assert pairs == brute.pairs(near) + sum(min(len(e), most) for e in entries)
    if topk is None:
        assert keys == brute.distinct(near) + brute.distinct(entries)
    else:
        assert shape(mixer, new, cached, "index_score") == (brute.pairs(entries), brute.distinct(entries))
        assert brute.distinct(near) + max(min(len(e), most) for e in entries) <= keys
        assert keys <= brute.distinct(near) + brute.distinct(entries)


@given(st.integers(0, 200), st.integers(2, 9), st.none() | st.integers(1, 8))
def test_entries_seen(tokens: int, ratio: int, most: int | None) -> None:
    expected = sum(min(i // ratio, most if most is not None else i) for i in range(1, tokens + 1))
    assert compressed_attention.entries_seen(tokens, ratio, most) == expected


@given(NEW, CACHED, WIDTH)
def test_cross_attention_sees_the_source(new: int, cached: int, source: int) -> None:
    assert shape(CrossAttention(**HEADS, source_tokens=source), new, cached) == (new * source, source)


def test_golden_pairs() -> None:
    """Golden values of the pair counts."""
    check_golden("pairs.causal.S2048.P6144", shape(FullAttention(**HEADS), 2048, 6144)[0])
    check_golden("pairs.window1024.S8192", shape(SlidingAttention(**HEADS, window=1024), 8192, 0)[0])
    check_golden("pairs.chunked8192.S2048.P7168", shape(ChunkedAttention(**HEADS, chunk=8192), 2048, 7168)[0])


@pytest.mark.parametrize("mixer", [FullAttention(**HEADS), SlidingAttention(**HEADS, window=9), compressed(4, 9, None)])
def test_decoding_token_by_token_sums_to_one_prefill(mixer: Mixer) -> None:
    whole, _ = shape(mixer, 50, 30)
    assert sum(shape(mixer, 1, cached)[0] for cached in range(30, 80)) == whole
