"""Properties that hold for every layer kind, on random small parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calc.operators import layer_kinds, native_sparse_attention, work
from calc.operators.fusion import FUSED, SEPARATE
from calc.operators.operator import Operator
from calc.operators.recurrent import STEPWISE_TOKENS
from calc.operators.weight import Weight
from calc.profiles.model import Experts, FeedForward, Mixer, NativeSparseAttention, Rwkv
from tests.operators.builders import BF16, FIGURES, cache_bytes, laws, mixer_operators, part_operators, total
from tests.operators.strategies import MIXERS, PARTS

KINDS = [*MIXERS, *PARTS]
BATCH, NEW, CACHED = st.integers(1, 20), st.integers(1, 90), st.integers(0, 200)
some = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


def draw(data: st.DataObject, kind: str) -> Mixer | FeedForward:
    return data.draw(MIXERS[kind] if kind in MIXERS else PARTS[kind])


def run(part: Mixer | FeedForward, done: work.Work, **rest: object) -> list[Operator]:
    if type(part).__name__ in layer_kinds.FEED_FORWARD_MODULES:
        return part_operators(part, done, **rest)  # type: ignore[arg-type]
    return mixer_operators(part, done, **rest)  # type: ignore[arg-type]


def weights(part: Mixer | FeedForward, tensor: int) -> list[Weight]:
    if type(part).__name__ in layer_kinds.FEED_FORWARD_MODULES:
        return layer_kinds.feed_forward_module(part).weights(part, 64, tensor)  # type: ignore[arg-type]
    return layer_kinds.mixer_module(part).weights(part, 64, tensor)  # type: ignore[arg-type]


def step(count: object, new: object, cached: object, source: bool = False) -> work.Work:
    return work.Work("step", (work.Requests(count, new, cached, writes_source=source),))  # type: ignore[arg-type]


def multiplied(operators: list[Operator]) -> list[Operator]:
    """Products with weights that every new token passes: latents that are expanded again are not among them."""
    return [o for o in operators if o.op_class == "gemm" and o.name != "kv_b_proj"]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@some
def test_linear_flops_are_two_per_matrix_element_and_token(kind: str, data: st.DataObject) -> None:
    """Router, projections and gates: 2 x elements x tokens; experts with k of E; vectors and biases not counted."""
    part, count, new = draw(data, kind), data.draw(BATCH), data.draw(NEW)
    operators = run(part, step(count, new, 17, source=True))
    for weight in weights(part, 1):
        found = [o for o in operators if o.name == weight.name]
        if weight.vector or weight.name == "kv_b_proj":
            continue
        (operator,) = found
        matrix = weight.d_in * weight.d_out * weight.copies
        rows = count * new
        if kind == "cross" and weight.name == "kv_proj":
            rows = count * part.source_tokens  # type: ignore[union-attr]
        if isinstance(part, Experts) and weight.role == "experts":
            rows = rows * part.num_experts_per_token / (part.num_experts + part.zero_experts)
        assert operator.flops == pytest.approx(2 * matrix * rows, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@some
def test_a_batch_of_equal_requests_scales_all_but_the_weights(kind: str, data: st.DataObject) -> None:
    part, count = draw(data, kind), data.draw(BATCH)
    new, cached = data.draw(NEW), data.draw(CACHED)
    one, many = run(part, step(1, new, cached)), run(part, step(count, new, cached))
    assert [o.name for o in one] == [o.name for o in many]
    for a, b in zip(one, many, strict=True):
        for figure in FIGURES:
            if figure == "weight_bytes":
                expected = getattr(a, figure)
                if a.op_class == "experts":
                    assert getattr(a, figure) <= getattr(b, figure) * (1 + 1e-12)
                    continue
            else:
                expected = count * getattr(a, figure)
            assert getattr(b, figure) == pytest.approx(expected, rel=1e-12), (a.name, figure)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@some
def test_arrays_equal_numbers(kind: str, data: st.DataObject) -> None:
    """One evaluation over arrays gives what one estimate each gives, to 1e-12, and the same operators."""
    part = draw(data, kind)
    policy = data.draw(st.sampled_from([SEPARATE, FUSED]))
    points = data.draw(st.lists(st.tuples(BATCH, NEW, CACHED), min_size=1, max_size=6))
    counts, new, cached = (np.array([float(p[i]) for p in points]) for i in range(3))
    together = run(part, step(counts, new, cached), policy=policy)
    for i, point in enumerate(points):
        alone = run(part, step(*point), policy=policy)
        assert [o.name for o in together] == [o.name for o in alone]
        for a, b in zip(together, alone, strict=True):
            for figure in FIGURES:
                value = np.broadcast_to(getattr(a, figure), len(points))[i]
                np.testing.assert_allclose(value, getattr(b, figure), rtol=1e-12, err_msg=f"{a.name} {figure}")
            for letter, size in b.shape.items():
                np.testing.assert_allclose(np.broadcast_to(a.shape[letter], len(points))[i], size, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@some
def test_prefill_is_the_sum_of_its_chunks(kind: str, data: st.DataObject) -> None:
    """FLOP of products with weights, pairs, and written cache bytes; reads are not additive."""
    part, count = draw(data, kind), data.draw(BATCH)
    pieces = data.draw(st.lists(NEW, min_size=2, max_size=4))
    start = data.draw(CACHED)
    whole = run(part, step(count, sum(pieces), start))
    chunks, done = [], start
    for piece in pieces:
        chunks.append(run(part, step(count, piece, done)))
        done += piece
    assert sum(total(multiplied(c), "flops") for c in chunks) == pytest.approx(total(multiplied(whole), "flops"), rel=1e-12)
    assert sum(total(c, "flops", *EXPERTS) for c in chunks) == pytest.approx(total(whole, "flops", *EXPERTS), rel=1e-12)
    for name in ("attention", "index_score", *(f"attention_{branch}" for branch in native_sparse_attention.BRANCHES)):
        pairs = [[o.shape["pairs"] for o in ops if o.name == name] for ops in (whole, *chunks)]
        assert sum(sum(p) for p in pairs[1:]) == sum(pairs[0])
    assert sum(total(c, "kv_write_bytes") for c in chunks) == total(whole, "kv_write_bytes")


EXPERTS = ("experts_gate_up_proj", "experts_up_proj", "experts_down_proj")


@pytest.mark.parametrize("kind", ["mamba1", "mamba2", "gated-delta-net", "kda", "lightning", "rwkv", "rg-lru", "short-conv"])
@given(data=st.data())
@some
def test_recurrent_flops_add_over_whole_chunks(kind: str, data: st.DataObject) -> None:
    """Cut at multiples of the kernel's own chunk, the mixing core does the same work."""
    mixer, count = draw(data, kind), data.draw(BATCH)
    a, b = (32 * data.draw(st.integers(STEPWISE_TOKENS // 32 + 1, 9)) for _ in range(2))
    whole, first, second = (run(mixer, step(count, n, 0)) for n in (a + b, a, b))
    for figure in ("flops", "vector_flops", "exponentials"):
        assert total(first, figure) + total(second, figure) == pytest.approx(total(whole, figure), rel=1e-12)


@pytest.mark.parametrize("kind", MIXERS)
@given(data=st.data())
@some
def test_the_state_and_windows_bound_what_decode_reads(kind: str, data: st.DataObject) -> None:
    """Decode never reads more than the sequence stores, reads more at longer contexts, and its state bytes are constant."""
    mixer = draw(data, kind)
    short, long = sorted(data.draw(st.tuples(st.integers(1, 300), st.integers(1, 300))))
    a, b = run(mixer, work.decode(1, short)), run(mixer, work.decode(1, long))
    if kind != "chunked":  # a chunk starts anew at its border
        assert total(a, "kv_read_bytes") <= total(b, "kv_read_bytes")
    assert total(a, "state_bytes") == total(b, "state_bytes")
    assert total(multiplied(a), "flops") == total(multiplied(b), "flops")
    state = sum(law.state_bytes(4, 2) for law in laws(mixer))
    branches = 2 if isinstance(mixer, NativeSparseAttention) and not mixer.own_keys else 1  # that read the same keys
    assert total(b, "kv_read_bytes") <= branches * (cache_bytes(mixer, long) - state)
    moved = state if not isinstance(mixer, Rwkv) else state - 64 * 2  # channel mixing moves the other shift
    assert total(b, "state_bytes") == 2 * moved
    everything = not getattr(mixer, "indexer", None) and kind not in ("block-sparse", "native-sparse")
    if everything:
        assert total(b, "kv_read_bytes") == pytest.approx(_stored(mixer, long), rel=1e-12)


def _stored(mixer: Mixer, tokens: int) -> float:
    """Bytes of keys and values that a layer keeps, chunks reset at their border."""
    chunk = getattr(mixer, "chunk", None) if type(mixer).__name__ == "ChunkedAttention" else None
    kept = (tokens - 1) % chunk + 1 if chunk else tokens
    return cache_bytes(mixer, kept) - sum(law.state_bytes(4, 2) for law in laws(mixer))


@pytest.mark.parametrize("kind", ["full", "latent", "block-sparse", "sliding"])
@given(data=st.data())
@some
def test_a_prefill_writes_what_the_cache_law_stores(kind: str, data: st.DataObject) -> None:
    mixer, tokens = draw(data, kind), data.draw(NEW)
    written = total(run(mixer, step(1, tokens, 0)), "kv_write_bytes")
    unbounded = sum(law.token_bytes(BF16.keys, BF16.values) for law in laws(mixer)) * tokens
    assert written == pytest.approx(unbounded, rel=1e-12)
    assert cache_bytes(mixer, tokens) <= written


@pytest.mark.parametrize("kind", ["sliding", "latent", "compressed", "block-sparse"])
@given(data=st.data())
@some
def test_bounded_masks_are_continuous_at_their_border(kind: str, data: st.DataObject) -> None:
    """Up to the window (or selection) a token sees one key more than the last; past it, no more: no jump at W / W + 1."""
    mixer = draw(data, kind)
    reach = min(
        w
        for w in (
            getattr(mixer, "window", None),
            getattr(getattr(mixer, "indexer", None), "topk", None) if kind == "latent" else None,
            getattr(mixer, "block", 0) * getattr(mixer, "topk_blocks", 0) or None,
            10**9,
        )
        if w
    )

    def decode_pairs(context: int) -> float:
        return float(next(o.shape["pairs"] for o in run(mixer, work.decode(1, context)) if o.name == "attention"))

    entries = 1 if kind == "compressed" else 0  # a new entry may complete
    for context in range(max(1, min(reach, 300) - 2), min(reach, 300) + 3):
        grown = decode_pairs(context + 1) - decode_pairs(context)
        expected = 1 if context < reach else 0
        assert expected <= grown <= expected + entries


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tensor", [2, 4])
@given(data=st.data())
@some
def test_shards_sum_to_the_whole(kind: str, tensor: int, data: st.DataObject) -> None:
    """Every matrix is either cut into equal parts or whole on every rank (key-value heads and groups: replicated when too few)."""
    part = draw(data, kind)
    whole, ranks = ({w.name: w for w in weights(part, t)} for t in (1, tensor))
    assert whole.keys() == ranks.keys()
    for name, weight in whole.items():
        matrix, mine = (w.d_in * w.d_out * w.copies for w in (weight, ranks[name]))
        if name in PARTLY_REPLICATED:
            assert matrix <= tensor * mine <= tensor * matrix
        elif name in REPLICATED or weight.role == "norm":
            assert mine in (matrix, matrix / tensor)
        else:
            assert tensor * mine == matrix, name


#: Keys and values, and the B and C of state-space groups, are held once by several ranks when there are fewer of them than ranks.
PARTLY_REPLICATED = ("qkv_proj", "kv_proj", "branch_kv_proj", "in_proj", "conv1d", "qk_norm")
#: Latents, gates through a low rank, indices, routers, token shifts, compressors.
REPLICATED = (
    "fused_qkv_a_proj", "kv_a_proj", "q_a_proj", "f_a_proj", "g_a_proj", "index_q_proj", "index_k_proj", "index_weights_proj",
    "compressor_proj", "compressor_position", "index_compressor_proj", "index_compressor_position", "router",
    "router_correction_bias", "latent_down_proj", "latent_up_proj", "shared_gate", "time_shift", "channel_shift", "low_rank_proj",
    "receptance", "tanh_gates", "compressor",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@some
def test_ranks_share_the_arithmetic(kind: str, data: st.DataObject) -> None:
    """Over the ranks at least the FLOP of one device, and no rank more than one device does."""
    part = draw(data, kind)
    done = step(data.draw(BATCH), data.draw(NEW), data.draw(CACHED))
    alone, rank = run(part, done), run(part, done, tensor=4)
    for figure in ("flops", "vector_flops"):
        assert total(alone, figure) <= 4 * total(rank, figure) * (1 + 1e-12)
        assert total(rank, figure) <= total(alone, figure) * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@some
def test_fusion_never_moves_more(kind: str, data: st.DataObject) -> None:
    """Fused kernels move fewer activations; compulsory bytes and arithmetic do not depend on the policy."""
    part, done = draw(data, kind), step(3, data.draw(NEW), data.draw(CACHED), source=True)
    apart, fused = run(part, done, policy=SEPARATE), run(part, done, policy=FUSED)
    assert total(fused, "activation_bytes") <= total(apart, "activation_bytes")
    for figure in ("flops", "vector_flops", "exponentials", "compulsory_bytes"):
        assert total(fused, figure) == pytest.approx(total(apart, figure), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@some
def test_verification_of_no_drafts_is_decode(kind: str, data: st.DataObject) -> None:
    part, count, context = draw(data, kind), data.draw(BATCH), data.draw(st.integers(2, 300))
    assert run(part, work.decode(count, context, 1)) == run(part, work.decode(count, context))
    more = run(part, work.decode(count, context, 2))
    assert total(more, "flops") + total(more, "vector_flops") > 0
    assert total(multiplied(more), "flops") == 2 * total(multiplied(run(part, work.decode(count, context))), "flops")
