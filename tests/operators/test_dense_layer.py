"""The dense layer operator by operator: shapes, FLOP and bytes by operand, before and after tensor parallel splitting."""

from __future__ import annotations

import pytest

from calc.errors import UsageError
from calc.operators import work
from calc.operators.fusion import FUSED
from calc.operators.numbers import plan
from calc.operators.parameters import count_parameters
from calc.operators.sharding import Sharding
from tests.support.profiles import BF16, attention, decoder, named, operators, total

D, H, HK, DQ, DV, F, V, LAYERS = 48, 8, 4, 6, 10, 56, 130, 3
NQ, NK, NV, NO = H * DQ, HK * DQ, HK * DV, H * DV
B, S, P = 3, 5, 7
T, R = B * S, B
PAIRS = B * (S * P + S * (S + 1) // 2)
KEYS = B * (P + S)
STEP = work.prefill(B, P + S, P)


def model(**rest):
    shapes = {"hidden": D, "layers": LAYERS, "mixers": attention(H, HK, DQ, v_head_dim=DV), "width": F, "vocab": V}
    return decoder(**(shapes | rest))


def row(name: str, **rest):
    return named(operators(model(**rest), STEP), name)


def figures(operator) -> dict[str, float]:
    fields = ("flops", "weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes", "network_bytes")
    return {f: getattr(operator, f) for f in fields if getattr(operator, f)}


# --- row by row -------------------------------------------------------------------------------------------------------------


def test_norm_reads_and_writes_input_and_residual():
    found = row("rms_norm")
    assert figures(found) == {"weight_bytes": 2 * D, "activation_bytes": 2 * (2 * T * D + 2 * T * D)}
    assert found.count == 2 * LAYERS
    assert found.vector_flops == 4 * T * D + T * D


def test_layer_norm_does_seven_vector_flop_an_element_and_its_bias_has_bytes():
    found = next(o for o in operators(model(norm={"kind": "layer", "bias": True}), STEP) if o.op_class == "norm")
    assert found.vector_flops == 7 * T * D + T * D
    assert found.weight_bytes == 2 * 2 * D


def test_qkv_projection():
    assert figures(row("qkv_proj")) == {
        "flops": 2 * T * D * (NQ + NK + NV),
        "weight_bytes": 2 * D * (NQ + NK + NV),
        "activation_bytes": 2 * (T * D + T * (NQ + NK + NV)),
    }


def test_qkv_bias_adds_its_bytes_once():
    biased = row("qkv_proj", mixers=attention(H, HK, DQ, v_head_dim=DV, q_bias=True, k_bias=True, v_bias=True))
    assert biased.weight_bytes == 2 * (D + 1) * (NQ + NK + NV)
    assert biased.flops == 2 * T * D * (NQ + NK + NV)


def test_rotary_embedding():
    found = row("rope")
    assert figures(found) == {"activation_bytes": 2 * 2 * T * (NQ + NK)}
    assert found.vector_flops == 3 * T * (H + HK) * DQ


def test_rotary_embedding_turns_only_the_rotated_part():
    assert row("rope", mixers=attention(H, HK, DQ, v_head_dim=DV, rotary_dim=2)).vector_flops == 3 * T * (H + HK) * 2


def test_query_key_norm_does_four_vector_flop_an_element():
    plain = total(operators(model(), STEP), "vector_flops")
    normed = total(operators(model(mixers=attention(H, HK, DQ, v_head_dim=DV, qk_norm="head")), STEP), "vector_flops")
    assert normed - plain == LAYERS * 4 * T * (NQ + NK)


def test_kv_cache_write():
    found = row("kv_cache_write")
    assert figures(found) == {"activation_bytes": 2 * T * (NK + NV), "kv_write_bytes": 2 * T * (NK + NV)}


def test_kv_cache_write_in_another_format_quantises():
    numbers = plan("bf16", {}, compute="bf16", kv_cache="fp8")
    found = named(operators(model(), STEP, numbers=numbers), "kv_cache_write")
    assert found.kv_write_bytes == T * (NK + NV)
    assert found.vector_flops == 3 * T * (NK + NV)


def test_attention():
    assert figures(row("attention")) == {
        "flops": 2 * H * (DQ + DV) * PAIRS,
        "activation_bytes": 2 * (T * NQ + T * NO),
        "kv_read_bytes": 2 * KEYS * HK * (DQ + DV),
    }


def test_attention_sinks_cost_a_logit_a_head_and_no_cache():
    with_sinks = row("attention", mixers=attention(H, HK, DQ, v_head_dim=DV, sinks=True))
    assert with_sinks.weight_bytes == 2 * H
    assert with_sinks.kv_read_bytes == row("attention").kv_read_bytes


def test_attention_softmax_counts_an_exponential_a_pair_and_head():
    assert row("attention").exponentials == H * PAIRS


def test_output_projection():
    assert figures(row("o_proj")) == {
        "flops": 2 * T * NO * D,
        "weight_bytes": 2 * NO * D,
        "activation_bytes": 2 * (T * NO + T * D),
    }


def test_gated_feed_forward():
    found = operators(model(), STEP)
    up, act, down = named(found, "gate_up_proj"), named(found, "act_and_mul"), named(found, "down_proj")
    assert figures(up) == {"flops": 2 * T * D * 2 * F, "weight_bytes": 2 * 2 * D * F, "activation_bytes": 2 * (T * D + T * 2 * F)}
    assert figures(act) == {"activation_bytes": 2 * (T * 2 * F + T * F)}
    assert (act.vector_flops, act.exponentials) == (5 * T * F, T * F)
    assert figures(down) == {"flops": 2 * T * F * D, "weight_bytes": 2 * F * D, "activation_bytes": 2 * (T * F + T * D)}


def test_plain_feed_forward_has_one_up_matrix():
    found = operators(model(gated=False), STEP)
    assert figures(named(found, "up_proj")) == {
        "flops": 2 * T * D * F,
        "weight_bytes": 2 * D * F,
        "activation_bytes": 2 * (T * D + T * F),
    }
    assert figures(named(found, "activation")) == {"activation_bytes": 2 * 2 * T * F}


def test_kv_of_another_layer_needs_no_projection_and_no_write_but_is_read():
    mixers = [attention(H, HK, DQ, v_head_dim=DV), attention(H, HK, DQ, v_head_dim=DV, kv_source="shared")]
    found = operators(model(mixers=mixers, layers=2), STEP)
    shared = [o for o in found if o.layers == "kind1"]
    projection = [o for o in shared if o.op_class == "gemm" and o.shape.get("k") == D and o.shape.get("n") == NQ]
    assert len(projection) == 1
    assert projection[0].flops == 2 * T * D * NQ
    assert total(shared, "kv_write_bytes") == 0
    assert named(found, "attention", "kind1").kv_read_bytes == named(found, "attention", "kind0").kv_read_bytes


# --- outside the layers -------------------------------------------------------------------------------------------------------


def test_embedding_looks_up_rows_and_never_streams_its_table():
    found = row("embedding")
    assert found.bytes == 2 * (T * D + T * D)
    assert found.weight_bytes < 2 * V * D
    assert total(operators(model(vocab=1 << 20), STEP), "bytes", "embedding") == found.bytes


def test_lm_head_multiplies_one_row_a_sequence_in_prefill():
    found = row("lm_head")
    assert figures(found) == {"flops": 2 * R * D * V, "weight_bytes": 2 * V * D, "activation_bytes": 2 * (R * D + R * V)}


def test_lm_head_multiplies_every_draft_row_in_verification():
    found = named(operators(model(), work.decode(B, 20, new_tokens=5)), "lm_head")
    assert found.flops == 2 * 5 * B * D * V


def test_tied_head_is_read_as_a_head_and_stored_once():
    tied, untied = model(tie_word_embeddings=True), model()
    assert named(operators(tied, STEP), "lm_head").weight_bytes == named(operators(untied, STEP), "lm_head").weight_bytes
    assert count_parameters(untied).total - count_parameters(tied).total == V * D


def test_a_model_without_vocabulary_neither_looks_up_nor_makes_logits():
    found = {o.name for o in operators(model(vocab=None), STEP)}
    assert not found & {"embedding", "lm_head"}


def test_identical_layers_are_one_entry():
    one, many = operators(model(layers=1), STEP), operators(model(layers=200), STEP)
    assert len(one) == len(many)
    for a, b in zip(one, many, strict=True):
        assert figures(a) == figures(b)


# --- tensor parallelism ---------------------------------------------------------------------------------------------------------

REPLICATED = {"rms_norm", "final_norm", "embedding"}


def summed(found, figure: str) -> float:
    return sum(getattr(o, figure) * o.count * o.ranks for o in found if o.name not in REPLICATED and o.op_class != "collective")


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("figure", ["flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes"])
def test_tensor_parallel_shards_sum_to_the_whole(tp, figure):
    whole = summed(operators(model(vocab=128), STEP), figure)
    assert summed(operators(model(vocab=128), STEP, Sharding(tensor=tp)), figure) == whole


def test_norms_are_replicated_on_every_rank():
    one, four = (named(operators(model(), STEP, Sharding(tensor=n)), "rms_norm") for n in (1, 4))
    assert figures(one) == figures(four)
    assert four.ranks == 4


def test_key_value_heads_are_replicated_beyond_their_number():
    """Eight ranks on four KV heads: each rank holds one head, so that everything of K and V exists twice."""
    one, eight = operators(model(), STEP), operators(model(), STEP, Sharding(tensor=8))
    assert named(eight, "kv_cache_write").kv_write_bytes * 8 == 2 * 2 * T * (NK + NV)
    assert named(eight, "attention").kv_read_bytes * 8 == 2 * named(one, "attention").kv_read_bytes
    assert named(eight, "attention").flops * 8 == named(one, "attention").flops
    assert named(eight, "qkv_proj").flops * 8 == 2 * T * D * (NQ + 2 * (NK + NV))
    assert named(eight, "qkv_proj").weight_bytes * 8 == 2 * D * (NQ + 2 * (NK + NV))


@pytest.mark.parametrize("tp", [3, 5, 7, 16])
def test_a_split_that_does_not_divide_says_what_would(tp):
    with pytest.raises(UsageError) as caught:
        operators(model(), STEP, Sharding(tensor=tp))
    assert str(tp) in caught.value.message
    assert "8" in (caught.value.hint or "")


def test_a_layer_has_two_all_reduces_of_the_hidden_state_and_a_parallel_layer_one():
    for parallel, reductions in ((False, 2), (True, 1)):
        found = operators(model(parallel=parallel), STEP, Sharding(tensor=2))
        calls = [o for o in found if o.collective and o.collective.kind == "all-reduce" and o.layers != "model"]
        assert sum(o.count for o in calls) == reductions * LAYERS
        assert {o.collective.message_bytes for o in calls} == {2 * T * D}
        assert {o.collective.ranks for o in calls} == {2}


def test_vocabulary_split_over_ranks_reduces_the_embedded_tokens_once():
    found = operators(model(vocab=128), STEP, Sharding(tensor=4))
    calls = [o for o in found if o.collective and o.collective.kind == "all-reduce" and o.layers == "model"]
    assert [(o.count, o.collective.message_bytes) for o in calls] == [(1, 2 * T * D)]


def test_a_single_rank_sends_nothing():
    assert total(operators(model(), STEP), "network_bytes") == 0


def test_logits_of_all_ranks_are_gathered():
    found = operators(model(vocab=128), STEP, Sharding(tensor=4))
    gathers = [o for o in found if o.collective and o.collective.kind in ("all-gather", "gather")]
    assert sum(o.count for o in gathers) == 1
    assert gathers[0].collective.message_bytes == 2 * R * 128


def test_vocabulary_that_does_not_divide_is_padded_up():
    found = named(operators(model(vocab=130), STEP, Sharding(tensor=4)), "lm_head")
    assert found.weight_bytes >= 2 * D * -(-130 // 4)


def test_pipeline_stages_together_do_the_work_of_one_device():
    one, three = operators(model(), STEP), operators(model(), STEP, Sharding(pipeline=3))
    for figure in ("flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes", "activation_bytes"):
        assert total(three, figure) == total(one, figure)


def test_pipeline_boundaries_send_the_hidden_state():
    found = [o for o in operators(model(), STEP, Sharding(pipeline=3)) if o.collective]
    assert {o.collective.kind for o in found} == {"send"}
    assert sum(o.count for o in found) == 2
    assert {o.collective.message_bytes for o in found} == {2 * T * D}


# --- formats ----------------------------------------------------------------------------------------------------------------------


def test_weight_formats_change_weight_bytes_only():
    quantised = plan("bf16", {}, compute="bf16", quantization="fp8")
    plain, small = operators(model(), STEP), operators(model(), STEP, numbers=quantised)
    for figure in ("flops", "kv_read_bytes", "kv_write_bytes", "activation_bytes", "vector_flops"):
        assert total(small, figure) == total(plain, figure)
    assert named(small, "down_proj").weight_bytes < named(plain, "down_proj").weight_bytes
    assert named(small, "lm_head").weight_bytes == named(plain, "lm_head").weight_bytes


def test_cache_format_changes_kv_bytes_only():
    eight = plan("bf16", {}, compute="bf16", kv_cache="fp8")
    plain, small = operators(model(), STEP), operators(model(), STEP, numbers=eight)
    assert total(small, "kv_read_bytes") * 2 == total(plain, "kv_read_bytes")
    assert total(small, "kv_write_bytes") * 2 == total(plain, "kv_write_bytes")
    assert total(small, "weight_bytes") == total(plain, "weight_bytes")


def test_fused_policy_moves_the_same_kv_and_weights():
    separate, fused = operators(model(), STEP), operators(model(), STEP, policy=FUSED)
    for figure in ("flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes"):
        assert total(fused, figure) == total(separate, figure)
    assert total(fused, "activation_bytes") < total(separate, "activation_bytes")


def test_fp32_compute_of_a_fp32_checkpoint_has_four_bytes_everywhere():
    numbers = plan("fp32", {}, compute="fp32", kv_cache="fp32")
    wide, plain = operators(model(), STEP, numbers=numbers), operators(model(), STEP, numbers=BF16)
    for figure in ("activation_bytes", "weight_bytes", "kv_read_bytes", "kv_write_bytes"):
        assert total(wide, figure) == 2 * total(plain, figure)


def test_weights_streamed_and_weights_held_have_the_same_bytes():
    """One implementation: what decode reads is what memory holds, embedding table apart."""
    for stored in ("bf16", "fp16", "fp32"):
        numbers = plan(stored, {}, compute=stored, kv_cache=stored)
        held = count_parameters(model(storage={"dtype": stored}), numbers).weights_bytes
        each = 4 if stored == "fp32" else 2
        assert total(operators(model(), work.decode(1, 10), numbers=numbers), "weight_bytes") == held - each * V * D
