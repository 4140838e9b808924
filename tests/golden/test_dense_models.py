"""Golden parameters, weights, pairs and the figures of the 12 d^2 toy model, through the public API and the operator list."""

from __future__ import annotations

import pytest

import calc
from calc.numerics import weight_format
from calc.operators import work
from calc.operators.parameters import count_parameters
from tests.support.golden import check
from tests.support.profiles import attention, decoder, llama, named, operators, total


@pytest.mark.parametrize(
    ("identifier", "size"), [("params.llama31_8b", "8b"), ("params.llama31_70b", "70b"), ("params.llama31_405b", "405b")]
)
def test_parameters_of_llama(identifier, size):
    check(identifier, count_parameters(llama(size)).total)


def test_parameters_of_the_shipped_llama_8b():
    check("params.llama31_8b", calc.count_parameters("llama-3.1-8b").total)


def test_parameters_of_gemma3_27b_count_tied_embeddings_once():
    mixers = [
        attention(32, 16, 128, "sliding", window=1024, qk_norm="head"),
        attention(32, 16, 128, qk_norm="head"),
    ]
    model = decoder(
        hidden=5376,
        layers=62,
        mixers=mixers,
        pattern=[*([0] * 5 + [1]) * 10, 0, 0],
        width=21504,
        vocab=262208,
        norms=4,
        tie_word_embeddings=True,
    )
    check("params.gemma3_27b.text", count_parameters(model).total)


def test_awq_weights_of_llama_70b_keep_embedding_head_and_norms_in_16_bit():
    found = calc.deploy("llama-3.1-70b", "h100-sxm5-80gb", _options(quantization="awq"))
    counted = count_parameters(found.model.profile, found.numbers)
    check("weights.llama_70b.awq_g128", counted.weights_bytes)
    assert weight_format("awq").nominal_bits == 4.15625


def _options(**given):
    from calc.serving.deployment import DeploymentOptions

    return DeploymentOptions(**given)


# --- pairs ----------------------------------------------------------------------------------------------------------------


def test_pairs_of_a_chunk_on_cached_tokens():
    check("pairs.causal.S2048.P6144", work.causal_pairs(2048, 6144))


def test_pairs_under_a_window():
    check("pairs.window1024.S8192", work.window_pairs(8192, 0, 1024))


def test_pairs_under_chunked_attention():
    check("pairs.chunked8192.S2048.P7168", work.chunk_pairs(2048, 7168, 8192))


# --- prefill of Llama 70B ---------------------------------------------------------------------------------------------------


def test_prefill_flop_of_llama_70b():
    found = operators(llama("70b"), work.prefill(1, 8192))
    head = named(found, "lm_head").flops
    check("time.prefill.llama_70b.8192.linear", total(found, "flops", "gemm") - head)
    check("time.prefill.llama_70b.8192.attn", total(found, "flops", "attention"))


# --- the toy model as it ships ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy():
    return calc.roofline("toy-12d2", "h100-sxm5-80gb", batch_size=4, input_len=1024, context_len=1024)


@pytest.fixture(scope="module")
def toy_fused():
    from calc.operators.fusion import FUSED

    return calc.roofline("toy-12d2", "h100-sxm5-80gb", batch_size=4, input_len=1024, context_len=1024, fusion=FUSED)


def test_toy_parameters():
    parts = calc.count_parameters("toy-12d2").by_part
    check("toy.params", parts["attention"] + parts["feed_forward"])
    assert set(parts) <= {"attention", "feed_forward", "norm"}


def test_toy_weights(toy):
    check("toy.weights", total(list(toy.prefill.operators), "weight_bytes", "gemm"))


def test_toy_prefill_flop(toy):
    found = list(toy.prefill.operators)
    check("toy.prefill.linear", total(found, "flops", "gemm"))
    check("toy.prefill.attn_causal", total(found, "flops", "attention"))


def test_toy_weights_only_intensity_is_the_number_of_tokens(toy):
    check("toy.intensity.weights_only", toy.prefill.arithmetic_intensity_weights_only)
    assert toy.decode.arithmetic_intensity_weights_only == pytest.approx(4, rel=5e-4)


def test_toy_layers_move_44_d_elements_a_token(toy):
    in_layers = [o for o in toy.prefill.operators if o.layers != "model"]
    check("toy.act_bytes.44d", sum(total(in_layers, f) for f in ("activation_bytes", "kv_read_bytes", "kv_write_bytes")))


def test_toy_honest_intensity(toy):
    check("toy.intensity.honest", toy.prefill.arithmetic_intensity)


def test_toy_intensity_with_elementwise_operators_fused_away(toy_fused):
    check("toy.intensity.gemm_attn_io_only", toy_fused.prefill.arithmetic_intensity)


def test_toy_decode_intensity_of_weights_and_kv(toy):
    check("toy.decode.intensity", toy.decode.arithmetic_intensity_weights_and_kv)


def test_toy_prefill_is_compute_bound_and_decode_memory_bound_on_an_h100(toy):
    assert toy.prefill.bound == "compute"
    assert toy.decode.bound == "memory"
