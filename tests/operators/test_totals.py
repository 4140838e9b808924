"""Totals that must hold whatever the model: linear FLOP against parameters, chunks against the whole, sums against the list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.operators import work
from calc.operators.fusion import FUSED, SEPARATE
from calc.operators.parameters import count_parameters
from calc.serving.phase import evaluate
from tests.support.profiles import attention, decoder, deployment, device, llama, operators, total

heads = st.sampled_from([1, 2, 4])


@st.composite
def models(draw):
    kv_heads, group = draw(heads), draw(heads)
    shape = (kv_heads * group, kv_heads, draw(st.sampled_from([4, 8, 16])))
    value = draw(st.sampled_from([4, 8, 16]))
    kinds = draw(
        st.lists(
            st.sampled_from(
                [
                    attention(*shape, v_head_dim=value),
                    attention(*shape, "sliding", v_head_dim=value, window=draw(st.integers(1, 64))),
                    attention(*shape, "chunked", v_head_dim=value, chunk=draw(st.integers(1, 64))),
                ]
            ),
            min_size=1,
            max_size=3,
        )
    )
    return decoder(
        hidden=draw(st.sampled_from([16, 32, 48])),
        layers=draw(st.integers(1, 4)) if len(kinds) == 1 else len(kinds) * draw(st.integers(1, 2)),
        mixers=kinds,
        width=draw(st.sampled_from([16, 40, 64])),
        vocab=draw(st.sampled_from([None, 50, 101])),
        gated=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )


def linear_matrices(model) -> int:
    """Parameters of the matrices inside the layers."""
    parts = count_parameters(model).by_part
    return parts["attention"] + parts["feed_forward"]


def head_parameters(model) -> int:
    return model.hidden_size * (model.vocab_size or 0)


@settings(max_examples=60)
@given(models(), st.integers(1, 5), st.integers(1, 60), st.integers(0, 60))
def test_linear_flop_is_twice_the_matrices_a_token_passes(model, batch, new, cached):
    step = work.prefill(batch, new + cached, cached)
    expected = 2 * step.tokens * linear_matrices(model) + 2 * step.logit_rows * head_parameters(model)
    assert total(operators(model, step), "flops", "gemm") == expected


@settings(max_examples=60)
@given(models(), st.integers(1, 40), st.integers(0, 40), st.integers(1, 39))
def test_prefill_is_the_sum_of_its_chunks(model, length, cached, cut):
    cut = min(cut, length - 1) or length
    whole = operators(model, work.prefill(2, cached + length, cached))
    first = operators(model, work.prefill(2, cached + cut, cached))
    parts = [first] if cut == length else [first, operators(model, work.prefill(2, cached + length, cached + cut))]
    assert sum(total(p, "flops", "attention") for p in parts) == total(whole, "flops", "attention")
    assert sum(total(p, "kv_write_bytes") for p in parts) == total(whole, "kv_write_bytes")
    heads_more = (len(parts) - 1) * 2 * 2 * head_parameters(model)  # every chunk that ends a step makes a row a sequence
    assert sum(total(p, "flops", "gemm") for p in parts) == total(whole, "flops", "gemm") + heads_more


@pytest.mark.parametrize("chunk", [256, 512, 1024])
def test_chunked_prefill_reads_earlier_keys_again(chunk):
    """Chunks of q tokens read ``(s/q + 1) / 2`` times the keys of the prompt."""
    length = 4096
    whole = total(operators(llama("8b"), work.prefill(1, length)), "kv_read_bytes")
    parts = sum(
        total(operators(llama("8b"), work.prefill(1, done + chunk, done)), "kv_read_bytes") for done in range(0, length, chunk)
    )
    assert parts == whole * (length // chunk + 1) / 2


@settings(max_examples=40)
@given(models(), st.integers(1, 30), st.integers(0, 30))
def test_decode_steps_do_the_attention_of_one_prefill(model, new, cached):
    prompt = total(operators(model, work.prefill(1, cached + new, cached)), "flops", "attention")
    steps = (operators(model, work.decode(1, cached + i)) for i in range(1, new + 1))
    assert sum(total(s, "flops", "attention") for s in steps) == prompt


@given(st.integers(2, 4096), st.integers(1, 4095))
def test_a_prefix_hit_saves_its_share_of_linear_work_and_less_of_attention(length, hit):
    hit = min(hit, length - 1)
    model = decoder(hidden=32, layers=2, mixers=attention(4, 2, 8), width=64, vocab=None)
    whole, rest = operators(model, work.prefill(2, length)), operators(model, work.prefill(2, length, hit))
    assert total(rest, "flops", "gemm") * length == total(whole, "flops", "gemm") * (length - hit)
    saved = 1 - total(rest, "flops", "attention") / total(whole, "flops", "attention")
    assert saved == pytest.approx(hit * (hit + 1) / (length * (length + 1)))


@settings(max_examples=40)
@given(models(), st.integers(1, 8), st.integers(1, 100))
def test_verifying_no_draft_does_the_work_of_decode(model, batch, context):
    assert operators(model, work.decode(batch, context, new_tokens=1)) == operators(model, work.decode(batch, context))


@settings(max_examples=40)
@given(models(), st.integers(1, 8), st.integers(1, 100))
def test_weights_are_read_once_a_step_whatever_the_batch(model, batch, context):
    one = operators(model, work.decode(1, context))
    assert total(operators(model, work.decode(batch, context)), "weight_bytes") == total(one, "weight_bytes")


@settings(max_examples=40)
@given(models(), st.integers(1, 8), st.integers(1, 100))
def test_weights_streamed_are_the_parameters_without_the_embedding_table(model, batch, context):
    counted = count_parameters(model)
    table = model.hidden_size * (model.vocab_size or 0)
    streamed = counted.total - (0 if model.tie_word_embeddings and model.vocab_size else table)
    assert total(operators(model, work.decode(batch, context)), "weight_bytes") == 2 * streamed


@settings(max_examples=30)
@given(models(), st.integers(1, 4), st.integers(1, 50), st.integers(1, 50))
def test_step_totals_are_the_sum_of_value_times_count_over_ranks(model, batch, length, context):
    found = deployment(model, device())
    for step in (work.prefill(batch, length), work.decode(batch, context)):
        phase = evaluate(found, step)
        for figure in ("flops", "weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes", "network_bytes"):
            assert getattr(phase.totals, figure) == total(list(phase.operators), figure)
        moved = sum(getattr(phase.totals, f) for f in ("weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes"))
        assert phase.totals.bytes == moved


def test_twelve_d_squared_layer_moves_44_d_elements_a_token_and_20_when_fused():
    d, layers, tokens = 64, 3, 32
    model = decoder(hidden=d, layers=layers, mixers=attention(4, 4, 16), width=4 * d, vocab=None, gated=False, final_norm=False)
    for policy, elements in ((SEPARATE, 44), (FUSED, 20)):
        found = operators(model, work.prefill(1, tokens), policy=policy)
        moved = sum(total(found, f) for f in ("activation_bytes", "kv_read_bytes", "kv_write_bytes"))
        assert moved == elements * d * 2 * tokens * layers


def test_twelve_d_squared_layer_has_twelve_d_squared_matrix_parameters():
    model = decoder(hidden=64, layers=3, mixers=attention(4, 4, 16), width=256, vocab=None, gated=False)
    assert linear_matrices(model) == 12 * 64 * 64 * 3


def test_44_elements_split_over_the_operators_as_the_table_says():
    d, tokens = 64, 32
    model = decoder(hidden=d, layers=1, mixers=attention(4, 4, 16), width=4 * d, vocab=None, gated=False, final_norm=False)
    found = operators(model, work.prefill(1, tokens))
    each = {o.name: o.count * (o.activation_bytes + o.kv_read_bytes + o.kv_write_bytes) / (2 * d * tokens) for o in found}
    assert each == {
        "rms_norm": 4 + 4,
        "qkv_proj": 4,
        "rope": 4,
        "kv_cache_write": 4,
        "attention": 4,
        "o_proj": 2,
        "up_proj": 5,
        "activation": 8,
        "down_proj": 5,
    }
