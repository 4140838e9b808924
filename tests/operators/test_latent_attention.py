"""Latent attention: both forms, the choice between them, the indexer, and what is stored and read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators import latent_attention, work
from calc.operators.fusion import FUSED
from calc.operators.numbers import plan
from calc.operators.operator import Operator
from calc.profiles.model import Indexer, LatentAttention
from tests.operators import architectures as known
from tests.operators.builders import cache_bytes, laws, mixer_operators, operator, total

V3 = known.DEEPSEEK_V3_ATTENTION
V32 = known.DEEPSEEK_V32_ATTENTION
NOPE, ROPE, VALUES, LATENT, HEADS = 128, 64, 128, 512, 128


def one(new: int, cached: int, count: int = 1) -> work.Work:
    return work.Work("step", (work.Requests(count, new, cached),))


def path(mixer: LatentAttention, new: int, cached: int) -> str:
    return str(operator(mixer_operators(mixer, one(new, cached), hidden_size=7168), "attention").detail["path"])


def both_forms(new: int, cached: int, keys: int, pairs: int) -> tuple[int, int]:
    """FLOP of kv_b_proj and attention in the (naive, absorbed) form, written out."""
    expansion = 2 * LATENT * HEADS * (NOPE + VALUES)
    naive = keys * expansion + pairs * 2 * HEADS * (NOPE + ROPE + VALUES)
    absorbed = new * expansion + pairs * 2 * HEADS * (2 * LATENT + ROPE)
    return naive, absorbed


@given(st.integers(1, 3000), st.integers(0, 5000))
def test_the_cheaper_form_is_taken(new: int, cached: int) -> None:
    pairs = new * cached + new * (new + 1) // 2
    found = mixer_operators(V3, one(new, cached), hidden_size=7168)
    flops = operator(found, "kv_b_proj").flops + operator(found, "attention").flops
    naive, absorbed = both_forms(new, cached, cached + new, pairs)
    assert flops == min(naive, absorbed)
    assert path(V3, new, cached) == ("naive" if naive < absorbed else "absorbed")


def test_prefill_expands_and_decode_absorbs() -> None:
    assert path(V3, 2048, 0) == "naive"
    assert path(V3, 1, 4096) == "absorbed"
    assert path(V3, 4, 4096) == "absorbed"  # verification of a few drafts


@pytest.mark.parametrize("cached", [100_000, 10_000_000])
def test_the_break_even_on_a_long_prefix_is_170_tokens(cached: int) -> None:
    assert path(V3, 170, cached) == "absorbed"
    assert path(V3, 172, cached) == "naive"


def test_a_mixed_step_chooses_for_each_request() -> None:
    mixed = work.mixed(work.prefill(1, 2048), work.decode(8, 4096))
    together = mixer_operators(V3, mixed, hidden_size=7168)
    parts = [mixer_operators(V3, w, hidden_size=7168) for w in (work.prefill(1, 2048), work.decode(8, 4096))]
    assert [o.detail["path"] for o in together if o.name == "attention"] == ["naive", "absorbed"]
    assert operator(together, "kv_b_proj").detail["path"] == "mixed"
    for name in ("kv_b_proj", "attention"):
        assert total(together, "flops", name) == sum(operator(p, name).flops for p in parts)
        assert total(together, "kv_read_bytes", name) == sum(operator(p, name).kv_read_bytes for p in parts)
    # The matrices are read once, whatever the forms.
    assert operator(together, "kv_b_proj").weight_bytes == operator(parts[0], "kv_b_proj").weight_bytes


def test_traffic_of_the_absorbed_form() -> None:
    found = mixer_operators(V3, one(1, 999, 4), hidden_size=7168)
    core, kv_b = operator(found, "attention"), operator(found, "kv_b_proj")
    assert core.kv_read_bytes == 4 * 1000 * (LATENT + ROPE) * 2
    assert kv_b.kv_read_bytes == 0
    assert core.activation_bytes == 4 * HEADS * (2 * LATENT + ROPE) * 2
    assert kv_b.activation_bytes == 4 * HEADS * (NOPE + 2 * LATENT + VALUES) * 2
    assert (core.shape["kv_heads"], core.shape["head_dim"], core.shape["v_head_dim"]) == (1, 576, 512)


def test_traffic_of_the_naive_form() -> None:
    """The latents are read once to be expanded; the expanded keys and values are written and read as activations."""
    found = mixer_operators(V3, one(2000, 0), hidden_size=7168)
    core, kv_b = operator(found, "attention"), operator(found, "kv_b_proj")
    workspace = 2000 * HEADS * (NOPE + ROPE + VALUES) * 2
    assert kv_b.kv_read_bytes == 2000 * (LATENT + ROPE) * 2
    assert core.kv_read_bytes == 0
    assert kv_b.activation_bytes == workspace
    assert core.activation_bytes == workspace + 2000 * HEADS * (NOPE + ROPE + VALUES) * 2
    assert (core.shape["kv_heads"], core.shape["head_dim"], core.shape["v_head_dim"]) == (HEADS, 192, 128)


def test_arrays_choose_element_by_element() -> None:
    new, cached = np.array([1.0, 2048.0, 100.0, 300.0]), np.array([4095.0, 0.0, 50_000.0, 50_000.0])
    together = mixer_operators(V3, work.Work("step", (work.Requests(np.ones(4), new, cached),)), hidden_size=7168)
    assert operator(together, "attention").detail["path"] == "mixed"
    assert list(np.broadcast_to(operator(together, "attention").shape["kv_heads"], 4)) == [1, HEADS, 1, HEADS]
    for i in range(4):
        alone = mixer_operators(V3, one(int(new[i]), int(cached[i])), hidden_size=7168)
        for name in ("kv_b_proj", "attention"):
            assert operator(together, name).flops[i] == operator(alone, name).flops  # type: ignore[index]
            assert operator(together, name).bytes[i] == operator(alone, name).bytes  # type: ignore[index]
            for letter, size in operator(alone, name).shape.items():
                assert np.broadcast_to(operator(together, name).shape[letter], 4)[i] == size


def test_projections_per_token() -> None:
    """2 (d lq + lq H (dn + dr)), 2 d (dc + dr), 2 H dv d."""
    found = mixer_operators(V3, one(5, 0), hidden_size=7168)
    assert operator(found, "fused_qkv_a_proj").flops == 2 * 5 * 7168 * (1536 + 576)
    assert operator(found, "q_b_proj").flops == 2 * 5 * 1536 * HEADS * 192
    assert operator(found, "o_proj").flops == 2 * 5 * HEADS * 128 * 7168
    direct = mixer_operators(known.KIMI_LINEAR_MLA, one(5, 0), hidden_size=2304)
    assert operator(direct, "q_proj").flops == 2 * 5 * 2304 * 32 * 192
    assert operator(direct, "kv_a_proj").flops == 2 * 5 * 2304 * 576


@pytest.mark.parametrize("policy", [None, FUSED])
def test_the_latent_is_written_once(policy: object) -> None:
    rest = {"policy": policy} if policy else {}
    found = mixer_operators(V3, one(5, 10, 3), hidden_size=7168, **rest)
    assert total(found, "kv_write_bytes") == 15 * 1152


def indexed(role: str) -> list[Operator]:
    mixer = LatentAttention(
        num_attention_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        indexer=Indexer(num_heads=64, head_dim=128, topk=2048, role=role),  # type: ignore[arg-type]
    )
    return mixer_operators(mixer, one(1, 9999), hidden_size=7168)


def test_indexer_projections() -> None:
    """2 lq HI dI + 2 d dI + 2 d HI, whole on every rank."""
    for tensor in (1, 4):
        found = mixer_operators(V32, one(5, 0), hidden_size=7168, tensor=tensor)
        names = ("index_q_proj", "index_k_proj", "index_weights_proj")
        assert total(found, "flops", *names) == 5 * (2 * 1536 * 64 * 128 + 2 * 7168 * 128 + 2 * 7168 * 64)


def test_a_shared_indexer_reuses_a_selection() -> None:
    """No weights, no keys, no scores of its own; attention is as sparse as with its own."""
    own, shared = indexed("full"), indexed("shared")
    assert not [o for o in shared if o.name.startswith("index")]
    assert operator(shared, "attention") == operator(own, "attention")
    with_own, without = (
        laws(LatentAttention(**{f: getattr(V32, f) for f in V32.__struct_fields__ if f != "indexer"}, indexer=i))[0]
        for i in (V32.indexer, Indexer(num_heads=64, head_dim=128, topk=2048, role="shared"))
    )
    assert (with_own.extra_bytes_per_token, without.extra_bytes_per_token) == (132, 0)


def test_index_keys_are_written_and_read() -> None:
    found = mixer_operators(V32, one(3, 997, 2), hidden_size=7168)
    score = operator(found, "index_score")
    assert (score.kv_write_bytes, score.kv_read_bytes) == (6 * 132, 2 * 1000 * 132)
    assert cache_bytes(V32, 1000) == 1000 * (1152 + 132)


def test_scores_run_in_fp8_only_where_the_device_has_it() -> None:
    for device, expected in (({"fp8"}, "fp8"), (set(), "bf16")):
        numbers = plan("bf16", {}, compute="bf16", low_precision=frozenset(device))
        found = mixer_operators(V32, one(1, 100), hidden_size=7168, numbers=numbers)
        assert operator(found, "index_score").compute_dtype == expected


def test_within_topk_the_result_is_dense_attention() -> None:
    """Every key is selected: pairs and the choice of form are those of the model without an indexer."""
    for new, cached in ((2048, 0), (1, 2047)):
        dense = mixer_operators(V3, one(new, cached), hidden_size=7168)
        sparse = mixer_operators(V32, one(new, cached), hidden_size=7168)
        for name in ("kv_b_proj", "attention"):
            assert operator(dense, name).flops == operator(sparse, name).flops
            assert operator(dense, name).bytes == operator(sparse, name).bytes


def test_past_topk_rows_are_gathered_in_the_absorbed_form() -> None:
    core = operator(mixer_operators(V32, one(4096, 0), hidden_size=7168), "attention")
    assert core.detail["path"] == "absorbed"
    assert core.detail["gathered_rows"] == core.shape["pairs"] == 2048 * 2049 // 2 + 2048 * 2048


@given(st.integers(1, 4096))
def test_decode_reads_at_most_topk_rows(context: int) -> None:
    core = operator(mixer_operators(V32, work.decode(1, context), hidden_size=7168), "attention")
    kv_b = operator(mixer_operators(V32, work.decode(1, context), hidden_size=7168), "kv_b_proj")
    assert core.kv_read_bytes + kv_b.kv_read_bytes == min(context, 2048) * 1152


def test_heads_are_split_and_the_latent_is_not() -> None:
    whole = latent_attention.weights(V3, 7168, 1)
    ranks = latent_attention.weights(V3, 7168, 8)
    for one_rank, all_ranks in zip(ranks, whole, strict=True):
        split = one_rank.name in ("q_b_proj", "kv_b_proj", "o_proj")
        assert all_ranks.elements == one_rank.elements * (8 if split else 1), one_rank.name
